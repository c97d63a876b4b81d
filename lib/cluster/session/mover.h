// Copies of slices that the CPU does not make itself: engine memory is a device's. A session begins one and goes on;
// the end comes later. lib/manager implements it over lib/device, which this layer does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/function.h"
#include "base/status.h"

namespace kvbm::cluster::session {

// One slice: its leaves in wire form, and for each the runs of engine memory that make it, in order.
struct SliceMove {
  struct Leaf {
    uint64_t offset = 0;  // in the payload; leaves follow each other
    uint32_t bytes = 0;
    uint32_t first_run = 0;
    uint32_t runs = 0;
  };
  std::byte* payload = nullptr;  // staging; the mover's until `done`
  std::vector<StridedRun> runs;  // addresses of the device
  std::vector<Leaf> leaves;
  std::vector<uint64_t> hashes;  // of the leaves: gather fills them in, scatter is told what they must be
  [[nodiscard]] uint64_t bytes() const noexcept { return leaves.empty() ? 0 : leaves.back().offset + leaves.back().bytes; }
};

// `done` runs exactly once, on the thread of the session and never inside the call; what it holds is dropped with it.
// Until then engine memory and staging are the mover's. A device that is lost ends what is under way, too.
class SliceMover {
 public:
  // ok: the payload and its hashes are there. Anything else ends the decode rank's session with that text.
  // scatter: ok: every leaf is in place and had its hash. damaged: one had not, and the slice may be pulled again.
  using Done = UniqueFunction<void(const SliceMove&, const Status&)>;
  virtual ~SliceMover() = default;
  virtual void gather(std::unique_ptr<SliceMove> move, Done done) = 0;
  virtual void scatter(std::unique_ptr<SliceMove> move, Done done) = 0;
};

}  // namespace kvbm::cluster::session
