// A .kvbmz file: a tensor file, coded, from which the same file comes back byte for byte (lossless modes).
//
//   header (64) | index: JSON, zeros to a multiple of 64 | chunks: coded streams (lib/codec/README.md) | end (64)
//
// The index says how the file is cut into segments: tensors, and what lies between them. A segment is coded in chunks
// of at most 32 MiB, so that neither side needs more memory than that, and each side goes through the file once. All
// integers are little-endian; docs/codec.md has the tables.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded_stream.h"
#include "tensor/tensor_file.h"

namespace kvbm::tensor {

inline constexpr uint64_t kContainerHeaderBytes = 64;
inline constexpr uint64_t kContainerEndBytes = 64;
inline constexpr uint64_t kMaxIndexBytes = 256 << 20;
inline constexpr uint64_t kChunkBytes = 32 << 20;  // of raw bytes

struct Segment {
  Tensor tensor;   // no name, element bytes and no shape: what lies between tensors
  bool is_tensor = false;
  codec::LeafForm form;
};

// What the index says.
struct Index {
  Kind kind = Kind::raw;
  uint64_t bytes = 0;  // of the whole file
  std::vector<Segment> segments;
};

// Why `row` values of a tensor cannot be a row, at the end of "its ..."; "" if they can. They need not be whole
// dimensions.
std::string row_refusal(const Tensor& tensor, uint64_t row);
// The whole file in segments. `row`: values of a row in every tensor where they can be one; elsewhere, and if it is 0,
// the last dimension is.
Index make_index(const TensorFile& file, uint64_t row);
// The row and rows of a tensor; none known: zero.
codec::LeafForm form_of(const Tensor& tensor, uint64_t row);
// How many bytes the next chunk of a segment has, which begins at `at` of it; 0 at its end.
// `most`: of a chunk; rows are not cut where some fit.
uint64_t next_chunk(const Segment& segment, uint64_t at, uint64_t most = kChunkBytes) noexcept;

std::string encode_index(const Index& index);
// damaged: not what encode_index() writes; segments that do not add up to the file.
Result<Index> decode_index(std::string_view text);

struct ContainerHeader {
  uint64_t file_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t index_hash = 0;
};
void encode_header(const ContainerHeader& header, MutableBytes out_64);
// invalid_argument: a foreign file; newer_version; damaged.
Result<ContainerHeader> decode_header(ConstBytes bytes);

// What the end says. The chain joins index and chunks, in order: a chunk that is missing, doubled or of another file is
// found even if it is whole in itself.
struct ContainerEnd {
  uint64_t chunks = 0;
  uint64_t file_bytes = 0;
  uint64_t chain = 0;
  bool operator==(const ContainerEnd&) const = default;
};
void encode_end(const ContainerEnd& end, MutableBytes out_64);
Result<ContainerEnd> decode_end(ConstBytes bytes);
uint64_t chain_next(uint64_t chain, uint64_t stream_checksum) noexcept;

}  // namespace kvbm::tensor
