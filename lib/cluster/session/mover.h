// Copies of slices that the CPU does not make itself, because engine memory is on a device. A session begins one and
// goes on; its end is reported later. lib/manager implements it over lib/device, which this layer does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/function.h"
#include "base/status.h"

namespace kvbm::cluster::session {

// One slice: its leaves in wire form, and for each the runs of engine memory that form it, in order.
struct SliceMove {
  struct Leaf {
    uint64_t offset = 0;  // in the payload; leaves follow each other
    uint32_t bytes = 0;
    uint32_t first_run = 0;
    uint32_t runs = 0;
  };
  std::byte* payload = nullptr;  // staging; owned by the mover until `done`
  // The payload is at a device address (SharedMemory), which no CPU reads: every leaf is then one run.
  bool shared = false;
  bool landed = false;              // a transport has written it there: it is complete only after a flush on the device
  std::shared_ptr<void> keep = {};  // holds the memory of such a payload
  std::vector<StridedRun> runs;     // addresses of the device
  std::vector<Leaf> leaves;
  std::vector<uint64_t> hashes;  // of the leaves: gather fills them in, scatter compares with them
  [[nodiscard]] uint64_t bytes() const noexcept {
    return leaves.empty() ? 0 : leaves.back().offset + leaves.back().bytes;
  }
};

// Device memory that two processes of one machine map, at this process's address.
struct SharedMemory {
  std::vector<std::byte> said;  // description for map() at the other side; empty for mapped memory
  std::byte* data = nullptr;    // address on the device
  uint64_t bytes = 0;
  std::shared_ptr<void> keep;  // holds the memory
};

// Copies slices. `done` runs exactly once, on the thread of the session and never inside the call; its state is
// destroyed with it. Until then the mover owns engine memory and staging. A lost device ends everything in progress,
// too.
class SliceMover {
 public:
  // gather: ok: the payload and its hashes are complete. Anything else ends the decode rank's session with that text.
  // scatter: ok: every leaf is in place and had its hash. damaged: one had not, and the slice may be pulled again. A
  // shared payload may contain anything, as the other process may have ended: errors in it are `damaged`.
  using Done = UniqueFunction<void(const SliceMove&, const Status&)>;
  using MemoryDone = UniqueFunction<void(Result<SharedMemory>)>;
  virtual ~SliceMover() = default;
  virtual void gather(std::unique_ptr<SliceMove> move, Done done) = 0;
  virtual void scatter(std::unique_ptr<SliceMove> move, Done done) = 0;

  // Returns this side's place, for the other side's near(); empty: this mover shares nothing and maps nothing.
  [[nodiscard]] virtual std::vector<std::byte> place() const = 0;
  // Checks whether memory shared by this side could be mapped at `place`; else the reason.
  [[nodiscard]] virtual Status near(ConstBytes place) const = 0;
  // share() makes new memory to share, never an engine's; map() maps memory that another side has described. `done`
  // runs as above, but not at all when the session's thread has ended.
  virtual void share(uint64_t bytes, MemoryDone done) = 0;
  virtual void map(ConstBytes said, uint64_t bytes, MemoryDone done) = 0;
  // Makes new memory that a transport reads by itself, and writes if `written` (Link::add_memory); never an engine's.
  virtual void direct(uint64_t bytes, bool written, MemoryDone done) = 0;
};

}  // namespace kvbm::cluster::session
