#include "codec/coded/coded_record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "codec/hash/leaf_hash.h"
#include "codec/leaf/frame.h"

namespace kvbm::codec {

namespace {

constexpr uint64_t kIoUnit = 4096;  // direct I/O writes multiples of it
constexpr size_t kCodedAlign = 64;
constexpr size_t kSealedLeafBytes = kSealTagBytes + kSealedHashBytes;

Status invalid(const char* what) { return {Code::invalid_argument, what}; }

// Finds the mode of most of the coded bytes.
class ModeTally {
 public:
  void add(std::optional<Mode> mode, size_t bytes) noexcept {
    if (mode == Mode::off) return;
    coded_ = true;
    if (mode.has_value() && static_cast<size_t>(*mode) < bytes_.size()) bytes_[static_cast<size_t>(*mode)] += bytes;
  }
  [[nodiscard]] std::optional<Mode> most() const noexcept {
    if (!coded_) return Mode::off;
    const auto lossy = bytes_.begin() + kFirstLossy;
    auto best = std::max_element(lossy, bytes_.end());
    if (*best == 0) best = std::max_element(bytes_.begin(), lossy);
    if (*best == 0) return std::nullopt;
    return static_cast<Mode>(best - bytes_.begin());
  }

 private:
  static constexpr size_t kFirstLossy = 16;
  static_assert(is_lossy(static_cast<Mode>(kFirstLossy)) && !is_lossy(static_cast<Mode>(kFirstLossy - 1)));
  std::array<uint64_t, 32> bytes_{};
  bool coded_ = false;
};

class Encoder {
 public:
  Encoder(const HeadView& head, ConstBytes payload, const RecordForm& form, const Recipe& recipe, MutableBytes out_head,
          MutableBytes out_payload, Workspace& workspace) noexcept
      : plain_(head),
        payload_(payload),
        form_(form),
        recipe_(recipe),
        out_head_(out_head),
        out_payload_(out_payload),
        workspace_(workspace),
        header_(head.header()),
        opaque_((header_.flags & kOpaque) != 0),
        mode_of_all_(recipe.mode_of_all()) {}

  Result<CodedSizes> encode(const KeyRing* keys, Random& random) {
    if (Status fault = check(keys != nullptr); !fault.ok()) return fault;
    if (keys != nullptr) {
      if (Status started = start_seal(*keys, random); !started.ok()) return started;
    } else if (!anything_to_code()) {
      return nothing_gained();
    }
    const CopiesOrdered ordered;
    for (uint32_t i = 0; i < header_.leaf_count; ++i) {
      if (Status done = put(i); !done.ok()) return done;
    }
    if (sealer_ == nullptr && at_ >= header_.raw_bytes) return nothing_gained();
    return finish(random);
  }

 private:
  static Status nothing_gained() { return {Code::again, "coding does not make this record smaller"}; }

  [[nodiscard]] Status check(bool sealing) const {
    if (is_coded(plain_)) return invalid("a record to code is coded already");
    if (payload_.size() != header_.stored_bytes) return invalid("a record to code: not the payload that its head says");
    if (form_.planes == 0) return invalid("a record to code: a form of no planes");
    if (out_head_.size() < coded_head_room(plain_.head_bytes()) ||
        out_payload_.size() < coded_room(payload_.size(), header_.leaf_count)) {
      return invalid("a record to code: target too small");
    }
    if (reinterpret_cast<uintptr_t>(out_payload_.data()) % kCodedAlign != 0) {
      return invalid("a record to code: target not aligned");
    }
    if (!sealing) return {};
    if (header_.attribute_bytes > kMaxAttributeBytes - kSealedHeadBytes) {
      return invalid("a record to seal: attributes above 4076 bytes");
    }
    // Offsets have 32 bits.
    if (header_.raw_bytes + uint64_t{header_.leaf_count} * kSealedLeafBytes > UINT32_MAX) {
      return invalid("a record to seal: 4 GiB");
    }
    return {};
  }

  [[nodiscard]] bool anything_to_code() const noexcept {
    for (uint32_t i = 0; i < header_.leaf_count; ++i) {
      if (mode(i) != Mode::off) return true;
    }
    return false;
  }

