// Coding blocks of a cache on a device: out of its memory into a coded stream (codec/coded_stream.h) in memory of the
// caller's, and back. The streams are those of codec/strided_stream.h, byte for byte but for the two sums in the head that
// say what was lost, of which the last digits may differ.
//
// Runs are gathered into a window on the device, in the order of the stream. What kernels can do of the mode is done
// there (fp8, int8, int6, int4 whole; zstd: its byte planes), and what they made crosses the bus; of every other mode, and
// of leaves that are not to be quantised, the plain bytes cross it, and the CPU codes them. Back likewise: kernels decode
// and compare, the CPU the rest, and the kernel that scatters begins once all of a window was found right.
//
// Thread: any, one call at a time, the others wait. Blocks: yes, in every call. Lock: mutex_, held over calls of the driver
// and waits for the device, never for the caller's stream.
#pragma once

#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "codec/coded_stream.h"
#include "codec/strided_bytes.h"
#include "device/coder_room.h"
#include "device/stream_point.h"

namespace kvbm::device {

class BlockCoder {
 public:
  // Takes nothing of the device before the first call; from then on a window, as much for coded leaves, and as much pinned.
  BlockCoder(std::shared_ptr<Device> device, const CoderOptions& options)
      : device_(std::move(device)), options_(options) {}
  ~BlockCoder();
  BlockCoder(const BlockCoder&) = delete;
  BlockCoder& operator=(const BlockCoder&) = delete;

  // As codec::encode_runs(), behind `after` (null: at once). Also tier_disabled, internal: what the driver refused; and
  // invalid_argument: the stream's context was destroyed before it got there; deadline: other work keeps the device
  // longer than stall_ns, which may still read the runs until it has come to them.
  Result<uint64_t> encode(const codec::LeafForm& form, codec::Mode mode, const codec::StridedBytes& from,
                          const StreamPoint* after, MutableBytes out, codec::StreamWorkspace& workspace);
  // As codec::decode_runs(). With tier_disabled the runs may still be written to; with deadline nothing of it has begun.
  Status decode(const codec::StreamView& stream, bool allow_lossy, const codec::StridedBytes& to,
                const StreamPoint* after, codec::StreamWorkspace& workspace);

 private:
  // Until the caller's stream has come to the point.
  Status reach(const StreamPoint* after);
  // Waits for what a call before this one has left. `writes_outside`: CoderRoom::begin().
  Result<CoderRoom*> enter(const StreamPoint* after, bool writes_outside) KVBM_REQUIRES(mutex_);

  const std::shared_ptr<Device> device_;
  const CoderOptions options_;
  Mutex mutex_;
  std::shared_ptr<CoderRoom> room_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::device
