// A buffer of any size, coded: leaves of at most 64 KiB, each coded on its own, behind a table with the hashes of the
// bytes that decoding must give. Self-describing; format "coded stream" in codec/README.md. For callers that keep KV in
// their own buffers and files (capi/codec.cc, the kvbm command); tiers and links code records (coded_record.h).
//
// Pure functions: no I/O, no locks, no allocation beyond the workspace. Thread: any, one workspace a thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded/leaf_codec.h"
#include "codec/leaf/leaf_form.h"

namespace kvbm::codec {

inline constexpr uint32_t kStreamMagic = 0x5342564BU;  // "KVBS"
inline constexpr uint8_t kStreamVersion = 1;
inline constexpr size_t kStreamHeaderBytes = 56;
inline constexpr size_t kStreamLeafBytes = 24;
inline constexpr uint64_t kMaxStreamBytes = 1ULL << 40;

// Divides a buffer into leaves. Leaves end at the end of a row. A leaf has either whole heads, or rows of one head,
// with leaves of about equal size (128 rows four times, and not 170 three times and 2). So channels begin anew in each
// leaf.
class StreamCut {
 public:
  StreamCut(const LeafForm& form, uint64_t raw_bytes) noexcept;
  [[nodiscard]] uint64_t leaves() const noexcept { return leaves_; }
  // Returns the size of the leaf that begins at `at`, which is the end of the one before. 0 at the end.
  [[nodiscard]] uint32_t next(uint64_t at) const noexcept;
  // The form of each leaf: without rows where a leaf lies within one head.
  [[nodiscard]] const LeafForm& leaf_form() const noexcept { return form_; }

 private:
  LeafForm form_;
  uint64_t raw_bytes_;
  uint64_t unit_;  // leaves begin anew after this many bytes
  uint64_t step_;  // and after each of these in between
  uint64_t leaves_;
};

struct StreamInfo {
  LeafForm form;
  uint8_t mode = 0;  // as requested; a number of Mode, or of a newer library's
  bool lossy = false;
  uint32_t leaves = 0;
  uint32_t raw_leaves = 0;
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;
  double difference = 0;  // as in Encoded, over all leaves
  double value = 0;
};
// difference / value in 1e-9, rounded up; at most 2^63.
[[nodiscard]] uint64_t error_ppb(double difference, double value) noexcept;

// Size of `out` that encode_stream needs for any bytes and mode. raw_bytes: at most kMaxStreamBytes.
[[nodiscard]] uint64_t stream_room(const LeafForm& form, uint64_t raw_bytes) noexcept;

// Returns the bytes written. invalid_argument: more than kMaxStreamBytes; no_room: out is smaller than stream_room().
[[nodiscard]] Result<uint64_t> encode_stream(const LeafForm& form, Mode mode, ConstBytes raw, MutableBytes out,
                                             Workspace& workspace) noexcept;

// Writes a stream leaf by leaf, for callers with bytes in pieces, or with leaves coded elsewhere
// (lib/device/coder/block_coder).
class StreamWriter {
 public:
  // `out` has stream_room(form, raw_bytes); raw_bytes and the resulting leaves must be as for encode_stream().
  StreamWriter(const LeafForm& form, Mode mode, uint64_t raw_bytes, MutableBytes out) noexcept;
  // Checks whether such a stream may be written into `room` bytes, as encode_stream() does.
  [[nodiscard]] static Status check(const LeafForm& form, uint64_t raw_bytes, size_t room) noexcept;
  // Form in which leaves must be coded elsewhere.
  [[nodiscard]] const LeafForm& leaf_form() const noexcept { return cut_.leaf_form(); }
  // Size of the leaf that begins `ahead` bytes behind the next one (0: the next one); 0: there is none.
  [[nodiscard]] uint32_t leaf_bytes(uint64_t ahead) const noexcept { return cut_.next(from_ + ahead); }
  // Codes the next leaf, of leaf_bytes(0).
  Status code(ConstBytes raw, Workspace& workspace) noexcept;
  // Adds the next leaf, coded with leaf_form() and the stream's mode; `hash` is of the bytes that decoding it gives.
  void put(const Encoded& encoded, const std::byte* stored, uint64_t hash) noexcept;
  // Call after all leaves are written; returns the size of the stream.
  uint64_t finish() noexcept;

 private:
  StreamCut cut_;
  Mode mode_;
  MutableBytes out_;
  StreamInfo info_;
  uint64_t from_ = 0;  // raw bytes before the next leaf
  uint64_t at_ = 0;    // position of the next leaf
  std::byte* entry_at_ = nullptr;
};

// A leaf in a stream.
struct StreamLeaf {
  uint64_t raw_at = 0;
  uint32_t raw_bytes = 0;
  LeafCodec codec = LeafCodec::raw;
  uint64_t hash = 0;  // of the bytes that decoding must give
  ConstBytes stored;
  ConstBytes padding;  // zeros up to the next leaf, unless the stream was changed
};
[[nodiscard]] bool padding_is_zero(const StreamLeaf& leaf) noexcept;
// Decodes a leaf into raw_bytes at `raw`, and compares all of it. damaged: it does not have the original bytes.
[[nodiscard]] Status decode_stream_leaf(const StreamLeaf& leaf, std::byte* raw, Workspace& workspace) noexcept;

// A checked view of a coded stream in memory that outlives it.
class StreamView {
 public:
  // Checks header, table and their checksum, and that sizes agree with each other and with `bytes`, which is the whole
  // stream. damaged | newer_version. The leaves themselves are checked when they are decoded.
  static Result<StreamView> parse(ConstBytes bytes) noexcept;
  [[nodiscard]] const StreamInfo& info() const noexcept { return info_; }
  // Calls each(StreamLeaf) for all leaves in order until one returns a status that is not ok, and returns that.
  template <class Each>
  Status each_leaf(Each&& each) const {
    StreamLeaf leaf = first();
    for (uint32_t i = 0; i < info_.leaves;) {
      if (Status done = each(static_cast<const StreamLeaf&>(leaf)); !done.ok()) return done;
      if (++i < info_.leaves) leaf = behind(leaf, i);
    }
    return {};
  }
  // Checksum of header and table, and so of every byte that decoding gives.
  [[nodiscard]] uint64_t checksum() const noexcept;
  // Decodes all leaves into the first info().raw_bytes of `out`. damaged; not_permitted: lossy and not allowed;
  // no_room: out is too small.
  [[nodiscard]] Status decode(bool allow_lossy, MutableBytes out, Workspace& workspace) const noexcept;

 private:
  StreamView() = default;
  [[nodiscard]] StreamLeaf first() const noexcept;
  // Returns leaf `i`, which follows `leaf`.
  [[nodiscard]] StreamLeaf behind(const StreamLeaf& leaf, uint32_t i) const noexcept;
  [[nodiscard]] StreamLeaf at(uint32_t i, uint64_t raw_at, uint64_t stored_at) const noexcept;
  ConstBytes bytes_;
  StreamInfo info_;
};

// Reads raw_bytes and stored_bytes of a stream alone, for readers of files; only magic and version are checked.
[[nodiscard]] Result<StreamInfo> peek_stream(ConstBytes first_24_bytes) noexcept;

}  // namespace kvbm::codec
