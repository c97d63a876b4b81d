// Session messages from a peer: decode() takes anything, and what it takes is what encode() makes.
#include "cluster/session/wire.h"
#include "target.h"

namespace session_wire_fuzz {

KVBM_FUZZ_TARGET(session_wire) {
  using namespace kvbm::cluster::session;
  const kvbm::ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto body = decode(bytes);
  if (!body.ok()) return 0;
  const auto again = encode(peek(bytes).value(), body.value());
  const auto back = decode(again);
  if (!back.ok() || again.size() != size) __builtin_trap();
  if (encode(peek(again).value(), back.value()) != again) __builtin_trap();
  return 0;
}

}  // namespace session_wire_fuzz
