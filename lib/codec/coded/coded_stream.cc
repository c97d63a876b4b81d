#include "codec/coded/coded_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/hash/leaf_hash.h"
#include "codec/leaf/frame.h"
#include "codec/record/record.h"

namespace kvbm::codec {
namespace {

// Byte offsets of the header; codec/README.md has the table.
enum StreamOffset : size_t {
  kStreamMagicAt = 0,
  kStreamVersionAt = 4,
  kStreamElementAt = 5,
  kStreamModeAt = 6,
  kStreamFlagsAt = 7,
  kStreamRawBytesAt = 8,
  kStreamStoredBytesAt = 16,
  kStreamLeavesAt = 24,
  kStreamRowAt = 28,
  kStreamRowsAt = 32,
  kStreamReserved36At = 36,
  kStreamDifferenceAt = 40,
  kStreamValueAt = 48,
};
static_assert(kStreamValueAt + 8 == kStreamHeaderBytes);
constexpr size_t kChecksumBytes = 8;
constexpr uint8_t kLossyFlag = 1;
constexpr uint64_t kAlign = 64;

uint64_t stream_head_bytes(uint64_t leaves) noexcept {
  return round_up(kStreamHeaderBytes + leaves * kStreamLeafBytes + kChecksumBytes, kAlign);
}

// Position of the checksum, which covers everything before it.
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

void put_head(std::byte* head, const StreamInfo& info) noexcept {
  store_le(head + kStreamMagicAt, kStreamMagic);
  store_le(head + kStreamVersionAt, kStreamVersion);
  store_le(head + kStreamElementAt, static_cast<uint8_t>(info.form.element));
  store_le(head + kStreamModeAt, info.mode);
  store_le(head + kStreamFlagsAt, info.lossy ? kLossyFlag : uint8_t{0});
  store_le(head + kStreamRawBytesAt, info.raw_bytes);
  store_le(head + kStreamStoredBytesAt, info.stored_bytes);
  store_le(head + kStreamLeavesAt, info.leaves);
  store_le(head + kStreamRowAt, info.form.row);
  store_le(head + kStreamRowsAt, info.form.rows);
  store_le<uint32_t>(head + kStreamReserved36At, 0);
  store_le(head + kStreamDifferenceAt, std::bit_cast<uint64_t>(info.difference));
  store_le(head + kStreamValueAt, std::bit_cast<uint64_t>(info.value));
  const uint64_t at = checksum_at(info.leaves);
  store_le(head + at, leaf_hash({head, at}));
  const uint64_t end = at + kChecksumBytes;
  std::memset(head + end, 0, stream_head_bytes(info.leaves) - end);
}

// Checks the leaf table against the header; fills lossy and raw_leaves.
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
  info.form.element = static_cast<Element>(load_le<uint8_t>(head + kStreamElementAt));
  info.form.row = load_le<uint32_t>(head + kStreamRowAt);
  info.form.rows = load_le<uint32_t>(head + kStreamRowsAt);
  info.mode = load_le<uint8_t>(head + kStreamModeAt);
  info.leaves = load_le<uint32_t>(head + kStreamLeavesAt);
  info.raw_bytes = load_le<uint64_t>(head + kStreamRawBytesAt);
  info.stored_bytes = load_le<uint64_t>(head + kStreamStoredBytesAt);
  info.difference = std::bit_cast<double>(load_le<uint64_t>(head + kStreamDifferenceAt));
  info.value = std::bit_cast<double>(load_le<uint64_t>(head + kStreamValueAt));
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

Status StreamWriter::check(const LeafForm& form, uint64_t raw_bytes, size_t room) noexcept {
  if (raw_bytes > kMaxStreamBytes || StreamCut(form, raw_bytes).leaves() > UINT32_MAX) {
    return {Code::invalid_argument, "a buffer is coded up to 2^40 bytes and 2^32 leaves"};
  }
  if (room < stream_room(form, raw_bytes)) return {Code::no_room, "too little room for the coded buffer"};
  return {};
}

StreamWriter::StreamWriter(const LeafForm& form, Mode mode, uint64_t raw_bytes, MutableBytes out) noexcept
    : cut_(form, raw_bytes), mode_(mode), out_(out), entry_at_(out.data() + kStreamHeaderBytes) {
  info_.form = form;
  info_.mode = static_cast<uint8_t>(mode);
  info_.leaves = static_cast<uint32_t>(cut_.leaves());
  info_.raw_bytes = raw_bytes;
  at_ = stream_head_bytes(info_.leaves);
}

Status StreamWriter::code(ConstBytes raw, Workspace& workspace) noexcept {
  std::byte* const to = out_.data() + at_;
  if (mode_ == Mode::off) {
    put({}, to, copy_hashed(to, raw.data(), raw.size(), CopyHint::cached));
    return {};
  }
  const uint64_t hash = leaf_hash(raw);
  const bool aligned = reinterpret_cast<uintptr_t>(to) % kAlign == 0;
  std::byte* const leaf = aligned ? to : workspace.stage();
  if (leaf == nullptr) return {Code::no_memory, "no memory for the codec's work space"};
  const auto made = encode_leaf(cut_.leaf_form(), mode_, raw, hash, {leaf, encode_room(raw.size())}, workspace);
  if (!made.ok()) return made.status();
  const Encoded& encoded = made.value();
  if (encoded.codec == LeafCodec::raw) {
    put(encoded, raw.data(), hash);
  } else {
    put(encoded, leaf, encoded.lossy ? raw_hash_of({leaf, encoded.bytes}).value_or(0) : hash);
  }
  return {};
}

void StreamWriter::put(const Encoded& encoded, const std::byte* stored, uint64_t hash) noexcept {
  Entry entry;
  entry.raw = leaf_bytes(0);
  entry.codec = encoded.codec;
  entry.stored = encoded.codec == LeafCodec::raw ? entry.raw : encoded.bytes;
  entry.hash = hash;
  std::byte* const to = out_.data() + at_;
  if (stored != to) std::memcpy(to, stored, entry.stored);
  info_.raw_leaves += encoded.codec == LeafCodec::raw ? 1 : 0;
  info_.lossy = info_.lossy || encoded.lossy;
  info_.difference += encoded.difference;
  info_.value += encoded.value;
  put_entry(entry_at_, entry);
  entry_at_ += kStreamLeafBytes;
  from_ += entry.raw;
  const uint64_t end = at_ + entry.stored;
  at_ = round_up(end, kAlign);
  std::memset(out_.data() + end, 0, at_ - end);
}

uint64_t StreamWriter::finish() noexcept {
  info_.stored_bytes = at_;
  put_head(out_.data(), info_);
  return at_;
}

Result<uint64_t> encode_stream(const LeafForm& form, Mode mode, ConstBytes raw, MutableBytes out,
                               Workspace& workspace) noexcept {
  if (Status fits = StreamWriter::check(form, raw.size(), out.size()); !fits.ok()) return fits;
  StreamWriter writer(form, mode, raw.size(), out);
  for (uint64_t from = 0; from < raw.size();) {
    const uint32_t bytes = writer.leaf_bytes(0);
    if (Status done = writer.code(raw.subspan(from, bytes), workspace); !done.ok()) return done;
    from += bytes;
  }
  return writer.finish();
}

Result<StreamInfo> peek_stream(ConstBytes bytes) noexcept {
  if (bytes.size() < kStreamLeavesAt || load_le<uint32_t>(bytes.data()) != kStreamMagic) {
    return Status(Code::damaged, "not a coded buffer");
  }
  if (load_le<uint8_t>(bytes.data() + kStreamVersionAt) != kStreamVersion) {
    return Status(Code::newer_version, "a coded buffer of a version that is not known here");
  }
  StreamInfo info;
  info.raw_bytes = load_le<uint64_t>(bytes.data() + kStreamRawBytesAt);
  info.stored_bytes = load_le<uint64_t>(bytes.data() + kStreamStoredBytesAt);
  return info;
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
  const uint8_t flags = load_le<uint8_t>(bytes.data() + kStreamFlagsAt);
  if (info.form.element > Element::int8 || (flags & ~kLossyFlag) != 0 ||
      load_le<uint32_t>(bytes.data() + kStreamReserved36At) != 0) {
    return Status(Code::newer_version, "a coded buffer with fields that are not known here");
  }
  Status table = check_table(bytes, info);
  if (!table.ok()) return table;
  if (info.lossy != (flags != 0)) return Status(Code::damaged, "damaged: the coded buffer hides that it is lossy");
  return view;
}

uint64_t StreamView::checksum() const noexcept { return load_le<uint64_t>(bytes_.data() + checksum_at(info_.leaves)); }

StreamLeaf StreamView::at(uint32_t i, uint64_t raw_at, uint64_t stored_at) const noexcept {
  const Entry entry = get_entry(bytes_.data() + kStreamHeaderBytes + uint64_t{i} * kStreamLeafBytes);
  const uint64_t end = stored_at + entry.stored;
  return {raw_at,
          entry.raw,
          entry.codec,
          entry.hash,
          bytes_.subspan(stored_at, entry.stored),
          bytes_.subspan(end, round_up(end, kAlign) - end)};
}

StreamLeaf StreamView::first() const noexcept {
  return info_.leaves == 0 ? StreamLeaf{} : at(0, 0, stream_head_bytes(info_.leaves));
}

StreamLeaf StreamView::behind(const StreamLeaf& leaf, uint32_t i) const noexcept {
  const auto end = static_cast<uint64_t>(leaf.padding.data() - bytes_.data()) + leaf.padding.size();
  return at(i, leaf.raw_at + leaf.raw_bytes, end);
}

bool padding_is_zero(const StreamLeaf& leaf) noexcept { return all_zero(leaf.padding.data(), leaf.padding.size()); }

Status decode_stream_leaf(const StreamLeaf& leaf, std::byte* raw, Workspace& workspace) noexcept {
  uint64_t hash = 0;
  if (leaf.codec == LeafCodec::raw) {
    hash = copy_hashed(raw, leaf.stored.data(), leaf.raw_bytes, CopyHint::cached);
  } else {
    Status done = decode_leaf(leaf.codec, leaf.stored, {raw, leaf.raw_bytes}, workspace);
    if (!done.ok()) return done;
    hash = leaf_hash({raw, leaf.raw_bytes});
  }
  if (hash == leaf.hash && padding_is_zero(leaf)) return {};
  return {Code::damaged, "damaged: a leaf of the coded buffer does not have the bytes that were coded"};
}

Status StreamView::decode(bool allow_lossy, MutableBytes out, Workspace& workspace) const noexcept {
  if (info_.lossy && !allow_lossy) {
    return Status(Code::not_permitted, "the coded buffer is lossy, and lossy bytes were not allowed");
  }
  if (out.size() < info_.raw_bytes) return Status(Code::no_room, "too little room for the decoded bytes");
  return each_leaf(
      [&](const StreamLeaf& leaf) { return decode_stream_leaf(leaf, out.data() + leaf.raw_at, workspace); });
}

}  // namespace kvbm::codec