  // Leaves of an opaque record are cut at 64 KiB only: their number tells neither layer nor plane.
  [[nodiscard]] Mode mode(uint32_t leaf) const noexcept {
    return opaque_ ? mode_of_all_ : recipe_.mode(form_.layer(leaf), form_.plane(leaf));
  }
  [[nodiscard]] LeafForm form(uint32_t leaf) const noexcept {
    return opaque_ ? form_.leaf_form() : form_.leaf_form(leaf);
  }

  Status start_seal(const KeyRing& keys, Random& random) {
    stage_ = workspace_.stage();
    if (stage_ == nullptr) return {Code::no_memory, "no memory to seal with"};
    // The key is derived from the record id, and nonces count leaves: sealing twice under one id would use a nonce
    // twice.
    random.fill(std::as_writable_bytes(std::span(header_.record_id)));
    header_.flags |= kSealed;
    header_.key_id = keys.sealing_key();
    header_.attribute_bytes += static_cast<uint32_t>(kSealedHeadBytes);
    sealer_ = &workspace_.sealer();
    return sealer_->start(keys, header_);
  }

  Status put(uint32_t index) {
    const Leaf plain = plain_.leaf(index);
    const ConstBytes raw = payload_.subspan(plain.offset, plain.raw_bytes);
    const Mode how = mode(index);
    std::byte* const to = out_payload_.data() + at_;
    std::byte* const coded = sealer_ != nullptr ? stage_ : out_payload_.data() + round_up(at_, kCodedAlign);
    Encoded encoded;
    if (how != Mode::off) {
      // Decoding compares with the hash of the original bytes. Lossy coding changes them, so they are checked here.
      if (is_lossy(how) && leaf_hash(raw) != plain.hash) return damaged("a leaf to code is not what its hash says");
      Result<Encoded> result =
          encode_leaf(form(index), how, raw, plain.hash, {coded, encode_room(raw.size())}, workspace_);
      if (!result.ok()) return result.status();
      encoded = result.value();
    }
    Leaf leaf = plain;
    leaf.offset = static_cast<uint32_t>(at_);
    leaf.codec = encoded.codec;
    if (sealer_ != nullptr) {
      const SealedLeaf place{index, plain.raw_bytes, plain.offset, encoded.codec};
      const ConstBytes hash = std::as_bytes(std::span(&plain.hash, 1));
      const bool is_raw = encoded.codec == LeafCodec::raw;
      const ConstBytes body = is_raw ? raw : ConstBytes(coded, encoded.bytes);
      leaf.stored_bytes = static_cast<uint32_t>(body.size() + (is_raw ? kSealedLeafBytes : kSealTagBytes));
      const Status sealed =
          sealer_->seal(place, body, is_raw ? hash : ConstBytes(), MutableBytes(to, leaf.stored_bytes));
      if (!sealed.ok()) return sealed;
      leaf.hash = leaf_hash({to, leaf.stored_bytes});
    } else if (encoded.codec == LeafCodec::raw) {
      if (copy_hashed(to, raw.data(), raw.size(), CopyHint::automatic, CopyOrder::later) != plain.hash) {
        return damaged("a leaf to code is not what its hash says");
      }
    } else {
      leaf.stored_bytes = encoded.bytes;
      if (coded != to) std::memmove(to, coded, encoded.bytes);
      leaf.hash = leaf_hash({to, encoded.bytes});
    }
    put_leaf(out_head_, index, leaf);
    at_ += leaf.stored_bytes;
    lossy_ = lossy_ || encoded.lossy;
    // A lossy mode that does not fit a leaf has coded it with `standard`.
    const Mode done = encoded.codec == LeafCodec::raw   ? Mode::off
                      : is_lossy(how) && !encoded.lossy ? Mode::standard
                                                        : how;
    modes_.add(done, raw.size());
    sizes_.difference += encoded.difference;
    sizes_.value += encoded.value;
    return {};
  }

