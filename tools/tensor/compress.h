// Implements `kvbm codec compress` and `decompress`.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "codec/coded/leaf_codec.h"
#include "tensor/container.h"
#include "tensor/file_io.h"
#include "tensor/kept_lossless.h"

namespace kvbm::tensor {

// Result of an operation, or facts of a file.
struct Summary {
  Index index;
  std::string note;
  uint64_t file_bytes = 0;       // plain
  uint64_t container_bytes = 0;  // coded, with index and hashes
  uint64_t chunks = 0;
  bool lossy = false;
  double difference = 0;  // as in codec::Encoded
  double value = 0;
  KeptLossless kept;  // of a lossy mode
};

struct Watch {
  std::function<void(uint64_t plain_bytes)> advance;  // called after each chunk
  const std::atomic<bool>* stop = nullptr;            // cancelled at the next chunk
};

// Reads the front of the file and returns the places of its tensors.
Result<TensorFile> describe(const Input& input, const Claims& claims);

// Codes the file. Every chunk is decoded again and compared before it is written (lossy ones: decoded).
Result<Summary> compress(const Input& input, const TensorFile& file, codec::Mode mode, uint64_t row, NewFile& out,
                         const Watch& watch);
// Restores the file. not_permitted: lossy, and not allowed.
Result<Summary> decompress(const Input& input, bool allow_lossy, NewFile& out, const Watch& watch);
// Returns the index that decompress() would use, from header and index alone.
Result<Index> read_index(const Input& input);

}  // namespace kvbm::tensor
