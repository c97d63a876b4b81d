// Any body, into every decoder. What one accepts encodes to the same bytes again.
#include "cluster/wire/wire.h"

#include <cstring>
#include <vector>

#include "target.h"

namespace wire_fuzz {

namespace {

using namespace kvbm;
using namespace kvbm::cluster::wire;

template <class M>
void check(ConstBytes body) {
  M m;
  if (!decode(body, m).ok()) return;
  std::vector<std::byte> again(kMaxBody);
  const size_t n = encode(m, again);
  if (n != body.size() || std::memcmp(again.data(), body.data(), n) != 0) __builtin_trap();
}

}  // namespace

KVBM_FUZZ_TARGET(wire) {
  const ConstBytes body(reinterpret_cast<const std::byte*>(data), size);
  (void)peek(body).ok();
  check<Find>(body);
  check<Found>(body);
  check<Fetch>(body);
  check<Fetched>(body);
  check<Offer>(body);
  check<Want>(body);
  check<Lease>(body);
  check<Release>(body);
  check<NodeStatus>(body);
  check<Invalidate>(body);
  check<Failed>(body);
  check<Head>(body);
  return 0;
}

}  // namespace wire_fuzz
