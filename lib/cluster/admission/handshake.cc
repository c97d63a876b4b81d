#include "cluster/admission/handshake.h"

#include "codec/record/key.h"

namespace kvbm::cluster {
namespace {

// Offsets and constants of a handshake message. All kinds and versions share them (cluster/README.md, Handshake).
constexpr uint32_t kMagic = 0x4842564BU;  // "KVBH"
constexpr size_t kAtKind = 4;
constexpr size_t kAtVersion = 5;
constexpr size_t kAtLowest = 6;
constexpr size_t kAtFlags = 7;
constexpr size_t kAtIncarnation = 8;
constexpr size_t kAtNode = 16;
constexpr size_t kAtPool = 32;
constexpr size_t kAtFingerprint = 96;
constexpr size_t kAtRequests = 104;
constexpr size_t kAtRefusal = 108;
constexpr size_t kAtProtect = 109;
constexpr size_t kAtNonce = 112;
constexpr size_t kAtProof = 144;
static_assert(kAtPool + kMaxName + 1 == kAtFingerprint && kAtProof + 32 == kHandshakeBytes);

constexpr uint8_t kKeyedFlag = 1;

constexpr std::string_view kInitiatorProof = "kvbm proof";
constexpr std::string_view kWelcomeProof = "kvbm welcome";
constexpr std::string_view kToResponder = "kvbm initiator to responder";
constexpr std::string_view kToInitiator = "kvbm responder to initiator";
constexpr std::string_view kFramesToResponder = "kvbm frames to responder";
constexpr std::string_view kFramesToInitiator = "kvbm frames to initiator";

uint8_t byte_at(ConstBytes m, size_t at) noexcept { return std::to_integer<uint8_t>(m[at]); }

copy::Protection protection_at(ConstBytes m) noexcept { return static_cast<copy::Protection>(byte_at(m, kAtProtect)); }

std::string wishes(copy::Protection here, copy::Protection there) {
  return std::string("here ") + copy::protection_name(here) + ", there " + copy::protection_name(there);
}

std::string versions(uint8_t lowest, uint8_t highest) {
  if (lowest == highest) return std::to_string(highest);
  return std::to_string(lowest) + " to " + std::to_string(highest);
}

Code code_of(Refusal why) noexcept {
  switch (why) {
    case Refusal::version:
      return Code::newer_version;
    case Refusal::busy:
      return Code::again;
    case Refusal::key_needed:
    case Refusal::key_unexpected:
    case Refusal::key_wrong:
    case Refusal::protection:
      return Code::not_permitted;
    default:
      return Code::mismatch;
  }
}

// HKDF-Expand(key, label, 32).
Mac expanded(const Mac& key, std::string_view label) noexcept {
  Mac out;
  (void)hkdf_expand(key, std::as_bytes(std::span(label)), std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

const char* refusal_text(Refusal why) noexcept {
  switch (why) {
    case Refusal::version:
      return "peer: no version of the protocol is spoken by both sides; update the older one";
    case Refusal::pool:
      return "peer: it belongs to another pool; check the pool's name on both sides (node.pool)";
    case Refusal::fingerprint:
      return "peer: its pool has the same name and was set up differently; compare both configurations";
    case Refusal::key_needed:
      return "peer: one side has a key and the other has none; give both the pool's key (node.key_file)";
    case Refusal::key_unexpected:
      return "peer: one side has no key and the other has one; give both the pool's key (node.key_file)";
    case Refusal::key_wrong:
      return "peer: wrong key; both sides need the same key of the pool (node.key_file)";
    case Refusal::same_node:
      return "peer: this is the node itself, or two nodes have one name; give each node its own";
    case Refusal::other_node:
      return "peer: another node than expected answers at this address; check the list of members";
    case Refusal::busy:
      return "peer: it takes no more connections now; try again later";
    case Refusal::protection:
      return "peer: node.protect is off on one side alone";
    case Refusal::none:
      break;
  }
  return "peer: it refused the connection for a reason that this version does not know";
}

Handshake::Handshake(NodeFacts self, const SharedKey* key, Role role, Random& random, std::optional<NodeId> expected)
    : self_(std::move(self)),
      keyed_(key != nullptr),
      role_(role),
      state_(role == Role::initiator ? State::idle : State::wait_hello),
      expected_(expected) {
  if (key != nullptr) key_ = *key;
  random.fill(nonce_);
}

Handshake::~Handshake() {
  wipe(extracted_.data(), extracted_.size());
  wipe(&keys_, sizeof keys_);
  wipe(&frame_keys_, sizeof frame_keys_);
}

void Handshake::begin(Kind kind) noexcept {
  out_.fill(std::byte{0});
  store_le<uint32_t>(out_.data(), kMagic);
  out_[kAtKind] = static_cast<std::byte>(kind);
  out_[kAtVersion] = static_cast<std::byte>(self_.version);
  out_[kAtLowest] = static_cast<std::byte>(self_.lowest_version);
  out_[kAtFlags] = static_cast<std::byte>(keyed_ ? kKeyedFlag : 0);
  out_[kAtProtect] = static_cast<std::byte>(self_.protect);
}

void Handshake::say_facts(Kind kind) {
  begin(kind);
  store_le<uint64_t>(out_.data() + kAtIncarnation, self_.incarnation);
  std::memcpy(out_.data() + kAtNode, self_.node.bytes.data(), self_.node.bytes.size());
  std::memcpy(out_.data() + kAtPool, self_.pool.data(), std::min(self_.pool.size(), kMaxName));
  store_le<uint64_t>(out_.data() + kAtFingerprint, self_.pool_fingerprint);
  store_le<uint32_t>(out_.data() + kAtRequests, self_.request_limit);
  std::memcpy(out_.data() + kAtNonce, nonce_.data(), nonce_.size());
}

ConstBytes Handshake::refuse(Refusal why) {
  begin(Kind::refusal);
  out_[kAtRefusal] = static_cast<std::byte>(why);
  state_ = State::failed;
  return out_;
}

Handshake::Step Handshake::failed(Status status, Refusal why) {
  Step step;
  step.status = std::move(status);
  if (why != Refusal::none) step.send = refuse(why);
  state_ = State::failed;
  return step;
}

Handshake::Step Handshake::start() {
  if (state_ != State::idle) return {};
  say_facts(Kind::hello);
  hello_ = out_;
  state_ = State::wait_reply;
  Step step;
  step.send = out_;
  return step;
}

Handshake::Step Handshake::take(ConstBytes message) {
  if (state_ == State::done || state_ == State::failed || state_ == State::idle) {
    return failed({Code::wrong_state, "peer: a message of a handshake that has ended"}, Refusal::none);
  }
  if (message.size() != kHandshakeBytes || load_le<uint32_t>(message.data()) != kMagic) {
    return failed({Code::damaged, "peer: it does not speak this protocol, or is no node of kvbm"}, Refusal::none);
  }
  const auto kind = static_cast<Kind>(byte_at(message, kAtKind));
  if (kind == Kind::refusal) return take_refusal(message);
  if (state_ == State::wait_hello && kind == Kind::hello) return take_hello(message);
  if (state_ == State::wait_reply && kind == Kind::reply) return take_reply(message);
  if (state_ == State::wait_proof && kind == Kind::proof) return take_proof(message);
  if (state_ == State::wait_welcome && kind == Kind::welcome) return take_welcome(message);
  return failed({Code::damaged, "peer: a message of the handshake came out of its order"}, Refusal::none);
}

// Checks everything that can be checked without the key, in the order that helps users most.
Status Handshake::check_peer(uint8_t flags, Refusal& why) const {
  const auto refused = [&why](Refusal reason, std::string detail) {
    why = reason;
    return Status(code_of(reason), refusal_text(reason), std::move(detail));
  };
  if (peer_.version < self_.lowest_version || self_.version < peer_.lowest_version) {
    return refused(Refusal::version, "here " + versions(self_.lowest_version, self_.version) + ", there " +
                                         versions(peer_.lowest_version, peer_.version));
  }
  if (!valid_name(peer_.pool)) return {Code::damaged, "peer: the name of its pool is not one"};
  if (peer_.pool != self_.pool) return refused(Refusal::pool, "here " + self_.pool + ", there " + peer_.pool);
  const bool keyed = (flags & kKeyedFlag) != 0;
  if (keyed != keyed_) {
    return refused(keyed_ ? Refusal::key_needed : Refusal::key_unexpected,
                   keyed_ ? "the peer has none" : "this side has none");
  }
  using copy::Protection;
  if (peer_.protect > Protection::encrypt) return {Code::damaged, "peer: it wants a protection that there is not"};
  if ((peer_.protect == Protection::off) != (self_.protect == Protection::off)) {
    return refused(Refusal::protection, wishes(self_.protect, peer_.protect));
  }
  if (peer_.node == self_.node) return refused(Refusal::same_node, short_text(peer_.node));
  if (expected_.has_value() && *expected_ != peer_.node) {
    return refused(Refusal::other_node, "expected " + short_text(*expected_) + ", found " + short_text(peer_.node));
  }
  if (peer_.pool_fingerprint != self_.pool_fingerprint && peer_.pool_fingerprint != 0 && self_.pool_fingerprint != 0) {
    return refused(Refusal::fingerprint, "pool " + self_.pool);
  }
  return {};
}

Status Handshake::read_facts(ConstBytes message, Refusal& why) {
  peer_.version = byte_at(message, kAtVersion);
  peer_.lowest_version = byte_at(message, kAtLowest);
  peer_.incarnation = load_le<uint64_t>(message.data() + kAtIncarnation);
  std::memcpy(peer_.node.bytes.data(), message.data() + kAtNode, peer_.node.bytes.size());
  const auto* pool = reinterpret_cast<const char*>(message.data() + kAtPool);
  peer_.pool.assign(pool, strnlen(pool, kMaxName));
  peer_.pool_fingerprint = load_le<uint64_t>(message.data() + kAtFingerprint);
  peer_.request_limit = load_le<uint32_t>(message.data() + kAtRequests);
  std::memcpy(peer_nonce_.data(), message.data() + kAtNonce, peer_nonce_.size());
  peer_.protect = protection_at(message);
  if (Status status = check_peer(byte_at(message, kAtFlags), why); !status.ok()) return status;
  version_ = std::min(peer_.version, self_.version);
  protection_ = std::max(peer_.protect, self_.protect);
  return {};
}

// Derives the keys. Salt = SHA-256 of both sides' messages before the first proof.
void Handshake::derive(ConstBytes hello, ConstBytes reply) {
  std::array<std::byte, 2 * kAtProof> transcript;
  std::memcpy(transcript.data(), hello.data(), kAtProof);
  std::memcpy(transcript.data() + kAtProof, reply.data(), kAtProof);
  const auto salt = codec::sha256(transcript);
  extracted_ = hkdf_extract(std::as_bytes(std::span(salt)), std::as_bytes(std::span(key_)));
  const Mac to_responder = expanded(extracted_, kToResponder);
  const Mac to_initiator = expanded(extracted_, kToInitiator);
  keys_.send = role_ == Role::initiator ? to_responder : to_initiator;
  keys_.receive = role_ == Role::initiator ? to_initiator : to_responder;
  const Mac frames_to_responder = expanded(extracted_, kFramesToResponder);
  const Mac frames_to_initiator = expanded(extracted_, kFramesToInitiator);
  frame_keys_.send = role_ == Role::initiator ? frames_to_responder : frames_to_initiator;
  frame_keys_.receive = role_ == Role::initiator ? frames_to_initiator : frames_to_responder;
}

void Handshake::put_proof(std::string_view label) {
  const Mac proof = expanded(extracted_, label);
  std::memcpy(out_.data() + kAtProof, proof.data(), proof.size());
}

bool Handshake::proof_fits(ConstBytes message, std::string_view label) const {
  const Mac proof = expanded(extracted_, label);
  return equal_secret(std::as_bytes(std::span(proof)), message.subspan(kAtProof, proof.size()));
}

Handshake::Step Handshake::take_hello(ConstBytes message) {
  Refusal why = Refusal::none;
  if (Status status = read_facts(message, why); !status.ok()) return failed(std::move(status), why);
  std::memcpy(hello_.data(), message.data(), hello_.size());
  say_facts(Kind::reply);
  derive(hello_, out_);
  state_ = State::wait_proof;
  Step step;
  step.send = out_;
  return step;
}

Handshake::Step Handshake::take_reply(ConstBytes message) {
  Refusal why = Refusal::none;
  if (Status status = read_facts(message, why); !status.ok()) return failed(std::move(status), why);
  derive(hello_, message);
  begin(Kind::proof);
  put_proof(kInitiatorProof);
  state_ = State::wait_welcome;
  Step step;
  step.send = out_;
  return step;
}

Handshake::Step Handshake::take_proof(ConstBytes message) {
  if (!proof_fits(message, kInitiatorProof)) {
    return failed({code_of(Refusal::key_wrong), refusal_text(Refusal::key_wrong)}, Refusal::key_wrong);
  }
  begin(Kind::welcome);
  put_proof(kWelcomeProof);
  state_ = State::done;
  Step step;
  step.send = out_;
  step.admit = step.established = true;
  return step;
}

Handshake::Step Handshake::take_welcome(ConstBytes message) {
  if (!proof_fits(message, kWelcomeProof)) {
    return failed({Code::not_permitted,
                   "peer: its welcome does not prove that it has the pool's key (node.key_file): it is "
                   "no node of this pool, or the messages were changed on the way"},
                  Refusal::none);
  }
  state_ = State::done;
  Step step;
  step.admit = step.established = true;
  return step;
}

Handshake::Step Handshake::take_refusal(ConstBytes message) {
  const auto why = static_cast<Refusal>(byte_at(message, kAtRefusal));
  std::string detail = "said by the peer";
  if (why == Refusal::version) {
    detail += ": here " + versions(self_.lowest_version, self_.version) + ", there " +
              versions(byte_at(message, kAtLowest), byte_at(message, kAtVersion));
  }
  if (why == Refusal::protection) detail += ": " + wishes(self_.protect, protection_at(message));
  Step step = failed({code_of(why), refusal_text(why), std::move(detail)}, Refusal::none);
  step.refused_by_peer = true;
  return step;
}

}  // namespace kvbm::cluster
