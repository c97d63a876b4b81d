// Handshake of two nodes: each proves that it belongs to the pool before anything of variable length is read. Four
// messages of one fixed size; the bytes are in cluster/README.md (Handshake).
//
//   initiator: hello (facts, nonce)          -> responder
//   responder: reply (facts, nonce)          -> initiator
//   initiator: proof                         -> responder, which admits
//   responder: welcome (proof)               -> initiator, which admits: messages of any size from here on
//
// The responder proves nothing before the initiator has: a peer without the key gets nothing that a guess of the key
// could be compared with. Proofs and the keys of both directions are HKDF outputs of the shared key. Their salt is
// the hash of hello and reply, and each has its own label. So they are valid only for these two nodes, incarnations,
// nonces, versions, protections and this pool, and a side's message can never be sent back to it. A pool without a
// key (loopback only) runs the same with 32 zero bytes and a flag; keyed and unkeyed sides refuse each other.
//
// Each side states the protection that it wants for the connection. If one wants protection and the other none, they
// refuse each other; else the stronger one is used. No forward secrecy: an attacker that learns the key can read
// recorded traffic.
//
// A pure state machine: no clock, no memory but its own; randomness from the source given. Thread: one at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/crypto/random.h"
#include "base/status.h"
#include "cluster/admission/pool_key.h"
#include "cluster/node.h"
#include "cluster/wire/channel.h"
#include "copy/frame_guard.h"

namespace kvbm::cluster {

inline constexpr size_t kHandshakeBytes = 176;
// Version of the protocol that this library implements.
inline constexpr uint8_t kProtocolVersion = 5;
// Earlier versions did not negotiate the protection of bulk data, and the responder proved first.
inline constexpr uint8_t kLowestProtocolVersion = 5;

// A node's description of itself.
struct NodeFacts {
  NodeId node;
  uint64_t incarnation = 0;
  std::string pool;               // at most kMaxName bytes; equal on every node of a pool
  uint64_t pool_fingerprint = 0;  // of settings that a whole pool must share; 0 = none stated
  uint32_t request_limit = 0;     // number of one peer's requests that it serves at once
  uint8_t version = kProtocolVersion;
  uint8_t lowest_version = kLowestProtocolVersion;
  copy::Protection protect = copy::Protection::off;  // protection that it wants for the connection
};

enum class Role : uint8_t { initiator, responder };

// Reason of a refused handshake, as sent to the other side.
enum class Refusal : uint8_t {
  none = 0,
  version = 1,
  pool = 2,
  fingerprint = 3,
  key_needed = 4,      // this side has a key, the other has none
  key_unexpected = 5,  // this side has none
  key_wrong = 6,
  same_node = 7,
  other_node = 8,  // not the node that was expected at this address
  busy = 9,
  protection = 10,  // one side protects what crosses the connection, the other does not
};

class Handshake {
 public:
  // key: null if the pool has none. expected: node expected at the other end, if known.
  Handshake(NodeFacts self, const SharedKey* key, Role role, Random& random, std::optional<NodeId> expected = {});
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  struct Step {
    Status status;             // not ok: refused; `send` (if not empty) is sent before the connection is closed
    ConstBytes send;           // valid until the next call
    bool admit = false;        // the transport must admit the peer, before sending
    bool established = false;  // keys() and peer() are final
    bool refused_by_peer = false;
  };
  // Returns the initiator's first message; empty for a responder.
  [[nodiscard]] Step start();
  [[nodiscard]] Step take(ConstBytes message);
  // Returns a message with the reason, for a peer that is refused whatever it sends.
  [[nodiscard]] ConstBytes refuse(Refusal why);

  [[nodiscard]] const NodeFacts& peer() const noexcept { return peer_; }
  [[nodiscard]] uint8_t version() const noexcept { return version_; }
  // Random value: equal on both sides of one handshake, and unique. Zeros for a responder that has received nothing
  // yet.
  using HelloNonce = std::array<std::byte, 32>;
  [[nodiscard]] const HelloNonce& hello_nonce() const noexcept {
    return role_ == Role::initiator ? nonce_ : peer_nonce_;
  }
  [[nodiscard]] const ChannelKeys& keys() const noexcept { return keys_; }
  // Agreed protection of the connection, and its keys.
  [[nodiscard]] copy::Protection protection() const noexcept { return protection_; }
  [[nodiscard]] const ChannelKeys& frame_keys() const noexcept { return frame_keys_; }

 private:
  enum class Kind : uint8_t { hello = 1, reply = 2, proof = 3, welcome = 4, refusal = 5 };
  enum class State : uint8_t { idle, wait_hello, wait_reply, wait_proof, wait_welcome, done, failed };

  void begin(Kind kind) noexcept;
  void say_facts(Kind kind);
  Step take_hello(ConstBytes message);
  Step take_reply(ConstBytes message);
  Step take_proof(ConstBytes message);
  Step take_welcome(ConstBytes message);
  Step take_refusal(ConstBytes message);
  Step failed(Status status, Refusal why);
  Status read_facts(ConstBytes message, Refusal& why);
  [[nodiscard]] Status check_peer(uint8_t flags, Refusal& why) const;
  void derive(ConstBytes hello, ConstBytes reply);
  void put_proof(std::string_view label);
  [[nodiscard]] bool proof_fits(ConstBytes message, std::string_view label) const;

  NodeFacts self_;
  NodeFacts peer_;
  SharedKey key_{};
  bool keyed_;
  Role role_;
  State state_;
  std::optional<NodeId> expected_;
  uint8_t version_ = 0;
  HelloNonce nonce_{};
  HelloNonce peer_nonce_{};
  std::array<std::byte, kHandshakeBytes> out_{};
  std::array<std::byte, kHandshakeBytes> hello_{};  // both sides keep it for the transcript
  Mac extracted_{};
  ChannelKeys keys_;
  ChannelKeys frame_keys_;
  copy::Protection protection_ = copy::Protection::off;
};

// Returns what a refusal means and its remedy.
const char* refusal_text(Refusal why) noexcept;

}  // namespace kvbm::cluster