  Result<CodedSizes> finish(Random& random) {
    header_.stored_bytes = at_;
    if (lossy_) header_.flags |= kLossy;
    if (lossy_ && sealer_ == nullptr) random.fill(std::as_writable_bytes(std::span(header_.record_id)));
    const size_t table_end = codec::head_bytes(header_.leaf_count, 0);
    const MutableBytes attributes = out_head_.subspan(table_end, header_.attribute_bytes);
    const ConstBytes plain = plain_.attributes();
    if (sealer_ != nullptr) {
      store_le(attributes.data(), static_cast<uint16_t>(Attribute::sealed));
      store_le(attributes.data() + 2, static_cast<uint16_t>(attributes.size() - 4));
      const Status sealed =
          sealer_->seal_head(header_fields(header_), out_head_.subspan(kHeaderBytes, table_end - kHeaderBytes), plain,
                             attributes.subspan(4));
      if (!sealed.ok()) return sealed;
    } else if (!plain.empty()) {
      std::memcpy(attributes.data(), plain.data(), plain.size());
    }
    const Result<size_t> written = finish_head(header_, out_head_);
    if (!written.ok()) return written.status();
    sizes_.head_bytes = written.value();
    sizes_.payload_bytes = at_;
    sizes_.lossy = (header_.flags & kLossy) != 0;
    sizes_.mode = modes_.most().value_or(Mode::off);
    return sizes_;
  }

  const HeadView& plain_;
  ConstBytes payload_;
  const RecordForm& form_;
  const Recipe& recipe_;
  MutableBytes out_head_;
  MutableBytes out_payload_;
  Workspace& workspace_;
  Header header_;  // of the coded record
  const bool opaque_;
  const Mode mode_of_all_;  // where opaque
  ModeTally modes_;
  std::byte* stage_ = nullptr;  // memory for one leaf between coder and sealer
  Sealer* sealer_ = nullptr;    // null: not sealed
  uint64_t at_ = 0;             // position of the next leaf
  bool lossy_ = false;          // by this coding
  CodedSizes sizes_;
};

class Decoder {
 public:
  Decoder(const HeadView& coded, const DecodeRules& rules, MutableBytes out_head, MutableBytes out_payload,
          Workspace& workspace) noexcept
      : coded_(coded),
        rules_(rules),
        out_head_(out_head),
        out_payload_(out_payload),
        workspace_(workspace),
        header_(coded.header()) {}

  // out_payload: target of the deciphered leaves.
  Status open(ConstBytes stored, std::span<OpenedLeaf> out_leaves) {
    const bool sealed = (header_.flags & kSealed) != 0;
    if (stored.size() != header_.stored_bytes) return damaged("a record to open: not the payload that its head says");
    if (out_leaves.size() != header_.leaf_count || out_head_.size() < plain_head_bytes(coded_) ||
        out_payload_.size() != (sealed ? opened_bytes(coded_) : 0)) {
      return invalid("a record to open: target of the wrong size");
    }
    if (Status allowed = permitted(coded_, rules_); !allowed.ok()) return allowed;
    if (sealed) {
      if (Status opened = open_head(); !opened.ok()) return opened;
    }
    uint64_t raw_at = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < header_.leaf_count; ++i) {
      const Leaf leaf = coded_.leaf(i);
      uint64_t hash = leaf.hash;
      out_leaves[i] = {at, leaf.stored_bytes, leaf.codec, sealed || rules_.stored_checked, leaf.hash};
      const SealedLeaf place{i, leaf.raw_bytes, static_cast<uint32_t>(raw_at), leaf.codec};
      const Status opened = open_leaf(leaf, place, stored.subspan(leaf.offset, leaf.stored_bytes), out_leaves[i], hash);
      if (!opened.ok()) return opened;
      put_leaf(out_head_, i, {static_cast<uint32_t>(raw_at), leaf.raw_bytes, leaf.raw_bytes, LeafCodec::raw, 0, hash});
      raw_at += leaf.raw_bytes;
      at += out_leaves[i].bytes;
    }
    return write_head();
  }

  Status decode(ConstBytes stored, uint32_t first, uint32_t n) {
    if (first > header_.leaf_count || n > header_.leaf_count - first) {
      return invalid("a record to decode: leaves beyond its end");
    }
    if (out_payload_.size() != header_.raw_bytes ||
        (!out_head_.empty() && out_head_.size() < plain_head_bytes(coded_))) {
      return invalid("a record to decode: target of the wrong size");
    }
    if (Status allowed = permitted(coded_, rules_); !allowed.ok()) return allowed;
    if ((header_.flags & kSealed) != 0) {
      if (Status opened = open_head(); !opened.ok()) return opened;
    }
    const uint32_t end = n == 0 ? header_.leaf_count : first + n;
    if (Status done = take_leaves(stored, first, end); !done.ok()) return done;
    return out_head_.empty() ? Status() : write_head();
  }

