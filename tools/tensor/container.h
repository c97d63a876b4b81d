// A .kvbmz file: a coded tensor file. Lossless modes restore the file byte for byte.
//
//   header (64) | index: JSON, zeros to a multiple of 64 | chunks: coded streams (lib/codec/README.md) | end (64)
//
// The index lists the segments of the file: tensors, and the bytes between them. A segment is coded in chunks of at
// most 32 MiB, so that neither side needs more memory than that, and each side goes through the file once. All
// integers are little-endian; docs/codec.md has the tables.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded/coded_stream.h"
#include "tensor/tensor_file.h"

namespace kvbm::tensor {

inline constexpr uint64_t kContainerHeaderBytes = 64;
inline constexpr uint64_t kContainerEndBytes = 64;
inline constexpr uint64_t kMaxIndexBytes = 256 << 20;
inline constexpr uint64_t kChunkBytes = 32 << 20;  // of raw bytes

struct Segment {
  Tensor tensor;  // no name, element bytes and no shape: bytes between tensors
  bool is_tensor = false;
  codec::LeafForm form;
};

// Content of the index.
struct Index {
  Kind kind = Kind::raw;
  uint64_t bytes = 0;  // of the whole file
  std::vector<Segment> segments;
};

// Returns why a row cannot have `row` values of a tensor, at the end of "its ..."; "" if it can. Rows need not be
// complete dimensions.
std::string row_refusal(const Tensor& tensor, uint64_t row);
// Divides the whole file into segments. `row`: values of a row in every tensor that allows it. In other tensors, and
// if it is 0, the last dimension is the row.
Index make_index(const TensorFile& file, uint64_t row);
// Returns the row and rows of a tensor; zero if none is known.
codec::LeafForm form_of(const Tensor& tensor, uint64_t row);
// Returns the bytes of the next chunk of a segment, which begins at `at` of it; 0 at its end. `most`: limit of a
// chunk; rows are not cut if some fit.
uint64_t next_chunk(const Segment& segment, uint64_t at, uint64_t most = kChunkBytes) noexcept;

std::string encode_index(const Index& index);
// Fails with damaged for a text that encode_index() would not write, or segments that do not add up to the file.
Result<Index> decode_index(std::string_view text);

struct ContainerHeader {
  uint64_t file_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t index_hash = 0;
};
void encode_header(const ContainerHeader& header, MutableBytes out_64);
// Fails with invalid_argument for a foreign file, newer_version or damaged.
Result<ContainerHeader> decode_header(ConstBytes bytes);

// Content of the end. The chain joins index and chunks, in order. It reveals a chunk that is missing, doubled or of
// another file, even if the chunk itself is intact.
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
