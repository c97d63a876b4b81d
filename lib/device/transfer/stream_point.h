// Point in a stream of the caller: an event recorded there, in the stream's own context.
//
// Thread: any. Blocks: no.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "device/context/device.h"
#include "device/transfer/landmark.h"

namespace kvbm::device {

// Returns the context that `stream` belongs to; that of the device for 0 and the streams that the driver knows by
// number. invalid_argument: a stream of another device, of a context that is gone, one under capture into a graph, or
// no stream at all; tier_disabled.
Result<CuContext> context_of(Device& device, CuStream stream);

// Converts the result of a call on a caller's stream, which may have been destroyed since context_of(). Such an error
// concerns the stream, and does not lose the device unless the device's own context is gone. `what` is static and names
// the call.
Status check_on_stream(Device& device, CuResult result, CuContext context, const char* what);

class StreamPoint {
 public:
  // Records the present state of `stream`. Errors: as context_of(); no_memory.
  static Result<std::shared_ptr<StreamPoint>> take(std::shared_ptr<Device> device, LandmarkPool& landmarks,
                                                   CuStream stream);
  ~StreamPoint();
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;

  // Makes work enqueued on `ours` from now on wait for the point. The device's context is current.
  Status order(CuStream ours) const;
  // Returns whether the stream has reached the point; also true if the driver says that it never will. The context is
  // current.
  [[nodiscard]] bool reached() const;
  // Returns the driver's answer: kCuSuccess when the stream has reached the point, kCuNotReady before, else it never
  // will.
  [[nodiscard]] CuResult query() const;
  // Landmarks that the stream waits for before it reaches the point.
  [[nodiscard]] const std::vector<LandmarkNeed>& needs() const noexcept { return needs_; }

 private:
  StreamPoint(std::shared_ptr<Device> device, CuContext context) : device_(std::move(device)), context_(context) {}
  const std::shared_ptr<Device> device_;
  const CuContext context_;
  CuEvent event_ = nullptr;
  std::vector<LandmarkNeed> needs_;
};

}  // namespace kvbm::device