  [[nodiscard]] std::optional<Mode> mode() const noexcept { return modes_.most(); }

 private:
  Status open_head() {
    stage_ = workspace_.stage();
    if (stage_ == nullptr) return {Code::no_memory, "no memory to open a seal with"};
    sealer_ = &workspace_.sealer();
    if (Status started = sealer_->start(*rules_.keys, header_); !started.ok()) return started;
    const ConstBytes sealed = coded_.attributes();
    if (sealed.size() < kSealedHeadBytes ||
        load_le<uint16_t>(sealed.data()) != static_cast<uint16_t>(Attribute::sealed) ||
        load_le<uint16_t>(sealed.data() + 2) != sealed.size() - 4) {
      return damaged("a sealed record whose attributes are not");
    }
    attribute_bytes_ = sealed.size() - kSealedHeadBytes;
    return sealer_->open_head(header_fields(header_), coded_.table(), sealed.subspan(4),
                              MutableBytes(attributes_).first(attribute_bytes_));
  }

  Status take_leaves(ConstBytes stored, uint32_t first, uint32_t end) {
    const CopiesOrdered ordered;
    uint64_t raw_at = 0;
    for (uint32_t i = 0; i < header_.leaf_count; ++i) {
      const Leaf leaf = coded_.leaf(i);
      const MutableBytes out = out_payload_.subspan(raw_at, leaf.raw_bytes);
      uint64_t hash = leaf.hash;
      if (i >= first && i < end) {
        if (stored.size() < leaf.stored_bytes) return damaged("a record to decode: fewer bytes than its leaves have");
        const SealedLeaf place{i, leaf.raw_bytes, static_cast<uint32_t>(raw_at), leaf.codec};
        const Status taken = take(leaf, place, stored.first(leaf.stored_bytes), out, hash);
        if (!taken.ok()) return taken;
        stored = stored.subspan(leaf.stored_bytes);
      } else if (!out_head_.empty() && (leaf.codec != LeafCodec::raw || sealer_ != nullptr)) {
        hash = load_le<uint64_t>(out_head_.data() + kHeaderBytes + kLeafEntryBytes * i + kLeafHashAt);
      }
      if (!out_head_.empty()) {
        put_leaf(out_head_, i,
                 {static_cast<uint32_t>(raw_at), leaf.raw_bytes, leaf.raw_bytes, LeafCodec::raw, 0, hash});
      }
      raw_at += leaf.raw_bytes;
    }
    return stored.empty() ? Status() : damaged("a record to decode: more bytes than its leaves have");
  }

  // `hash`: in: of the stored bytes; out: of the decoded ones.
  Status take(const Leaf& leaf, const SealedLeaf& place, ConstBytes stored, MutableBytes out, uint64_t& hash) {
    if (leaf.codec == LeafCodec::raw && sealer_ == nullptr) {
      const uint64_t found =
          copy_hashed(out.data(), stored.data(), stored.size(), CopyHint::automatic, CopyOrder::later);
      return found == hash ? Status() : damaged("a leaf that is not what its hash says");
    }
    if (leaf.codec == LeafCodec::raw) {
      const Status opened = sealer_->open(place, stored, out, std::as_writable_bytes(std::span(&hash, 1)));
      if (!opened.ok()) return opened;
      return leaf_hash(out) == hash ? Status() : damaged("a sealed leaf that was damaged before it was sealed");
    }
    if (sealer_ != nullptr) {
      const MutableBytes opened(stage_, stored.size() - kSealTagBytes);
      if (Status status = sealer_->open(place, stored, opened, {}); !status.ok()) return status;
      stored = opened;
    } else if (!rules_.stored_checked && leaf_hash(stored) != hash) {
      return damaged("a leaf that is not what its hash says");
    }
    const auto said = raw_hash_of(stored);
    if (!said) return damaged("a coded leaf that is too short");
    if (Status decoded = decode_leaf(leaf.codec, stored, out, workspace_); !decoded.ok()) return decoded;
    modes_.add(mode_of(leaf.codec, stored), out.size());
    hash = *said;
    return leaf_hash(out) == hash ? Status() : damaged("a coded leaf that does not decode to what went in");
  }

