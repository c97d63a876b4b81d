#include "device/context/device.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/thread/memory_wait.h"
#include "device/driver/driver_error.h"
#include "device/driver/driver_thread.h"
#include "device/kernels/kernel_set.h"

namespace kvbm::device {

namespace {

constexpr char kNoDevice[] = "no usable CUDA device";
constexpr char kNoWaits[] = "layers of a load cannot be waited for on a stream";
// Loading time: a driver without machine code for the device compiles the kernels, most of a minute on a slow
// processor.
constexpr uint64_t kLoadNs = 120'000'000'000;
constexpr int kProhibited = 2;         // CU_COMPUTEMODE_PROHIBITED
constexpr CuResult kUnavailable = 46;  // CUDA_ERROR_DEVICE_UNAVAILABLE: another process uses it exclusively

int attribute(const Driver& driver, CuDevice device, int which) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, which, device) == kCuSuccess ? value : 0;
}

std::string text(const char* from) {
  std::string out(from);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

Status begin(const Driver& driver, int* version) {
  if (const CuResult result = driver.cuInit(0); result != kCuSuccess) {
    return {Code::unsupported, kNoDevice, driver_error_text(driver, result)};
  }
  if (const CuResult result = driver.cuDriverGetVersion(version); result != kCuSuccess) {
    return {Code::unsupported, kNoDevice, driver_error_text(driver, result)};
  }
  if (*version >= kOldestDriver) return {};
  return {Code::unsupported, kNoDevice,
          "the driver speaks CUDA " + cuda_version_text(*version) + "; kvbm needs " + cuda_version_text(kOldestDriver) +
              " or newer"};
}

Result<DeviceFacts> facts_of(const Driver& driver, int ordinal, int version, CuDevice* handle) {
  if (const CuResult result = driver.cuDeviceGet(handle, ordinal); result != kCuSuccess) {
    return driver_status(driver, result, "cuDeviceGet");
  }
  const CuDevice device = *handle;
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.driver_version = version;
  std::array<char, 256> name{};
  std::array<char, 64> pci{};
  size_t bytes = 0;
  if (driver.cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device) == kCuSuccess) {
    facts.name = name.data();
  }
  // Stores the PCI address in small letters, as sysfs writes it.
  if (driver.cuDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size() - 1), device) == kCuSuccess) {
    facts.pci = text(pci.data());
  }
  if (driver.cuDeviceTotalMem(&bytes, device) == kCuSuccess) facts.memory_bytes = bytes;
  if (driver.cuDeviceGetUuid(&facts.uuid, device) != kCuSuccess) facts.uuid = {};
  facts.major = attribute(driver, device, kCuMajor);
  facts.minor = attribute(driver, device, kCuMinor);
  facts.multiprocessors = attribute(driver, device, kCuMultiprocessors);
  facts.copy_engines = attribute(driver, device, kCuAsyncEngines);
  facts.integrated = attribute(driver, device, kCuIntegrated) != 0;
  facts.maps_host = attribute(driver, device, kCuCanMapHostMemory) != 0;
  facts.streams_wait_for_words = attribute(driver, device, kCuStreamMemory64) != 0;
  facts.cards_dma_buf = attribute(driver, device, kCuDmaBuf) != 0;
  facts.cards_reach = facts.cards_dma_buf || attribute(driver, device, kCuDirectRdma) != 0;
  facts.cards_ordered = attribute(driver, device, kCuDirectRdmaOrdering) >= kCuOrderingOwner;
  facts.cards_flushed = (attribute(driver, device, kCuDirectRdmaFlushes) & kCuFlushByHost) != 0;
  return facts;
}

}  // namespace

bool has_one_connection() noexcept {
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return connections != nullptr && std::strcmp(connections, "1") == 0;
}

bool has_blocking_launches() noexcept {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  return blocking != nullptr && std::atoi(blocking) != 0;
}

Result<std::vector<DeviceFacts>> list_devices(const Driver& driver) {
  int version = 0, count = 0;
  if (Status status = begin(driver, &version); !status.ok()) return status;
  if (const CuResult result = driver.cuDeviceGetCount(&count); result != kCuSuccess) {
    return driver_status(driver, result, "cuDeviceGetCount");
  }
  if (count == 0) return Status{Code::unsupported, kNoDevice, "the driver shows none"};
  std::vector<DeviceFacts> all;
  for (int i = 0; i < count; ++i) {
    CuDevice handle = -1;
    Result<DeviceFacts> facts = facts_of(driver, i, version, &handle);
    if (!facts.ok()) return facts.status();
    all.push_back(std::move(facts).value());
  }
  return all;
}

