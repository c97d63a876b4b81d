// The text of a key file. An accepted key prints as the same text. The error for a refused one does not quote the
// text, which may be a secret.
#include "cluster/admission/pool_key.h"

#include <cctype>
#include <string>

#include "target.h"

namespace pool_key_fuzz {

KVBM_FUZZ_TARGET(pool_key) {
  using namespace kvbm::cluster;
  std::string text(reinterpret_cast<const char*>(data), size);
  const auto key = parse_pool_key(text);
  if (!key.ok()) {
    if (size > 8 && key.status().message().find(text) != std::string::npos) __builtin_trap();
    return 0;
  }
  const PoolKeyText made = pool_key_text(key.value());
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.compare(0, made.size(), made.data(), made.size()) != 0) __builtin_trap();
  return 0;
}

}  // namespace pool_key_fuzz
