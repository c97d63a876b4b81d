// The table of `kvbm codec bench`: what each mode makes of a file's tensors, and how fast.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/compress.h"

namespace kvbm::tensor {

struct ModeRow {
  codec::Mode mode = codec::Mode::off;
  uint64_t raw_bytes = 0;
  uint64_t coded_bytes = 0;  // streams whole: leaves, tables and hashes
  bool lossy = false;
  double difference = 0;
  double value = 0;
  double compress = 0;  // bytes of input a second, one thread
  double decompress = 0;
  KeptLossless kept;  // of a lossy mode
  [[nodiscard]] double ratio() const { return static_cast<double>(raw_bytes) / static_cast<double>(coded_bytes); }
};

struct ModeTable {
  std::vector<ModeRow> rows;
  double memcpy = 0;           // bytes a second, measured in between
  uint64_t measured_bytes = 0;  // of the tensors; the first ones, where there is a limit; rows are not cut
  uint64_t tensor_bytes = 0;
};

struct TableOptions {
  std::vector<codec::Mode> modes;
  int rounds = 5;
  uint64_t row = 0;
  uint64_t limit_bytes = 256 << 20;  // at most so many are measured, but always 64 KiB of them, a leaf
  bool quiet = false;
};

// Everything is decoded and, where the mode is lossless, compared: internal if it does not come back.
Result<ModeTable> measure_modes(const Input& input, const TensorFile& file, const TableOptions& options,
                                const std::atomic<bool>* stop);

}  // namespace kvbm::tensor