  // `hash`: in: of the stored bytes; out: of the bytes that decoding must give.
  Status open_leaf(const Leaf& leaf, const SealedLeaf& place, ConstBytes stored, OpenedLeaf& out, uint64_t& hash) {
    const bool is_raw = leaf.codec == LeafCodec::raw;
    if (sealer_ != nullptr) {
      const size_t over = is_raw ? kSealedLeafBytes : kSealTagBytes;
      if (stored.size() <= over) return damaged("a sealed leaf that is too short");
      const MutableBytes body = out_payload_.subspan(out.offset, stored.size() - over);
      const MutableBytes more = is_raw ? std::as_writable_bytes(std::span(&hash, 1)) : MutableBytes();
      if (Status status = sealer_->open(place, stored, body, more); !status.ok()) return status;
      stored = body;
      out.bytes = static_cast<uint32_t>(body.size());
    }
    if (is_raw) return stored.size() == leaf.raw_bytes ? Status() : damaged("a raw leaf of another size");
    const Result<Frame> frame = read_frame(leaf.codec, stored, leaf.raw_bytes);
    if (frame.ok()) {
      hash = frame.value().raw_hash;
      return {};
    }
    // A newer version is reported only if the leaf's bytes match their hash; otherwise the leaf is damaged.
    const bool stands = out.verified || leaf_hash(stored) == out.hash;
    return stands ? frame.status() : damaged("a leaf that is not what its hash says");
  }

  Status write_head() {
    Header plain = header_;
    const ConstBytes attributes =
        sealer_ == nullptr ? coded_.attributes() : ConstBytes(attributes_).first(attribute_bytes_);
    if (sealer_ != nullptr) plain.key_id = 0;
    plain.flags = static_cast<uint16_t>(plain.flags & ~kSealed);
    plain.stored_bytes = plain.raw_bytes;
    plain.attribute_bytes = static_cast<uint32_t>(attributes.size());
    if (!attributes.empty()) {
      std::memcpy(out_head_.data() + codec::head_bytes(plain.leaf_count, 0), attributes.data(), attributes.size());
    }
    const Result<size_t> written = finish_head(plain, out_head_);
    return written.ok() ? Status() : damaged(written.status().what());
  }

  static constexpr size_t kLeafHashAt = 16;  // in an entry of the leaf table

  const HeadView& coded_;
  const DecodeRules& rules_;
  MutableBytes out_head_;
  MutableBytes out_payload_;
  Workspace& workspace_;
  Header header_;
  ModeTally modes_;
  std::byte* stage_ = nullptr;  // memory for one leaf between coder and sealer
  Sealer* sealer_ = nullptr;    // null: not sealed
  std::array<std::byte, kMaxAttributeBytes> attributes_;
  size_t attribute_bytes_ = 0;
};

}  // namespace

uint64_t coded_room(uint64_t payload_bytes, uint32_t leaves) noexcept {
  constexpr uint64_t kBehind = encode_room(0) + kCodedAlign;
  return round_up(payload_bytes + uint64_t{leaves} * kSealedLeafBytes + kBehind, kIoUnit);
}

size_t plain_head_bytes(const HeadView& coded) noexcept {
  const Header& header = coded.header();
  const bool longer = (header.flags & kSealed) != 0 && header.attribute_bytes >= kSealedHeadBytes;
  return coded.head_bytes() - (longer ? kSealedHeadBytes : 0);
}

Status permitted(const HeadView& head, const DecodeRules& rules) {
  const Header& header = head.header();
  if ((header.flags & kLossy) != 0 && !rules.allow_lossy) {
    return {Code::not_permitted, "a lossy record, and its reader did not allow that"};
  }
  if ((header.flags & kSealed) == 0) {
    if (rules.keys == nullptr) return {};
    return {Code::not_permitted, "a record that is not sealed, where all must be"};
  }
  if (rules.keys == nullptr) {
    return {Code::mismatch, "a sealed record, and no key file", "key id " + std::to_string(header.key_id)};
  }
  return rules.keys->has(header.key_id) ? Status() : unknown_key(header.key_id);
}

