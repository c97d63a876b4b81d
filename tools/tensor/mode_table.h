// The table of `kvbm codec bench`: the result and speed of each mode on a file's tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/compress.h"

namespace kvbm::tensor {

struct ModeRow {
  codec::Mode mode = codec::Mode::off;
  uint64_t raw_bytes = 0;
  uint64_t coded_bytes = 0;  // complete streams: leaves, tables and hashes
  bool lossy = false;
  double difference = 0;
  double value = 0;
  double compress = 0;  // bytes of input per second, one thread
  double decompress = 0;
  KeptLossless kept;  // of a lossy mode
  [[nodiscard]] double ratio() const { return static_cast<double>(raw_bytes) / static_cast<double>(coded_bytes); }
};

struct ModeTable {
  std::vector<ModeRow> rows;
  double memcpy = 0;            // bytes per second, measured in between
  uint64_t measured_bytes = 0;  // of the tensors; the first ones if there is a limit; rows are not cut
  uint64_t tensor_bytes = 0;
};

struct TableOptions {
  std::vector<codec::Mode> modes;
  int rounds = 5;
  uint64_t row = 0;
  uint64_t limit_bytes = 256 << 20;  // at most so many are measured, but always a leaf of 64 KiB
  bool quiet = false;
};

// Measures modes. Decodes everything and, for lossless modes, compares it: internal if it differs.
Result<ModeTable> measure_modes(const Input& input, const TensorFile& file, const TableOptions& options,
                                const std::atomic<bool>* stop);

}  // namespace kvbm::tensor
