// An attacker between two nodes that alters control messages: flips a bit, truncates, adds bytes. If the pool has no
// key it also sends other bytes under a matching tag: the keys of such a connection follow from its handshake, which
// the attacker has read.
//
//   Meddler meddler(sim.random());
//   net.meddle = meddler.hook();   // the meddler outlives it
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/crypto/hmac.h"
#include "base/crypto/random.h"
#include "support/sim_network.h"

namespace kvbm::test {

class Meddler {
 public:
  explicit Meddler(Random& random) : random_(random) {}

  // Chances in [0, 1], for each message, of one of these changes.
  double flip = 0;  // one bit of it
  double cut = 0;   // its end is missing
  double grow = 0;  // bytes follow it, more than any message may have now and then
  // Replaces, adds or removes bytes of the body, some taken from an earlier message, and computes the matching tag.
  // Only on connections without a key.
  double forge = 0;
  bool handshakes = true;  // these too, but for forging
  uint64_t flipped = 0, shortened = 0, grown = 0, forged = 0;

  [[nodiscard]] uint64_t altered() const { return flipped + shortened + grown + forged; }
  SimNetwork::Meddle hook();

 private:
  struct Wire {
    std::vector<std::byte> first[2];  // first message of each side, unchanged
    uint64_t seen[2] = {0, 0};
    std::optional<std::array<KeyedMac, 2>> keys;  // by the side that sends
    std::vector<std::byte> earlier[2];            // a message of that side, as it was said
  };

  bool chance(double of);
  void hear(Wire& wire, int from, const std::vector<std::byte>& message);
  void alter(std::vector<std::byte>& message);
  bool forge_body(Wire& wire, int from, std::vector<std::byte>& message);
  void splice(const std::vector<std::byte>& earlier, std::vector<std::byte>& message);
  void more(std::vector<std::byte>& message, size_t n);

  Random& random_;
  std::map<uint64_t, Wire> wires_;
};

}  // namespace kvbm::test