Result<CodedSizes> encode_record(const HeadView& head, ConstBytes payload, const RecordForm& form, const Recipe& recipe,
                                 const KeyRing* keys, Random& random, MutableBytes out_head, MutableBytes out_payload,
                                 Workspace& workspace) {
  return Encoder(head, payload, form, recipe, out_head, out_payload, workspace).encode(keys, random);
}

uint64_t opened_bytes(const HeadView& coded) noexcept {
  const Header& header = coded.header();
  if ((header.flags & kSealed) == 0) return header.stored_bytes;
  uint64_t over = 0;
  for (uint32_t i = 0; i < header.leaf_count; ++i) {
    over += coded.leaf(i).codec == LeafCodec::raw ? kSealedLeafBytes : kSealTagBytes;
  }
  return header.stored_bytes > over ? header.stored_bytes - over : 0;
}

Status open_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, MutableBytes out_head,
                   MutableBytes opened, std::span<OpenedLeaf> out_leaves, Workspace& workspace) {
  return Decoder(coded, rules, out_head, opened, workspace).open(stored, out_leaves);
}

// A coded leaf is never longer than the plain one. So if the last leaf ends at the end of the room, decoded bytes end
// at most where the next coded leaf begins. A leaf's own coded bytes may overlap its target, so they are moved out
// first.
Status decode_opened(const HeadView& plain, std::span<const OpenedLeaf> leaves, MutableBytes room,
                     Workspace& workspace) {
  const Header& header = plain.header();
  if (leaves.size() != header.leaf_count || header.raw_bytes > room.size()) {
    return invalid("a record that was opened: not its leaves, or no room");
  }
  if (leaves.empty()) return {};
  std::byte* const stage = workspace.stage();
  if (stage == nullptr) return {Code::no_memory, "no memory to decode with"};
  uint64_t end = leaves.front().offset;
  bool apart = true;
  for (uint32_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].offset != end || leaves[i].bytes > plain.leaf(i).raw_bytes) {
      return invalid("a record that was opened: leaves that do not follow one another");
    }
    apart = apart && plain.leaf(i).offset <= leaves[i].offset;
    end += leaves[i].bytes;
  }
  if (end > room.size()) return invalid("a record that was opened: leaves beyond its room");
  const uint64_t begin = leaves.front().offset;
  const uint64_t shift = apart ? 0 : room.size() - end;
  if (shift != 0) std::memmove(room.data() + begin + shift, room.data() + begin, end - begin);
  for (uint32_t i = 0; i < leaves.size(); ++i) {
    const OpenedLeaf& leaf = leaves[i];
    const Leaf target = plain.leaf(i);
    const MutableBytes out = room.subspan(target.offset, target.raw_bytes);
    const ConstBytes coded(stage, leaf.bytes);
    std::memcpy(stage, room.data() + leaf.offset + shift, leaf.bytes);
    if (leaf.codec == LeafCodec::raw) {
      if (leaf.bytes != target.raw_bytes) return invalid("a record that was opened: a raw leaf of another size");
      std::memcpy(out.data(), coded.data(), coded.size());
    } else {
      if (!leaf.verified && leaf_hash(coded) != leaf.hash) return damaged("a leaf that is not what its hash says");
      if (Status decoded = decode_leaf(leaf.codec, coded, out, workspace); !decoded.ok()) return decoded;
    }
    if (leaf_hash(out) != target.hash) return damaged("a coded leaf that does not decode to what went in");
  }
  return {};
}

Status decode_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, uint32_t first, uint32_t n,
                     MutableBytes out_head, MutableBytes out_payload, Workspace& workspace,
                     std::optional<Mode>* out_mode) {
  Decoder decoder(coded, rules, out_head, out_payload, workspace);
  Status status = decoder.decode(stored, first, n);
  if (out_mode != nullptr) *out_mode = decoder.mode();
  return status;
}

}  // namespace kvbm::codec
