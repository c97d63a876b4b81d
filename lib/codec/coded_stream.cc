#include "codec/coded_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/frame.h"
#include "codec/leaf_hash.h"
#include "codec/record.h"

namespace kvbm::codec {
namespace {

// Byte offsets of the header; README.md has the table.
enum Offset : size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kElementAt = 5,
  kModeAt = 6,
  kFlagsAt = 7,
  kRawBytesAt = 8,
  kStoredBytesAt = 16,
  kLeavesAt = 24,
  kRowAt = 28,
  kRowsAt = 32,
  kReserved36At = 36,
  kDifferenceAt = 40,
  kValueAt = 48,
};
static_assert(kValueAt + 8 == kStreamHeaderBytes);
constexpr size_t kChecksumBytes = 8;
constexpr uint8_t kLossyFlag = 1;
constexpr uint64_t kAlign = 64;

uint64_t stream_head_bytes(uint64_t leaves) noexcept {
  return round_up(kStreamHeaderBytes + leaves * kStreamLeafBytes + kChecksumBytes, kAlign);
}

// Where the checksum is: of everything before it.
uint64_t checksum_at(uint64_t leaves) noexcept { return kStreamHeaderBytes + leaves * kStreamLeafBytes; }

struct Entry {
  uint32_t stored = 0;
  uint32_t raw = 0;
  LeafCodec codec = LeafCodec::raw;
  uint64_t hash = 0;  // of the decoded bytes
};

void put_entry(std::byte* at, const Entry& entry) noexcept {
  store_le(at, entry.stored);
  store_le(at + 4, entry.raw);
  store_le(at + 8, static_cast<uint16_t>(entry.codec));
  store_le<uint16_t>(at + 10, 0);
  store_le<uint32_t>(at + 12, 0);
  store_le(at + 16, entry.hash);
}

Entry get_entry(const std::byte* at) noexcept {
  return {load_le<uint32_t>(at), load_le<uint32_t>(at + 4), static_cast<LeafCodec>(load_le<uint16_t>(at + 8)),
          load_le<uint64_t>(at + 16)};
}

bool all_zero(const std::byte* at, size_t n) noexcept {
  return std::all_of(at, at + n, [](std::byte b) { return b == std::byte{0}; });
}

// One leaf on its way into a stream.
struct Coder {
  const LeafForm& form;
  Mode mode;
  StreamWorkspace& workspace;
  StreamInfo& info;

  // Writes the leaf to `to`, which is 64-byte aligned in the stream and has encode_room() of room.
  Result<Entry> leaf(ConstBytes raw, std::byte* to) noexcept;

