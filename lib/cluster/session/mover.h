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
  // The payload is at an address of the device (SharedMemory), which no CPU reads: every leaf is one run then.
  bool shared = false;
  bool landed = false;  // and a transport has written it there: it is there when the device has been told so
  std::shared_ptr<void> keep = {};  // what such a payload lies in
  std::vector<StridedRun> runs;  // addresses of the device
  std::vector<Leaf> leaves;
  std::vector<uint64_t> hashes;  // of the leaves: gather fills them in, scatter is told what they must be
  [[nodiscard]] uint64_t bytes() const noexcept { return leaves.empty() ? 0 : leaves.back().offset + leaves.back().bytes; }
};

// Memory of a device that two processes of one machine reach, at this one's address of it.
struct SharedMemory {
  std::vector<std::byte> said;  // what map() at the other side needs; of memory that was mapped nothing
  std::byte* data = nullptr;    // the device's
  uint64_t bytes = 0;
  std::shared_ptr<void> keep;  // it is there for as long as this is held
};

// `done` runs exactly once, on the thread of the session and never inside the call; what it holds is dropped with it.
// Until then engine memory and staging are the mover's. A device that is lost ends what is under way, too.
class SliceMover {
 public:
  // ok: the payload and its hashes are there. Anything else ends the decode rank's session with that text.
  // scatter: ok: every leaf is in place and had its hash. damaged: one had not, and the slice may be pulled again.
  // A payload that is shared may hold anything, as the other process may have ended: what is wrong in it is `damaged`.
  using Done = UniqueFunction<void(const SliceMove&, const Status&)>;
  using MemoryDone = UniqueFunction<void(Result<SharedMemory>)>;
  virtual ~SliceMover() = default;
  virtual void gather(std::unique_ptr<SliceMove> move, Done done) = 0;
  virtual void scatter(std::unique_ptr<SliceMove> move, Done done) = 0;

  // Where this side is, for the other one's near(); empty: this mover shares nothing and maps nothing.
  [[nodiscard]] virtual std::vector<std::byte> place() const = 0;
  // Whether what this side shares could be mapped at `place`; else why not.
  [[nodiscard]] virtual Status near(ConstBytes place) const = 0;
  // New memory to share, never an engine's; what another side has said, mapped. `done` runs as above, but not at all when
  // the session's thread has ended.
  virtual void share(uint64_t bytes, MemoryDone done) = 0;
  virtual void map(ConstBytes said, uint64_t bytes, MemoryDone done) = 0;
  // New memory that a transport shall read, and where `written` write, by itself (Link::add_memory); never an engine's.
  virtual void direct(uint64_t bytes, bool written, MemoryDone done) = 0;
};

}  // namespace kvbm::cluster::session
