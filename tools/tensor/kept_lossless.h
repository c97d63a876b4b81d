// Where a lossy mode was not used, and why: blocks (leaves) that it leaves as they are are coded without loss, and
// whatever asked for it is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/coded_stream.h"
#include "tensor/tensor_file.h"

namespace kvbm::tensor {

// Of values that were coded with a lossy mode.
struct KeptBlocks {
  uint64_t blocks = 0;      // all of them; lossless:
  uint64_t no_float = 0;    // not of a type that lossy modes take
  uint64_t not_finite = 0;  // with an infinity or a NaN
  uint64_t no_gain = 0;     // too few values, or too large or small ones
  [[nodiscard]] uint64_t lossless() const noexcept { return no_float + not_finite + no_gain; }
  // `raw`: what the stream was made of, or what it gives.
  void add(const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw) noexcept;
  void add(const KeptBlocks& other) noexcept;
  bool operator==(const KeptBlocks&) const = default;
};

class KeptLossless {
 public:
  // The next chunk of a tensor; those of one come one after the other. Of other streams than of lossy modes: nothing.
  void add(const Tensor& tensor, const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw);
  [[nodiscard]] const KeptBlocks& all() const noexcept { return all_; }
  // Those that have a lossless block.
  struct Kept {
    std::string name;
    uint64_t offset = 0;
    KeptBlocks counts;
  };
  [[nodiscard]] const std::vector<Kept>& tensors() const noexcept { return tensors_; }
  // "int8 was not used for 2 of 5 blocks of values, ..", empty where it was used for all. `modes`: "int8", or "int8,
  // int6".
  [[nodiscard]] std::string text(const std::string& modes) const;

 private:
  KeptBlocks all_;
  std::vector<Kept> tensors_;
  uint64_t current_ = UINT64_MAX;  // where the tensor begins that came last, and its counts
  KeptBlocks before_;
};

// Whether lossy modes take values of that type.
[[nodiscard]] bool may_be_lossy(Element element) noexcept;

}  // namespace kvbm::tensor