 private:
  Result<Entry> coded(ConstBytes raw, std::byte* to) noexcept;
};

Result<Entry> Coder::leaf(ConstBytes raw, std::byte* to) noexcept {
  if (mode != Mode::off) {
    auto made = coded(raw, to);
    if (!made.ok() || made.value().codec != LeafCodec::raw) return made;
  }
  Entry entry;
  entry.stored = entry.raw = static_cast<uint32_t>(raw.size());
  entry.hash = copy_hashed(to, raw.data(), raw.size(), CopyHint::cached);
  ++info.raw_leaves;
  return entry;
}

Result<Entry> Coder::coded(ConstBytes raw, std::byte* to) noexcept {
  const size_t room = encode_room(raw.size());
  const bool aligned = reinterpret_cast<uintptr_t>(to) % kAlign == 0;
  std::byte* leaf = aligned ? to : workspace.leaf.take(encode_room(kMaxLeafBytes));
  if (leaf == nullptr) return Status(Code::no_memory, "no memory for the codec's work space");
  const uint64_t hash = leaf_hash(raw);
  const auto made = encode_leaf(form, mode, raw, hash, {leaf, room}, workspace.codec);
  if (!made.ok()) return made.status();
  const Encoded& encoded = made.value();
  Entry entry;
  entry.codec = encoded.codec;
  if (encoded.codec == LeafCodec::raw) return entry;
  if (!aligned) std::memcpy(to, leaf, encoded.bytes);
  entry.stored = encoded.bytes;
  entry.raw = static_cast<uint32_t>(raw.size());
  entry.hash = encoded.lossy ? raw_hash_of({to, encoded.bytes}).value_or(0) : hash;
  info.lossy = info.lossy || encoded.lossy;
  info.difference += encoded.difference;
  info.value += encoded.value;
  return entry;
}

void put_head(std::byte* head, const StreamInfo& info) noexcept {
  store_le(head + kMagicAt, kStreamMagic);
  store_le(head + kVersionAt, kStreamVersion);
  store_le(head + kElementAt, static_cast<uint8_t>(info.form.element));
  store_le(head + kModeAt, info.mode);
  store_le(head + kFlagsAt, info.lossy ? kLossyFlag : uint8_t{0});
  store_le(head + kRawBytesAt, info.raw_bytes);
  store_le(head + kStoredBytesAt, info.stored_bytes);
  store_le(head + kLeavesAt, info.leaves);
  store_le(head + kRowAt, info.form.row);
  store_le(head + kRowsAt, info.form.rows);
  store_le<uint32_t>(head + kReserved36At, 0);
  store_le(head + kDifferenceAt, std::bit_cast<uint64_t>(info.difference));
  store_le(head + kValueAt, std::bit_cast<uint64_t>(info.value));
  const uint64_t at = checksum_at(info.leaves);
  store_le(head + at, leaf_hash({head, at}));
  const uint64_t end = at + kChecksumBytes;
  std::memset(head + end, 0, stream_head_bytes(info.leaves) - end);
}

// The leaf table against the header; fills lossy and raw_leaves.
Status check_table(ConstBytes bytes, StreamInfo& info) noexcept {
  constexpr const char* kText = "damaged: the leaf table of the coded buffer does not agree with its sizes";
  uint64_t raw = 0;
  uint64_t stored = stream_head_bytes(info.leaves);
  for (uint64_t i = 0; i < info.leaves; ++i) {
    const std::byte* at = bytes.data() + kStreamHeaderBytes + i * kStreamLeafBytes;
    const Entry entry = get_entry(at);
    if (static_cast<uint16_t>(entry.codec) > static_cast<uint16_t>(LeafCodec::delta)) {
      return Status(Code::newer_version, "the coded buffer uses a codec that this version does not know");
    }
    const bool plain = entry.codec == LeafCodec::raw;
    if (entry.raw == 0 || entry.raw > kMaxLeafBytes || entry.stored == 0 || !all_zero(at + 10, 6) ||
        (plain ? entry.stored != entry.raw : entry.stored >= entry.raw)) {
      return Status(Code::damaged, kText);
    }
    raw += entry.raw;
    stored += round_up(entry.stored, kAlign);
    info.raw_leaves += plain ? 1 : 0;
    info.lossy = info.lossy || is_lossy(entry.codec);
  }
  return raw == info.raw_bytes && stored == info.stored_bytes ? Status() : Status(Code::damaged, kText);
}

StreamInfo get_head(const std::byte* head) noexcept {
  StreamInfo info;
  info.form.element = static_cast<Element>(load_le<uint8_t>(head + kElementAt));
  info.form.row = load_le<uint32_t>(head + kRowAt);
  info.form.rows = load_le<uint32_t>(head + kRowsAt);
  info.mode = load_le<uint8_t>(head + kModeAt);
  info.leaves = load_le<uint32_t>(head + kLeavesAt);
  info.raw_bytes = load_le<uint64_t>(head + kRawBytesAt);
  info.stored_bytes = load_le<uint64_t>(head + kStoredBytesAt);
  info.difference = std::bit_cast<double>(load_le<uint64_t>(head + kDifferenceAt));
  info.value = std::bit_cast<double>(load_le<uint64_t>(head + kValueAt));
  return info;
}

}  // namespace

