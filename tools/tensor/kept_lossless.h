// Counts blocks of a tensor that a lossy mode left as they are, by reason. They are coded without loss, and the command
// says how many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/coded/coded_stream.h"
#include "tensor/tensor_file.h"

namespace kvbm::tensor {

// Counts of blocks that were coded with a lossy mode.
struct KeptBlocks {
  uint64_t blocks = 0;      // all blocks; lossless ones are:
  uint64_t no_float = 0;    // not of a type that lossy modes accept
  uint64_t not_finite = 0;  // with an infinity or a NaN
  uint64_t no_gain = 0;     // too few values, or too large or small ones
  [[nodiscard]] uint64_t lossless() const noexcept { return no_float + not_finite + no_gain; }
  // `raw`: the input of the stream, or its output.
  void add(const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw) noexcept;
  void add(const KeptBlocks& other) noexcept;
  bool operator==(const KeptBlocks&) const = default;
};

class KeptLossless {
 public:
  // Adds the next chunk of a tensor; chunks of one tensor come one after the other. Ignores streams of other modes
  // than lossy ones.
  void add(const Tensor& tensor, const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw);
  [[nodiscard]] const KeptBlocks& all() const noexcept { return all_; }
  // A tensor with a lossless block.
  struct Kept {
    std::string name;
    uint64_t offset = 0;
    KeptBlocks counts;
  };
  [[nodiscard]] const std::vector<Kept>& tensors() const noexcept { return tensors_; }
  // Returns "int8 was not used for 2 of 5 blocks of values, ..", empty if it was used for all. `modes`: "int8", or
  // "int8, int6".
  [[nodiscard]] std::string text(const std::string& modes) const;

 private:
  KeptBlocks all_;
  std::vector<Kept> tensors_;
  uint64_t current_ = UINT64_MAX;  // offset of the last tensor, and its counts
  KeptBlocks before_;
};

// Returns whether lossy modes accept values of that type.
[[nodiscard]] bool may_be_lossy(Element element) noexcept;

}  // namespace kvbm::tensor
