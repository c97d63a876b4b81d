// One call of BlockCoder, under way: encoding (block_encoding.cc) and decoding (block_decoding.cc).
#pragma once

#include <vector>

#include "codec/coded/coded_stream.h"
#include "codec/coded/strided_bytes.h"
#include "device/coder/coder_room.h"

namespace kvbm::device {

// Kernel that does a leaf's part of the work; none: the CPU does all of it.
enum class CoderWay : uint8_t { none, quantized, planes, planar };

class BlockEncoding {
 public:
  BlockEncoding(const Device& device, CoderRoom& room, const codec::LeafForm& form, codec::Mode mode,
                const codec::StridedBytes& from, MutableBytes out, codec::Workspace& workspace);
  Result<uint64_t> run();

 private:
  struct Leaf {
    uint64_t window_at;
    uint64_t coded_at;
    uint32_t bytes;
  };
  Status fill();
  void choose();
  Status code_here();
  Status bring();
  Status write(size_t i);
  Status write_planes(size_t i);
  Status write_plain(size_t i);

  CoderRoom& room_;
  const codec::Mode mode_;
  const std::vector<StridedRun>& runs_;
  codec::StreamWriter writer_;
  codec::Workspace& workspace_;
  CoderWay way_ = CoderWay::none;
  size_t run_ = 0;      // the next to be gathered
  uint64_t begin_ = 0;  // first byte of the window that is not coded yet
  uint64_t held_ = 0;
  std::vector<Leaf> leaves_;  // of this turn
};

class BlockDecoding {
 public:
  BlockDecoding(const Device& device, CoderRoom& room, const codec::StridedBytes& to, codec::Workspace& workspace);
  Status run(const codec::StreamView& stream);

 private:
  struct Leaf {
    codec::StreamLeaf stored;
    CoderWay way;
    codec::Element element;  // of planes
    uint64_t window_at;
    uint64_t coded_at;
  };
  Status take(const codec::StreamLeaf& leaf);
  [[nodiscard]] CoderWay way_of(const codec::StreamLeaf& leaf) const noexcept;
  Status flush();
  Status decode_there();
  Status launch(CoderWay way, Kernel kernel, size_t& jobs);
  Status scatter();

  const Device& device_;
  CoderRoom& room_;
  const std::vector<StridedRun>& runs_;
  codec::Workspace& workspace_;
  size_t run_ = 0;      // the next to be scattered
  uint64_t begin_ = 0;  // first byte of the window that is not scattered yet
  uint64_t held_ = 0;
  uint64_t landed_ = 0;  // of the landing
  std::vector<Leaf> leaves_;
  std::vector<uint32_t> order_;  // of jobs: the leaf of each
};

}  // namespace kvbm::device