StreamCut::StreamCut(const LeafForm& form, uint64_t raw_bytes) noexcept
    : form_(form), raw_bytes_(raw_bytes), unit_(kMaxLeafBytes), step_(kMaxLeafBytes) {
  const uint64_t row = uint64_t{form.row} * element_bytes(form.element);
  if (row != 0 && row <= kMaxLeafBytes) {
    unit_ = step_ = kMaxLeafBytes / row * row;
    // Neither can overflow: a row is at most 64 KiB and there are at most 2^32 of them.
    const uint64_t head = row * form.rows;
    if (head > kMaxLeafBytes) {
      const uint64_t pieces = (head + step_ - 1) / step_;
      step_ = (form.rows + pieces - 1) / pieces * row;
      unit_ = head;
      form_.rows = 0;
    } else if (head != 0) {
      unit_ = step_ = kMaxLeafBytes / head * head;
    }
  } else {
    form_.row = form_.rows = 0;
  }
  const uint64_t each = (unit_ + step_ - 1) / step_;
  leaves_ = raw_bytes / unit_ * each + (raw_bytes % unit_ + step_ - 1) / step_;
}

uint32_t StreamCut::next(uint64_t at) const noexcept {
  const uint64_t in_unit = at % unit_;
  return static_cast<uint32_t>(std::min({step_, unit_ - in_unit, raw_bytes_ - at}));
}

uint64_t error_ppb(double difference, double value) noexcept {
  constexpr double kMost = 9.2e18;
  if (!(difference > 0)) return 0;
  const double ppb = difference / value * 1e9;
  if (!(ppb < kMost)) return uint64_t{1} << 63;
  const auto whole = static_cast<uint64_t>(ppb);
  return static_cast<double>(whole) < ppb ? whole + 1 : whole;
}

uint64_t stream_room(const LeafForm& form, uint64_t raw_bytes) noexcept {
  const uint64_t leaves = StreamCut(form, raw_bytes).leaves();
  return stream_head_bytes(leaves) + raw_bytes + leaves * (kAlign - 1) + encode_room(0);
}

Result<uint64_t> encode_stream(const LeafForm& form, Mode mode, ConstBytes raw, MutableBytes out,
                               StreamWorkspace& workspace) noexcept {
  const StreamCut cut(form, raw.size());
  if (raw.size() > kMaxStreamBytes || cut.leaves() > UINT32_MAX) {
    return Status(Code::invalid_argument, "a buffer is coded up to 2^40 bytes and 2^32 leaves");
  }
  if (out.size() < stream_room(form, raw.size())) return Status(Code::no_room, "too little room for the coded buffer");
  StreamInfo info;
  info.form = form;
  info.mode = static_cast<uint8_t>(mode);
  info.leaves = static_cast<uint32_t>(cut.leaves());
  info.raw_bytes = raw.size();
  Coder coder{cut.leaf_form(), mode, workspace, info};
  uint64_t at = stream_head_bytes(info.leaves);
  std::byte* entry_at = out.data() + kStreamHeaderBytes;
  for (uint64_t from = 0; from < raw.size(); entry_at += kStreamLeafBytes) {
    const uint32_t bytes = cut.next(from);
    const auto entry = coder.leaf(raw.subspan(from, bytes), out.data() + at);
    if (!entry.ok()) return entry.status();
    put_entry(entry_at, entry.value());
    const uint64_t end = at + entry.value().stored;
    from += bytes;
    at = round_up(end, kAlign);
    std::memset(out.data() + end, 0, at - end);
  }
  info.stored_bytes = at;
  put_head(out.data(), info);
  return at;
}

Result<StreamPeek> peek_stream(ConstBytes bytes) noexcept {
  if (bytes.size() < kLeavesAt || load_le<uint32_t>(bytes.data()) != kStreamMagic) {
    return Status(Code::damaged, "not a coded buffer");
  }
  if (load_le<uint8_t>(bytes.data() + kVersionAt) != kStreamVersion) {
    return Status(Code::newer_version, "a coded buffer of a version that is not known here");
  }
  return StreamPeek{load_le<uint64_t>(bytes.data() + kRawBytesAt), load_le<uint64_t>(bytes.data() + kStoredBytesAt)};
}

