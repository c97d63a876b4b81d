// The text of a key file. A refusal gives the reason and never a key. An accepted key seals, and opens what it sealed.
#include <string>

#include "codec/seal/seal.h"
#include "target.h"

namespace key_ring_fuzz {

namespace {

using namespace kvbm;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

KVBM_FUZZ_TARGET(key_ring) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ring = codec::KeyRing::parse(text);
  if (!ring.ok()) {
    check(ring.status().code() == Code::invalid_argument);
    const std::string message = ring.status().message();
    for (size_t at = 0; at + 32 <= size; ++at) check(message.find(text.substr(at, 32)) == std::string::npos);
    return 0;
  }
  const uint32_t id = ring.value()->sealing_key();
  check(id != 0 && ring.value()->has(id) && !ring.value()->has(0));
  codec::Header header;
  header.flags = codec::kSealed;
  header.key_id = id;
  codec::Sealer sealer;
  check(sealer.start(*ring.value(), header).ok());
  std::byte plain[32] = {}, sealed[48], back[32];
  check(sealer.seal({}, plain, {}, sealed).ok() && sealer.open({}, sealed, back, {}).ok());
  sealed[size % 48] ^= std::byte{1};
  check(!sealer.open({}, sealed, back, {}).ok());
  return 0;
}

}  // namespace key_ring_fuzz
