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
  // Of header and table, and so of every byte that decoding gives.
  [[nodiscard]] uint64_t checksum() const noexcept;
  // Decodes all leaves into the first info().raw_bytes of `out`. damaged; not_permitted: lossy and not allowed;
  // no_room: out is too small.
  [[nodiscard]] Status decode(bool allow_lossy, MutableBytes out, StreamWorkspace& workspace) const noexcept;

 private:
  StreamView() = default;
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
