// Codes blocks of a cache on a device: out of its memory into a coded stream (codec/coded/coded_stream.h) in the
// caller's memory, and back. The streams are those of codec/coded/strided_stream.h, byte for byte. Only the two sums in
// the head that tell the loss may differ in their last digits.
//
// Runs are gathered into a window on the device, in the order of the stream. The work that kernels support for the mode
// is done there (fp8, int8, int6, int4 whole; zstd: its byte planes), and the result crosses the bus. For every other
// mode, and for leaves that are not to be quantised, the plain bytes cross it, and the CPU codes them.
// Decoding likewise: kernels decode and compare, the CPU does the rest, and the kernel that scatters begins once all of
// a window was found right.
//
// Thread: any, one call at a time, the others wait. Blocks: yes, in every call. Lock: mutex_, held over calls of the
// driver and waits for the device, never for the caller's stream.
#pragma once

#include <memory>
#include <utility>

#include "base/status.h"
#include "base/thread/mutex.h"
#include "codec/coded/coded_stream.h"
#include "codec/coded/strided_bytes.h"
#include "device/coder/coder_room.h"
#include "device/transfer/stream_point.h"

namespace kvbm::device {

class BlockCoder {
 public:
  // Allocates nothing on the device before the first call; from then on a window, as much for coded leaves, and as much
  // pinned.
  BlockCoder(std::shared_ptr<Device> device, const CoderOptions& options)
      : device_(std::move(device)), options_(options) {}
  ~BlockCoder();
  BlockCoder(const BlockCoder&) = delete;
  BlockCoder& operator=(const BlockCoder&) = delete;

  // Encodes like codec::encode_runs(), behind `after` (null: at once). Further errors:
  //   tier_disabled, internal: the driver refused
  //   invalid_argument: the stream's context was destroyed before it reached the point
  //   deadline: other work keeps the device longer than stall_ns; it may still read the runs until it has reached them
  Result<uint64_t> encode(const codec::LeafForm& form, codec::Mode mode, const codec::StridedBytes& from,
                          const StreamPoint* after, MutableBytes out, codec::Workspace& workspace);
  // Decodes like codec::decode_runs(). With tier_disabled the runs may still be written to; with deadline none of it
  // has begun.
  Status decode(const codec::StreamView& stream, bool allow_lossy, const codec::StridedBytes& to,
                const StreamPoint* after, codec::Workspace& workspace);

 private:
  // Waits until the caller's stream has reached the point.
  Status reach(const StreamPoint* after);
  // Waits for work that an earlier call has left. `writes_outside`: CoderRoom::begin().
  Result<CoderRoom*> enter(const StreamPoint* after, bool writes_outside) KVBM_REQUIRES(mutex_);

  const std::shared_ptr<Device> device_;
  const CoderOptions options_;
  Mutex mutex_;
  std::shared_ptr<CoderRoom> room_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::device
