// A buffer of any size, coded: leaves of at most 64 KiB, each coded on its own, behind a table with the hashes of the
// bytes that decoding must give. Self-describing; format "coded stream" in README.md. For callers that keep KV in their
// own buffers and files (capi/codec.cc, the kvbm command); tiers and links code records (coded_record.h).
//
// Pure functions: no I/O, no locks, no allocation beyond the workspace. Thread: any, one workspace a thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf_codec.h"
#include "codec/leaf_form.h"

namespace kvbm::codec {

inline constexpr uint32_t kStreamMagic = 0x5342564BU;  // "KVBS"
inline constexpr uint8_t kStreamVersion = 1;
inline constexpr size_t kStreamHeaderBytes = 56;
inline constexpr size_t kStreamLeafBytes = 24;
inline constexpr uint64_t kMaxStreamBytes = 1ULL << 40;

// How a buffer is cut. Leaves end at the end of a row; a leaf has either whole heads, or rows of one head, whose leaves
// are about equal then (128 rows four times, and not 170 three times and 2). So channels begin anew in each leaf.
class StreamCut {
 public:
  StreamCut(const LeafForm& form, uint64_t raw_bytes) noexcept;
  [[nodiscard]] uint64_t leaves() const noexcept { return leaves_; }
  // The leaf that begins at `at`, which is the end of the one before. 0 at the end.
  [[nodiscard]] uint32_t next(uint64_t at) const noexcept;
  // The form of each leaf: without rows where a leaf lies within one head.
  [[nodiscard]] const LeafForm& leaf_form() const noexcept { return form_; }

 private:
  LeafForm form_;
  uint64_t raw_bytes_;
  uint64_t unit_;  // leaves begin anew after so many bytes
  uint64_t step_;  // and after each of these in between
  uint64_t leaves_;
};

struct StreamInfo {
  LeafForm form;
  uint8_t mode = 0;  // as asked for; a number of Mode, or of a newer library's
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

// Work memory of one thread's coding: at most 768 KiB, taken at the first use.
struct StreamWorkspace {
  Workspace codec;
  Workspace leaf;  // one leaf, aligned
};

// Room at `out` of encode_stream for any bytes and mode. raw_bytes: at most kMaxStreamBytes.
[[nodiscard]] uint64_t stream_room(const LeafForm& form, uint64_t raw_bytes) noexcept;

// Returns the bytes written. invalid_argument: more than kMaxStreamBytes; no_room: out is smaller than stream_room().
[[nodiscard]] Result<uint64_t> encode_stream(const LeafForm& form, Mode mode, ConstBytes raw, MutableBytes out,
                                             StreamWorkspace& workspace) noexcept;

// A stream written leaf by leaf, for who has its bytes in pieces, or codes leaves elsewhere (lib/device/block_coder).
class StreamWriter {
 public:
  // `out` has stream_room(form, raw_bytes); raw_bytes and the leaves that they make are as encode_stream() wants them.
  StreamWriter(const LeafForm& form, Mode mode, uint64_t raw_bytes, MutableBytes out) noexcept;
  // Whether such a stream may be written into so much room: the refusals of encode_stream().
  [[nodiscard]] static Status check(const LeafForm& form, uint64_t raw_bytes, size_t room) noexcept;
  // How the leaves must be coded that others code.
  [[nodiscard]] const LeafForm& leaf_form() const noexcept { return cut_.leaf_form(); }
  // Of the leaf that begins `ahead` bytes behind the next one, whose own is 0; 0: there is none.
  [[nodiscard]] uint32_t leaf_bytes(uint64_t ahead) const noexcept { return cut_.next(from_ + ahead); }
  // Codes the next leaf, of leaf_bytes(0).
  Status code(ConstBytes raw, StreamWorkspace& workspace) noexcept;
  // Takes the next leaf as it was coded with leaf_form() and the stream's mode; `hash` is of what decoding it gives.
  void put(const Encoded& encoded, const std::byte* stored, uint64_t hash) noexcept;
  // Once all leaves are written: the size of the stream.
  uint64_t finish() noexcept;

 private:
  StreamCut cut_;
  Mode mode_;
  MutableBytes out_;
  StreamInfo info_;
  uint64_t from_ = 0;  // raw bytes before the next leaf
  uint64_t at_ = 0;    // where it begins
  std::byte* entry_at_ = nullptr;
};

// A leaf as it lies in a stream.
struct StreamLeaf {
  uint64_t raw_at = 0;
  uint32_t raw_bytes = 0;
  LeafCodec codec = LeafCodec::raw;
  uint64_t hash = 0;    // of what decoding must give
  ConstBytes stored;
  ConstBytes padding;   // zeros up to the next leaf, or the stream was changed
};
[[nodiscard]] bool padding_is_zero(const StreamLeaf& leaf) noexcept;
// Decodes one into raw_bytes at `raw`, and compares all of it. damaged: it does not have the bytes that were coded.
[[nodiscard]] Status decode_stream_leaf(const StreamLeaf& leaf, std::byte* raw, StreamWorkspace& workspace) noexcept;

// A checked view of a coded stream in memory that outlives it.
class StreamView {
 public:
  // Header, table and their checksum; that sizes agree with each other and with `bytes`, which is the whole stream.
  // damaged | newer_version. The leaves themselves are checked when they are decoded.
  static Result<StreamView> parse(ConstBytes bytes) noexcept;
  [[nodiscard]] const StreamInfo& info() const noexcept { return info_; }
  // How the leaves were coded, in order; `leaf` below info().leaves.
  struct Leaf {
    LeafCodec codec = LeafCodec::raw;
    uint32_t raw_bytes = 0;
  };
  [[nodiscard]] Leaf leaf(uint32_t leaf) const noexcept;
  // All of them in order: calls each(StreamLeaf) until one returns a status that is not ok, and returns that.
  template <class Each>
  Status each_leaf(Each&& each) const {
    StreamLeaf leaf = first();
    for (uint32_t i = 0; i < info_.leaves;) {
      if (Status done = each(static_cast<const StreamLeaf&>(leaf)); !done.ok()) return done;
      if (++i < info_.leaves) leaf = behind(leaf, i);
    }
    return {};
  }
  // Of header and table, and so of every byte that decoding gives.
  [[nodiscard]] uint64_t checksum() const noexcept;
  // Decodes all leaves into the first info().raw_bytes of `out`. damaged; not_permitted: lossy and not allowed;
  // no_room: out is too small.
  [[nodiscard]] Status decode(bool allow_lossy, MutableBytes out, StreamWorkspace& workspace) const noexcept;

 private:
  StreamView() = default;
  [[nodiscard]] StreamLeaf first() const noexcept;
  // Leaf `i`, which comes behind that one.
  [[nodiscard]] StreamLeaf behind(const StreamLeaf& leaf, uint32_t i) const noexcept;
  [[nodiscard]] StreamLeaf at(uint32_t i, uint64_t raw_at, uint64_t stored_at) const noexcept;
  ConstBytes bytes_;
  StreamInfo info_;
};

// The size of a stream from its first 16 to 24 bytes, for readers of files; nothing is checked but magic and version.
struct StreamPeek {
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;
};
[[nodiscard]] Result<StreamPeek> peek_stream(ConstBytes first_24_bytes) noexcept;

}  // namespace kvbm::codec
