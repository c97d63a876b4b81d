#include "support/meddler.h"

#include <algorithm>
#include <cstring>

#include "cluster/admission/handshake.h"
#include "cluster/wire/channel.h"
#include "codec/record/key.h"
#include "copy/transport_abi.h"

namespace kvbm::test {

namespace {

// lib/cluster/README.md, Handshake: messages of one size; the proof comes last, and what stands before it in the first
// message of each side makes the connection's keys.
constexpr size_t kProofBytes = 32;
// Each side sends two messages of a handshake.
constexpr uint64_t kHandshakeMessages = 2;
constexpr size_t kWorthKeeping = 80;

}  // namespace

SimNetwork::Meddle Meddler::hook() {
  return [this](uint64_t id, int from, std::vector<std::byte>& message) {
    Wire& wire = wires_[id];
    const bool handshake = wire.seen[from]++ < kHandshakeMessages;
    hear(wire, from, message);
    const std::vector<std::byte> said = message;
    if (!handshake || handshakes) alter(message);
    if (handshake) return;
    if (chance(forge) && forge_body(wire, from, message)) ++forged;
    // Keeps only messages with a body to reuse. Pings and short answers have nothing that would fit into another
    // message.
    if (said.size() >= kWorthKeeping) wire.earlier[from] = said;
  };
}

bool Meddler::chance(double of) { return of > 0 && static_cast<double>(random_.below(1'000'000'000)) < of * 1e9; }

void Meddler::hear(Wire& wire, int from, const std::vector<std::byte>& message) {
  if (wire.seen[from] != 1) return;
  wire.first[from] = message;
  if (wire.first[0].size() != cluster::kHandshakeBytes || wire.first[1].size() != cluster::kHandshakeBytes) return;
  constexpr size_t kSaid = cluster::kHandshakeBytes - kProofBytes;
  std::array<std::byte, 2 * kSaid> transcript;
  std::memcpy(transcript.data(), wire.first[0].data(), kSaid);
  std::memcpy(transcript.data() + kSaid, wire.first[1].data(), kSaid);
  const auto salt = codec::sha256(transcript);
  const cluster::SharedKey no_key{};
  const Mac extracted = hkdf_extract(std::as_bytes(std::span(salt)), std::as_bytes(std::span(no_key)));
  const auto key = [&extracted](std::string_view label) {
    Mac out;
    (void)hkdf_expand(extracted, std::as_bytes(std::span(label)), std::as_writable_bytes(std::span(out)));
    return KeyedMac(out);
  };
  wire.keys.emplace(std::array{key("kvbm initiator to responder"), key("kvbm responder to initiator")});
}

void Meddler::more(std::vector<std::byte>& message, size_t n) {
  const auto filler = static_cast<std::byte>(random_.next());
  message.insert(message.end(), n, filler);
}

void Meddler::alter(std::vector<std::byte>& message) {
  if (!message.empty() && chance(flip)) {
    const uint64_t bit = random_.below(message.size() * 8);
    message[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ++flipped;
  }
  if (!message.empty() && chance(cut)) {
    message.resize(random_.below(message.size()));
    ++shortened;
  }
  if (chance(grow)) {
    more(message, 1 + random_.below(random_.below(4) == 0 ? 2 * KVBM_TRANSPORT_MESSAGE_BYTES : 64));
    ++grown;
  }
}

// Replaces bytes of the message by bytes of an earlier one at the same place: a key, a family, a request.
void Meddler::splice(const std::vector<std::byte>& earlier, std::vector<std::byte>& message) {
  const size_t both = std::min(earlier.size(), message.size());
  if (both < cluster::Channel::kOverhead + 8) return;
  const size_t begin = cluster::Channel::kOverhead + 8 * random_.below((both - cluster::Channel::kOverhead) / 8);
  const size_t n = std::min<size_t>(8 * (1 + random_.below(8)), both - begin);
  std::copy_n(earlier.begin() + static_cast<ptrdiff_t>(begin), n, message.begin() + static_cast<ptrdiff_t>(begin));
}

bool Meddler::forge_body(Wire& wire, int from, std::vector<std::byte>& message) {
  if (!wire.keys.has_value() || message.size() <= cluster::Channel::kOverhead) return false;
  const std::vector<std::byte> before = message;
  const size_t body = message.size() - cluster::Channel::kOverhead;
  switch (random_.below(6)) {
    case 4:
    case 5:
      splice(wire.earlier[from], message);
      break;
    case 0:
      message.resize(cluster::Channel::kOverhead + random_.below(body));
      break;
    case 1:
      more(message, 1 + random_.below(64));
      break;
    default:  // bytes of a count, a length, a key, a lease, ...
      for (uint64_t n = 1 + random_.below(4); n != 0; --n) {
        message[cluster::Channel::kOverhead + random_.below(body)] = static_cast<std::byte>(random_.next());
      }
  }
  const ConstBytes tagged = ConstBytes(message).subspan(cluster::Channel::kTagBytes);
  const Mac mac = (*wire.keys)[static_cast<size_t>(from)](tagged);
  std::memcpy(message.data(), mac.data(), cluster::Channel::kTagBytes);
  return message != before;
}

}  // namespace kvbm::test