Result<StreamView> StreamView::parse(ConstBytes bytes) noexcept {
  const auto peek = peek_stream(bytes);
  if (!peek.ok()) return peek.status();
  if (bytes.size() < kStreamHeaderBytes + kChecksumBytes || peek.value().stored_bytes != bytes.size()) {
    return Status(Code::damaged, "damaged: the coded buffer is not as long as it says");
  }
  StreamView view;
  view.bytes_ = bytes;
  view.info_ = get_head(bytes.data());
  StreamInfo& info = view.info_;
  const uint64_t head = stream_head_bytes(info.leaves);
  if (head > bytes.size() || info.raw_bytes > kMaxStreamBytes) {
    return Status(Code::damaged, "damaged: the coded buffer's sizes are impossible");
  }
  const uint64_t at = checksum_at(info.leaves);
  if (load_le<uint64_t>(bytes.data() + at) != leaf_hash(bytes.first(at)) ||
      !all_zero(bytes.data() + at + kChecksumBytes, head - at - kChecksumBytes)) {
    return Status(Code::damaged, "damaged: the head of the coded buffer was changed");
  }
  const uint8_t flags = load_le<uint8_t>(bytes.data() + kFlagsAt);
  if (info.form.element > Element::int8 || (flags & ~kLossyFlag) != 0 ||
      load_le<uint32_t>(bytes.data() + kReserved36At) != 0) {
    return Status(Code::newer_version, "a coded buffer with fields that are not known here");
  }
  Status table = check_table(bytes, info);
  if (!table.ok()) return table;
  if (info.lossy != (flags != 0)) return Status(Code::damaged, "damaged: the coded buffer hides that it is lossy");
  return view;
}

StreamView::Leaf StreamView::leaf(uint32_t leaf) const noexcept {
  const Entry entry = get_entry(bytes_.data() + kStreamHeaderBytes + uint64_t{leaf} * kStreamLeafBytes);
  return {entry.codec, entry.raw};
}

uint64_t StreamView::checksum() const noexcept { return load_le<uint64_t>(bytes_.data() + checksum_at(info_.leaves)); }

Status StreamView::decode(bool allow_lossy, MutableBytes out, StreamWorkspace& workspace) const noexcept {
  if (info_.lossy && !allow_lossy) {
    return Status(Code::not_permitted, "the coded buffer is lossy, and lossy bytes were not allowed");
  }
  if (out.size() < info_.raw_bytes) return Status(Code::no_room, "too little room for the decoded bytes");
  uint64_t at = stream_head_bytes(info_.leaves);
  uint64_t to = 0;
  for (uint64_t i = 0; i < info_.leaves; ++i) {
    const Entry entry = get_entry(bytes_.data() + kStreamHeaderBytes + i * kStreamLeafBytes);
    const std::byte* stored = bytes_.data() + at;
    std::byte* raw = out.data() + to;
    uint64_t hash = 0;
    if (entry.codec == LeafCodec::raw) {
      hash = copy_hashed(raw, stored, entry.raw, CopyHint::cached);
    } else {
      Status done = decode_leaf(entry.codec, {stored, entry.stored}, {raw, entry.raw}, workspace.codec);
      if (!done.ok()) return done;
      hash = leaf_hash({raw, entry.raw});
    }
    const uint64_t padding = round_up(entry.stored, kAlign) - entry.stored;
    if (hash != entry.hash || !all_zero(stored + entry.stored, padding)) {
      return Status(Code::damaged, "damaged: a leaf of the coded buffer does not have the bytes that were coded");
    }
    to += entry.raw;
    at += entry.stored + padding;
  }
  return {};
}

}  // namespace kvbm::codec
