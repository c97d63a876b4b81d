// A stranger's messages: one after the other into a responder and, with another first byte, into an initiator. Nothing
// of it may establish a connection with a side that has a key.
#include "cluster/admission/handshake.h"

#include <cstring>
#include <vector>

#include "target.h"

namespace handshake_fuzz {

KVBM_FUZZ_TARGET(handshake) {
  using namespace kvbm;
  using namespace kvbm::cluster;
  if (size == 0) return 0;
  SeededRandom random(7);
  NodeFacts self;
  self.node = node_id_of("here");
  self.pool = "pool";
  self.protect = static_cast<copy::Protection>(data[0] >> 2 & 3);
  if (self.protect > copy::Protection::encrypt) self.protect = copy::Protection::off;
  SharedKey key{};
  key.fill(3);
  const bool initiator = (data[0] & 1) != 0;
  const bool keyed = (data[0] & 2) == 0;
  Handshake handshake(self, keyed ? &key : nullptr, initiator ? Role::initiator : Role::responder, random);
  (void)handshake.start();
  size_t at = 1;
  while (at < size) {
    const size_t n = std::min<size_t>(size - at, kHandshakeBytes);
    const std::vector<std::byte> message(reinterpret_cast<const std::byte*>(data + at),
                                         reinterpret_cast<const std::byte*>(data + at) + n);
    const auto step = handshake.take(message);
    if (step.established && keyed) __builtin_trap();
    // The agreed protection is never weaker than this side's setting.
    if (step.established && handshake.protection() < self.protect) __builtin_trap();
    if (step.send.size() != 0 && step.send.size() != kHandshakeBytes) __builtin_trap();
    if (!step.status.ok() && step.status.message().empty()) __builtin_trap();
    at += n;
  }
  return 0;
}

}  // namespace handshake_fuzz
