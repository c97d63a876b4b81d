// Facts that a node sends about its host over a link, and messages on the host's socket. Accepted ones encode to the
// same bytes.
#include "cluster/same_host/host_facts.h"

#include <cstring>
#include <vector>

#include "cluster/wire/wire.h"
#include "target.h"

namespace host_facts_fuzz {

KVBM_FUZZ_TARGET(host_facts) {
  using namespace kvbm;
  using namespace kvbm::cluster;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  HostFacts facts;
  if (decode(bytes, facts).ok()) {
    std::vector<std::byte> again(wire::kMaxBody);
    if (encode(facts, again) != size || std::memcmp(again.data(), data, size) != 0) __builtin_trap();
  }
  HostWord word;
  if (decode(bytes, word).ok()) {
    std::byte again[kHostWordBytes];
    encode(word, again);
    if (size != kHostWordBytes || std::memcmp(again, data, size) != 0) __builtin_trap();
  }
  return 0;
}

}  // namespace host_facts_fuzz
