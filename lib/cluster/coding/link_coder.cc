#include "cluster/coding/link_coder.h"

#include <algorithm>
#include <utility>

#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "codec/lossless/zstd_leaf.h"

namespace kvbm::cluster {

namespace {

// Assumed ratio of coded records: exponents of bf16 (lib/codec/README.md). Other namespaces and nodes have other
// ratios; trials find the ratio of the batches here.
constexpr double kThoughtRatio = 1.4;
// Between nodes of one machine the transfer of a coded record is processor work: about this many nanoseconds a plain
// byte, on the machines that this was measured on (0.27 / 1.4). Time on the link beyond that is waiting.
constexpr double kLoopbackWork = 0.3;
// Links faster than this are coded with the faster mode: the other one would itself be the limit.
constexpr double kFastEdgeNsPerByte = 0.5;  // 2 GB/s
// Smaller records spend a large part of their time outside the coder.
constexpr uint64_t kLeastForSpeed = 64ULL << 10;
constexpr size_t kLargeBatch = 8ULL << 20;

codec::Mode mode_of(copy::Way way, const copy::CodecChoice::State& edge) noexcept {
  if (way == copy::Way::plain) return codec::Mode::off;
  return edge.plain_ns_per_byte < kFastEdgeNsPerByte ? codec::Mode::fast : codec::Mode::standard;
}

constexpr size_t kMostWarnings = 16;

constexpr uint16_t bit_of(codec::LeafCodec c) noexcept { return static_cast<uint16_t>(1U << static_cast<unsigned>(c)); }
// Codecs that lossless modes produce in this build, and all codecs that its decode_leaf() has.
uint16_t lossless_codecs() noexcept {
  constexpr uint16_t kAlways = bit_of(codec::LeafCodec::raw) | bit_of(codec::LeafCodec::planar);
  constexpr uint16_t kWithZstd = kAlways | bit_of(codec::LeafCodec::zstd);
  return codec::has_zstd() ? kWithZstd : kAlways;
}
uint16_t known_codecs() noexcept {
  constexpr uint16_t kLossy = bit_of(codec::LeafCodec::quantized) | bit_of(codec::LeafCodec::delta);
  return static_cast<uint16_t>(lossless_codecs() | kLossy);
}

// Returns true if the peer decodes everything that a lossless mode produces here.
bool wants_coded(const wire::Coding& coding) noexcept {
  return coding.mode >= static_cast<uint8_t>(codec::Mode::fast) &&
         coding.mode <= static_cast<uint8_t>(codec::Mode::zstd) &&
         (coding.codecs & lossless_codecs()) == lossless_codecs();
}

}  // namespace

std::unique_ptr<codec::Workspace> LinkCoder::take_workspace() {
  auto spare = workspaces_.take();
  return spare != nullptr ? std::move(spare) : std::make_unique<codec::Workspace>();
}

void CodingCounts::Direction::operator+=(const Direction& more) noexcept {
  coded += more.coded;
  plain += more.plain;
  raw_bytes += more.raw_bytes;
  coded_bytes += more.coded_bytes;
  ns += more.ns;
  refused += more.refused;
}

LinkCoder::LinkCoder(LinkCoding options, Random& random, const Clock& clock, const Log* log)
    : options_(std::move(options)), random_(random), clock_(clock), log_(log) {}

// Measures with numbers like a cache's: mantissas are noise, exponents few.
void LinkCoder::measure() {
  constexpr size_t kBytes = codec::kMaxLeafBytes;
  // Many runs, because the first ones pay for memory and caches, and a starting process often shares its processor.
  constexpr int kTimes = 32;
  std::vector<std::byte> raw(kBytes), back(kBytes), coded(codec::encode_room(kBytes) + 64);
  SeededRandom noise(1);
  for (size_t i = 0; i + 2 <= kBytes; i += 2) {
    const uint64_t bits = noise.next();
    const auto exponent = static_cast<uint64_t>(126 - std::min(__builtin_ctzll(bits | (1ULL << 20)), 20));
    const auto value = static_cast<uint16_t>((bits >> 63 << 15) | exponent << 7 | (bits >> 30 & 0x7F));
    store_le(raw.data() + i, value);
  }
  std::byte* const out = coded.data() + (64 - reinterpret_cast<uintptr_t>(coded.data()) % 64) % 64;
  auto workspace = take_workspace();
  const uint64_t hash = codec::leaf_hash(raw);
  uint64_t encode_ns = UINT64_MAX, decode_ns = UINT64_MAX;
  const codec::LeafForm form{codec::Element::bf16, 128, kBytes / 256};
  const codec::Mode mode = options_.automatic ? codec::Mode::standard : options_.mode;
  for (int i = 0; i < kTimes; ++i) {
    const uint64_t began = clock_.now_ns();
    const auto encoded = codec::encode_leaf(form, mode, raw, hash, {out, codec::encode_room(kBytes)}, *workspace);
    const uint64_t middle = clock_.now_ns();
    if (!encoded.ok() || encoded.value().codec == codec::LeafCodec::raw) return;
    const ConstBytes stored(out, encoded.value().bytes);
    if (!codec::decode_leaf(encoded.value().codec, stored, back, *workspace).ok()) return;
    encode_ns = std::min(encode_ns, middle - began);
    decode_ns = std::min(decode_ns, clock_.now_ns() - middle);
  }
  workspaces_.give_back(std::move(workspace));
  coded_so_fast(&copy::CodingSpeeds::encode_ns_per_byte, encode_ns, kBytes);
  coded_so_fast(&copy::CodingSpeeds::decode_ns_per_byte, decode_ns, kBytes);
}

// ---- Requests ----

LinkCoder::Known& LinkCoder::known(const NodeId& node) {
  auto& known = nodes_[node];
  if (known == nullptr) known = std::make_unique<Known>();
  return *known;
}

void LinkCoder::is_on_this_machine(const NodeId& node, bool here) {
  MutexLock lock(mutex_);
  known(node).on_this_machine = here;
}

copy::CodingSpeeds LinkCoder::speeds(const Known& of) const {
  const double shared = of.on_this_machine ? kLoopbackWork : 0;
  return {speeds_.encode_ns_per_byte, speeds_.decode_ns_per_byte, kThoughtRatio, shared};
}

void LinkCoder::coded_so_fast(double copy::CodingSpeeds::*which, uint64_t took, uint64_t raw) {
  if (raw < kLeastForSpeed) return;
  const double now = static_cast<double>(took) / static_cast<double>(raw);
  MutexLock lock(mutex_);
  double& fastest = speeds_.*which;
  if (fastest == 0 || now < fastest) fastest = now;
}

LinkCoder::Asked LinkCoder::ask(const NodeId& node, uint64_t bytes, bool takes_lossy, Use use, uint64_t deadline_ns) {
  Asked out;
  out.ticket = {clock_.now_ns(), bytes, copy::Way::plain};
  codec::Mode mode = options_.mode;
  if (options_.automatic) {
    MutexLock lock(mutex_);
    Known& of = known(node);
    out.choice = &of.choice(use);
    out.ticket = out.choice->next(out.ticket.asked_ns, bytes, speeds(of), deadline_ns);
    mode = mode_of(out.ticket.way, out.choice->state(bytes));
  }
  out.coding.mode = static_cast<uint8_t>(mode);
  if (options_.keys != nullptr) out.coding.flags |= wire::kOpensSealed;
  if (mode == codec::Mode::off && options_.keys == nullptr) return out;
  out.coding.codecs = known_codecs();
  if (takes_lossy) out.coding.flags |= wire::kTakesLossy;
  return out;
}

LinkCoder::Asked LinkCoder::ask_as_it_is() const {
  Asked out;
  if (options_.keys == nullptr) return out;
  out.coding.flags = wire::kOpensSealed;
  out.coding.codecs = known_codecs();
  return out;
}

void LinkCoder::answered(const Asked& asked, bool came_coded, uint64_t got) const {
  if (asked.choice == nullptr) return;
  // A record that is only sealed counts as plain.
  const bool coded = came_coded && asked.coding.mode != static_cast<uint8_t>(codec::Mode::off);
  const copy::Way way = coded ? copy::Way::coded : copy::Way::plain;
  MutexLock lock(mutex_);
  asked.choice->ended(clock_.now_ns(), asked.ticket, way, got);
}

LinkCoder::NodeState LinkCoder::state(const NodeId& node) const {
  NodeState out;
  out.automatic = options_.automatic;
  out.sealed = options_.keys != nullptr;
  out.mode = options_.mode;
  MutexLock lock(mutex_);
  const auto known = nodes_.find(node);
  if (known == nodes_.end()) return out;
  out.taken = known->second->taken;
  if (!options_.automatic) return out;
  out.choice = known->second->choice(Use::records).state(kLargeBatch);
  out.mode = mode_of(out.choice.way, out.choice);
  return out;
}

std::vector<LinkCoder::Choice> LinkCoder::choices() const {
  std::vector<Choice> out;
  MutexLock lock(mutex_);
  for (const auto& [node, known] : nodes_) {
    for (const Use use : {Use::records, Use::slices}) {
      for (const copy::CodecChoice::Size& size : copy::CodecChoice::kSizes) {
        const auto state = known->choice(use).state(size.bytes);
        if (state.plain_ns_per_byte > 0) out.push_back({node, use, size.name, state});
      }
    }
  }
  return out;
}

uint64_t LinkCoder::room(uint32_t head_bytes, uint64_t payload_bytes) const noexcept {
  const uint64_t plain = head_bytes + payload_bytes;
  if (options_.keys == nullptr || head_bytes < codec::kHeaderBytes) return plain;
  const auto leaves = static_cast<uint32_t>((head_bytes - codec::kHeaderBytes) / codec::kLeafEntryBytes);
  return codec::coded_head_room(head_bytes) + codec::coded_room(payload_bytes, leaves);
}

bool LinkCoder::take(const NodeId& node, bool coded, bool sealed) {
  // Sealed bytes without the coded flag would be accepted unopened.
  if (options_.keys != nullptr && !(coded && sealed)) {
    count_taken(node, {.refused = 1});
    warn_once(Code::not_permitted,
              "a node gave a record that is not sealed, which is refused here: give it this node's seal.key_file");
    return false;
  }
  if (!coded) count_taken(node, {.plain = 1});
  return true;
}

Code LinkCoder::decode_record(const NodeId& node, bool allow_lossy, const codec::HeadView& coded, ConstBytes stored,
                              MutableBytes head, MutableBytes payload) {
  const codec::DecodeRules rules{options_.keys.get(), allow_lossy};
  auto workspace = take_workspace();
  const uint64_t began = clock_.now_ns();
  const Status status = codec::decode_record(coded, stored, rules, 0, 0, head, payload, *workspace);
  const uint64_t took = clock_.now_ns() - began;
  workspaces_.give_back(std::move(workspace));
  if (!status.ok()) {
    count_taken(node, {.refused = 1});
    if (status.code() != Code::damaged)
      warn_once(status.code(), "a record of another node is refused: " + status.message());
    return status.code();
  }
  count_taken(node, {.coded = 1, .raw_bytes = payload.size(), .coded_bytes = stored.size(), .ns = took});
  // Excludes records that were only sealed.
  if (stored.size() < payload.size()) coded_so_fast(&copy::CodingSpeeds::decode_ns_per_byte, took, payload.size());
  return Code::ok;
}

// ---- Serving ----

LinkCoder::Plan LinkCoder::plan(const wire::Coding& coding) {
  if (options_.keys != nullptr) {
    if ((coding.flags & wire::kOpensSealed) != 0) return Plan::coded;
    count_given({.refused = 1});
    warn_once(Code::miss,
              "a node asked for records that are sealed here, and cannot open them: it gets none until it has this "
              "node's seal.key_file");
    return Plan::refused;
  }
  return options_.codes() && wants_coded(coding) ? Plan::coded : Plan::plain;
}

codec::Recipe LinkCoder::lossless(const wire::Coding& coding) const {
  codec::Recipe recipe;
  if (options_.codes() && wants_coded(coding)) {
    recipe.rules.push_back({0, UINT32_MAX, 3, static_cast<codec::Mode>(coding.mode)});
  }
  return recipe;
}

Result<codec::CodedSizes> LinkCoder::encode(FamilyId family, const codec::HeadView& head, ConstBytes payload,
                                            const wire::Coding& coding, MutableBytes out_head,
                                            MutableBytes out_payload) {
  const auto known = terms(family);
  codec::Recipe recipe = lossless(coding);
  if (!recipe.rules.empty()) {
    if (known != nullptr && !known->recipe.rules.empty()) {
      const bool lossy_ok = known->allow_lossy && (coding.flags & wire::kTakesLossy) != 0 &&
                            (coding.codecs & known_codecs()) == known_codecs();
      if (lossy_ok || !known->recipe.lossy()) recipe = known->recipe;
    }
  }
  // An opaque record keeps its leaf boundaries: its leaves are of no layer and hold more than whole heads.
  const bool opaque = (head.header().flags & codec::kOpaque) != 0;
  if (opaque && recipe.lossy()) recipe.rules.assign(1, {0, UINT32_MAX, 3, codec::Mode::standard});
  codec::RecordForm form = known != nullptr ? known->form : codec::RecordForm{};
  if (opaque) form.rows = form.leaves_per_plane = 0;
  return encode_record(head, payload, form, recipe, out_head, out_payload);
}

Result<codec::CodedSizes> LinkCoder::encode_record(const codec::HeadView& head, ConstBytes payload,
                                                   const codec::RecordForm& form, const codec::Recipe& recipe,
                                                   MutableBytes out_head, MutableBytes out_payload) {
  auto workspace = take_workspace();
  const uint64_t began = clock_.now_ns();
  auto sizes = codec::encode_record(head, payload, form, recipe, options_.keys.get(), random_, out_head, out_payload,
                                    *workspace);
  const uint64_t took = clock_.now_ns() - began;
  workspaces_.give_back(std::move(workspace));
  if (sizes.ok()) {
    const uint64_t coded_bytes = sizes.value().payload_bytes;
    count_given({.coded = 1, .raw_bytes = payload.size(), .coded_bytes = coded_bytes, .ns = took});
  } else if (sizes.status().code() == Code::again) {
    MutexLock lock(mutex_);
    ++counts_.useless;
  }
  if (sizes.ok() && sizes.value().payload_bytes < payload.size()) {
    coded_so_fast(&copy::CodingSpeeds::encode_ns_per_byte, took, payload.size());
  }
  return sizes;
}

void LinkCoder::count_given(const CodingCounts::Direction& more) {
  MutexLock lock(mutex_);
  counts_.given += more;
}

void LinkCoder::count_taken(const NodeId& node, const CodingCounts::Direction& more) {
  MutexLock lock(mutex_);
  counts_.taken += more;
  known(node).taken += more;
}

// Logs each text once, and at most kMostWarnings different ones.
void LinkCoder::warn_once(Code why, const std::string& text) {
  {
    MutexLock lock(mutex_);
    if (warned_.size() >= kMostWarnings || !warned_.insert(text).second) return;
  }
  if (log_ != nullptr) log_->write(LogLevel::warning, "node", text + " (" + std::string(code_name(why)) + ")");
}

}  // namespace kvbm::cluster