Result<std::shared_ptr<Device>> Device::open(const Driver& driver, int ordinal, Log* log, uint64_t lost_after_ns) {
  int version = 0, count = 0;
  if (Status status = begin(driver, &version); !status.ok()) return status;
  if (const CuResult result = driver.cuDeviceGetCount(&count); result != kCuSuccess) {
    return driver_status(driver, result, "cuDeviceGetCount");
  }
  if (ordinal < 0 || ordinal >= count) {
    return Status{Code::unsupported, kNoDevice,
                  "there is no device " + std::to_string(ordinal) + "; " +
                      (count == 0   ? "the driver shows none"
                       : count == 1 ? "there is only device 0"
                                    : "there are devices 0 to " + std::to_string(count - 1))};
  }
  std::shared_ptr<Device> device(new Device(driver, log, lost_after_ns));
  if (Status s = device->start(); !s.ok()) return s;
  Result<DeviceFacts> facts = facts_of(driver, ordinal, version, &device->handle_);
  if (!facts.ok()) return facts.status();
  device->facts_ = std::move(facts).value();
  device->blocking_launches_ = has_blocking_launches();
  const std::string who = "device " + std::to_string(ordinal) + " (" + device->facts_.name + ")";
  // Pointers are classified by the one address space; kernels get their jobs and answer through mapped memory.
  if (attribute(driver, device->handle_, kCuUnifiedAddressing) == 0 || !device->facts_.maps_host) {
    return Status{Code::unsupported, kNoDevice, who + " has no unified addressing or does not map host memory"};
  }
  CuContext context = nullptr;
  const CuResult retained = driver.cuDevicePrimaryCtxRetain(&context, device->handle_);
  if (retained == kUnavailable ||
      (retained != kCuSuccess && attribute(driver, device->handle_, kCuComputeMode) == kProhibited)) {
    return Status{Code::unsupported, kNoDevice,
                  who +
                      " is not for this process: its compute mode is exclusive or prohibited "
                      "(nvidia-smi -q -d COMPUTE)"};
  }
  if (retained != kCuSuccess) return driver_status(driver, retained, "cuDevicePrimaryCtxRetain");
  device->context_ = context;
  const Scope scope(*device);
  if (!scope.entered()) return Status{Code::tier_disabled, kLost, who};
  DriverCall::alive(kLoadNs);
  auto kernels = KernelSet::load(driver, ordinal, device->facts_.major, device->facts_.minor);
  if (!kernels.ok()) return kernels.status();
  device->kernels_ = std::move(kernels).value();
  return device;
}

Device::Device(const Driver& driver, Log* log, uint64_t lost_after_ns)
    : driver_(driver), log_(std::make_shared<DeviceLog>(log)), watch_(std::make_shared<DriverWatch>(lost_after_ns)) {}

Status Device::start() {
  auto thread = start_driver_thread("device", watch_->limit_ns());
  if (!thread.ok()) return thread.status();
  thread_ = std::move(thread).value();
  watch_->add([this](DriverWatch::Step step) {
    if (step == DriverWatch::Step::give_up)
      lose("a call of the driver did not return within device.lost_after", kCuSuccess);
  });
  return watch_->start();
}

Device::~Device() {
  // A forked child has neither the context nor the driver's threads.
  if (fork_guard_.forked()) {
    if (kernels_) kernels_->abandon();
    return;
  }
  thread_.reset();
  {
    const Scope scope(*this);
    if (kernels_ && !scope.entered()) kernels_->abandon();
    kernels_.reset();
  }
  drop_events();
  {
    const DriverCall watched(watch_.get());
    // Skipped if calls of the driver do not return.
    if (context_ != nullptr && !watch_->has_given_up()) (void)driver_.cuDevicePrimaryCtxRelease(handle_);
  }
  watch_->stop();
}

Status Device::check(CuResult result, const char* what) {
  if (is_sticky(result)) lose(what, result);
  // Only the first loss has a cause; later results on the device are its echo.
  if (is_lost()) {
    if (!is_sticky(result)) return lost();
    return {Code::tier_disabled, kLost, std::string(what) + ": " + driver_error_text(driver_, result)};
  }
  return driver_status(driver_, result, what);
}

