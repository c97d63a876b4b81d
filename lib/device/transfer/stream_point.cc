#include "device/transfer/stream_point.h"

#include "device/driver/driver_error.h"

namespace kvbm::device {

namespace {

constexpr const char* kNoStream = "the driver knows no such stream: it was destroyed, or is none of this process's";
constexpr const char* kNoContext = "the stream's context was destroyed";
constexpr const char* kOtherDevice = "the stream belongs to another device than the cache";

// A captured stream would turn work into a part of the graph: it would order nothing now, and a replay of the graph
// would wait for something that only the capturing call asked for.
constexpr const char* kCaptured =
    "the stream is being captured into a graph: give kvbm a stream that is not, outside of the capture";

// Returns true for results that say that the caller's handle is bad, not that the device is.
bool blames_the_stream(CuResult result) noexcept {
  return result == kCuInvalidContext || result == kCuInvalidHandle || result == kCuInvalidValue ||
         result == kCuContextDestroyed;
}

Status no_stream(CuResult result) {
  const bool gone = result == kCuInvalidContext || result == kCuContextDestroyed;
  return {Code::invalid_argument, gone ? kNoContext : kNoStream};
}

// Requires that the stream's context is current.
Status check_not_captured(Device& device, CuStream stream) {
  int status = kCuCaptureNone;
  const CuResult result = device.driver().cuStreamIsCapturing(stream, &status);
  // Reported for the legacy stream while a stream ordered with it is under capture.
  if (result == kCuCaptureImplicit) return {Code::invalid_argument, kCaptured};
  if (blames_the_stream(result)) return no_stream(result);
  if (Status s = device.check(result, "cuStreamIsCapturing"); !s.ok()) return s;
  return status == kCuCaptureNone ? Status() : Status(Code::invalid_argument, kCaptured);
}

}  // namespace

Status check_on_stream(Device& device, CuResult result, CuContext context, const char* what) {
  const bool ours = context == device.context() && is_sticky(result);
  return blames_the_stream(result) && !ours ? no_stream(result) : device.check(result, what);
}

Result<CuContext> context_of(Device& device, CuStream stream) {
  if (device.is_lost()) return device.lost();
  const Driver& driver = device.driver();
  const Device::Scope scope(device);
  if (!scope.entered()) return device.lost();
  CuContext context = nullptr;
  CuResult result = driver.cuStreamGetCtx(stream, &context);
  if (result == kCuCaptureImplicit) return Status(Code::invalid_argument, kCaptured);
  if (blames_the_stream(result)) return no_stream(result);
  if (Status s = device.check(result, "cuStreamGetCtx"); !s.ok()) return s;
  if (context == device.context()) {
    if (Status s = check_not_captured(device, stream); !s.ok()) return s;
    return context;
  }
  const ContextScope entered(driver, context);
  if (entered.result() != kCuSuccess) return Status(Code::invalid_argument, kNoContext);
  CuDevice theirs = -1;
  CuDevice ours = -1;
  if (driver.cuCtxGetDevice(&theirs) != kCuSuccess) return Status(Code::invalid_argument, kNoContext);
  if (Status s = device.check(driver.cuDeviceGet(&ours, device.facts().ordinal), "cuDeviceGet"); !s.ok()) return s;
  if (theirs != ours) return Status(Code::invalid_argument, kOtherDevice);
  if (Status s = check_not_captured(device, stream); !s.ok()) return s;
  return context;
}

Result<std::shared_ptr<StreamPoint>> StreamPoint::take(std::shared_ptr<Device> device, LandmarkPool& landmarks,
                                                       CuStream stream) {
  Result<CuContext> context = context_of(*device, stream);
  if (!context.ok()) return context.status();
  std::shared_ptr<StreamPoint> point(new StreamPoint(device, context.value()));
  point->needs_ = landmarks.needs_of(context.value(), stream);
  const DriverCall watched(&device->watch());
  const Driver& driver = device->driver();
  // An event and the stream that it is recorded on must be of one context; any context may wait for it.
  const ContextScope entered(driver, context.value());
  if (entered.result() != kCuSuccess) return Status(Code::invalid_argument, kNoContext);
  CuResult result = context.value() == device->context() ? device->take_event(&point->event_)
                                                         : driver.cuEventCreate(&point->event_, kCuEventDisableTiming);
  if (Status s = check_on_stream(*device, result, context.value(), "cuEventCreate"); !s.ok()) return s;
  result = driver.cuEventRecord(point->event_, stream);
  if (Status s = check_on_stream(*device, result, context.value(), "cuEventRecord"); !s.ok()) return s;
  return point;
}

StreamPoint::~StreamPoint() {
  if (event_ == nullptr) return;
  // Points end with operations and batches, on threads that must not wait for the driver.
  if (context_ == device_->context()) {
    device_->give_back_event(event_);
    return;
  }
  const DriverCall watched(&device_->watch());
  const ContextScope entered(device_->driver(), context_);
  // If the context is gone, its events went with it.
  if (entered.result() == kCuSuccess) (void)device_->driver().cuEventDestroy(event_);
}

Status StreamPoint::order(CuStream ours) const {
  const CuResult result = device_->driver().cuStreamWaitEvent(ours, event_, 0);
  // Another context of this device may end without the device being lost.
  if (context_ != device_->context() && blames_the_stream(result)) return no_stream(result);
  return device_->check(result, "cuStreamWaitEvent");
}

bool StreamPoint::reached() const { return query() != kCuNotReady; }

CuResult StreamPoint::query() const { return device_->driver().cuEventQuery(event_); }

}  // namespace kvbm::device
