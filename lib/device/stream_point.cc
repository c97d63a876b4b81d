#include "device/stream_point.h"

namespace kvbm::device {

namespace {

constexpr const char* kNoStream = "the stream is none of this device's, or its context is gone";
constexpr const char* kOtherDevice = "the stream belongs to another device than the cache";

// These say that the caller's handle is bad, not that the device is.
bool blames_the_stream(CuResult result) noexcept {
  return result == kCuInvalidContext || result == kCuInvalidHandle || result == kCuInvalidValue ||
         result == kCuContextDestroyed;
}

// Makes any context current; Device::Scope knows only the device's own.
class Entered {
 public:
  Entered(const Driver& driver, CuContext context) : driver_(driver), result_(driver.cuCtxPushCurrent(context)) {}
  ~Entered() {
    CuContext left = nullptr;
    if (result_ == kCuSuccess) (void)driver_.cuCtxPopCurrent(&left);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  [[nodiscard]] CuResult result() const noexcept { return result_; }

 private:
  const Driver& driver_;
  const CuResult result_;
};

}  // namespace

Result<CuContext> context_of(Device& device, CuStream stream) {
  if (device.is_lost()) return Status(Code::tier_disabled, "the device is lost");
  const Driver& driver = device.driver();
  const Device::Scope scope(device);
  if (!scope.entered()) return Status(Code::tier_disabled, "the device's context is gone");
  CuContext context = nullptr;
  CuResult result = driver.cuStreamGetCtx(stream, &context);
  if (blames_the_stream(result)) return Status(Code::invalid_argument, kNoStream);
  if (Status s = device.check(result, "cuStreamGetCtx"); !s.ok()) return s;
  if (context == device.context()) return context;
  const Entered entered(driver, context);
  if (entered.result() != kCuSuccess) return Status(Code::invalid_argument, kNoStream);
  CuDevice theirs = -1;
  CuDevice ours = -1;
  if (driver.cuCtxGetDevice(&theirs) != kCuSuccess) return Status(Code::invalid_argument, kNoStream);
  if (Status s = device.check(driver.cuDeviceGet(&ours, device.facts().ordinal), "cuDeviceGet"); !s.ok()) return s;
  if (theirs != ours) return Status(Code::invalid_argument, kOtherDevice);
  return context;
}

Result<std::shared_ptr<StreamPoint>> StreamPoint::take(std::shared_ptr<Device> device, LandmarkPool& landmarks,
                                                       CuStream stream) {
  Result<CuContext> context = context_of(*device, stream);
  if (!context.ok()) return context.status();
  std::shared_ptr<StreamPoint> point(new StreamPoint(device, context.value()));
  point->needs_ = landmarks.needs_of(context.value(), stream);
  const Driver& driver = device->driver();
  // An event and the stream that it is recorded on must be of one context; waiting for it may be anybody's.
  const Entered entered(driver, context.value());
  if (entered.result() != kCuSuccess) return Status(Code::invalid_argument, kNoStream);
  if (Status s = device->check(driver.cuEventCreate(&point->event_, kCuEventDisableTiming), "cuEventCreate"); !s.ok()) {
    return s;
  }
  const CuResult result = driver.cuEventRecord(point->event_, stream);
  if (blames_the_stream(result)) return Status(Code::invalid_argument, kNoStream);
  if (Status s = device->check(result, "cuEventRecord"); !s.ok()) return s;
  return point;
}

StreamPoint::~StreamPoint() {
  if (event_ == nullptr) return;
  const Entered entered(device_->driver(), context_);
  // Where the context is gone its events went with it.
  if (entered.result() == kCuSuccess) (void)device_->driver().cuEventDestroy(event_);
}

Status StreamPoint::order(CuStream ours) const {
  return device_->check(device_->driver().cuStreamWaitEvent(ours, event_, 0), "cuStreamWaitEvent");
}

bool StreamPoint::reached() const { return device_->driver().cuEventQuery(event_) != kCuNotReady; }

}  // namespace kvbm::device