void Device::note(CuResult result, const char* what) noexcept {
  if (is_sticky(result)) lose(what, result);
}

void Device::lose(const char* what, CuResult result) noexcept {
  if (is_lost()) return;
  const char* name = nullptr;
  if (result != kCuSuccess && driver_.cuGetErrorName(result, &name) != kCuSuccess) name = nullptr;
  bool first = false;
  std::call_once(losing_, [&] {
    if (result == kCuSuccess) {
      std::snprintf(lost_why_.data(), lost_why_.size(), "%s", what);
    } else {
      std::snprintf(lost_why_.data(), lost_why_.size(), "%s: %s (%d)", what,
                    name != nullptr ? name : "an error without a name", static_cast<int>(result));
    }
    lost_.store(true, std::memory_order_release);  // partner: is_lost(), for lost_why_
    first = true;
  });
  if (!first || !log_->wants(LogLevel::error)) return;
  const MemoryWait patient;
  log_->write(LogLevel::error, "the GPU is lost to kvbm until the process begins anew; its cache is not used",
              {{"device", std::to_string(facts_.ordinal)},
               {"name", facts_.name},
               {"call", what},
               {"error", result == kCuSuccess ? std::string("none that the driver named")
                                              : driver_error_text(driver_, result)}});
}

Status Device::check_waits() const {
  if (!facts_.streams_wait_for_words) {
    return {
        Code::unsupported, kNoWaits,
        "device " + std::to_string(facts_.ordinal) +
            " or its driver has no 64-bit stream memory operations; load with wait_layers = KVBM_WAIT_LAYERS_ISSUED"};
  }
  if (!blocking_launches_) return {};
  return {Code::unsupported, kNoWaits,
          "CUDA_LAUNCH_BLOCKING is set, so a launch behind the wait would block its thread; unset it or load with "
          "wait_layers = KVBM_WAIT_LAYERS_ISSUED"};
}

std::string Device::lost_why() const { return is_lost() ? std::string(lost_why_.data()) : std::string(); }

Status Device::lost() const {
  return {Code::tier_disabled, kLost,
          is_lost() ? lost_why() : std::string("this process was forked off the one that opened it")};
}

void Device::complain(const char* text, const Status& why) const {
  if (is_lost() || !log_->wants(LogLevel::warning)) return;
  log_->write(LogLevel::warning, text, {{"device", std::to_string(facts_.ordinal)}, {"error", why.message()}});
}

ContextScope::ContextScope(const Driver& driver, CuContext context) noexcept
    : driver_(driver), result_(driver.cuCtxPushCurrent(context)) {
  if (result_ != kCuSuccess) return;  // the driver must not be called then
  int mode = kCuCaptureModeRelaxed;
  if (driver.cuThreadExchangeStreamCaptureMode(&mode) == kCuSuccess) mode_before_ = mode;
}

ContextScope::~ContextScope() {
  CuContext popped = nullptr;
  if (mode_before_ >= 0) (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_before_);
  if (result_ == kCuSuccess) (void)driver_.cuCtxPopCurrent(&popped);
}

CuResult Device::take_event(CuEvent* event) noexcept {
  *event = events_.take();
  if (*event != nullptr) return kCuSuccess;
  return driver().cuEventCreate(event, kCuEventDisableTiming);
}

void Device::give_back_event(CuEvent event) noexcept {
  if (events_.give_back(CuEvent{event})) return;
  const Scope scope(*this);
  if (scope.entered()) note(driver().cuEventDestroy(event), "cuEventDestroy");
}

void Device::drop_events() noexcept {
  const std::vector<CuEvent> events = events_.close();
  const Scope scope(*this);
  for (CuEvent event : events) {
    if (scope.entered()) note(driver().cuEventDestroy(event), "cuEventDestroy");
  }
}

Device::Scope::Scope(Device& device, DriverCall::Late late) noexcept : call_(device.watch_.get(), late) {
  if (device.is_lost() || device.context_ == nullptr || device.fork_guard_.forked()) return;
  context_.emplace(device.driver_, device.context_);
  // The context is retained: it can only have been destroyed.
  if (!entered()) device.lose("cuCtxPushCurrent", context_->result());
}

Device::Scope::~Scope() { DriverCall::alive(); }

}  // namespace kvbm::device
