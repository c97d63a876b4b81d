#include "device/driver/driver_error.h"

namespace kvbm::device {

namespace {

Code code_of(CuResult result) noexcept {
  if (result == kCuSuccess) return Code::ok;
  if (is_sticky(result)) return Code::tier_disabled;
  switch (result) {
    case kCuOutOfMemory:
      return Code::no_memory;
    case kCuNotReady:
      return Code::again;
    case kCuAlreadyRegistered:
      return Code::exists;
    case kCuNotPermitted:
      return Code::not_permitted;
    case kCuNoDevice:
    case kCuInvalidDevice:
    case kCuNoBinaryForGpu:
    case kCuNotSupported:
    case kCuNotFound:
      return Code::unsupported;
    default:
      return Code::internal;  // a call of ours that the driver regards as wrong
  }
}

constexpr CuResult kCuDeviceUnavailable = 46;

// Returns the remedy, for the operator or the author of the program.
const char* remedy_of(CuResult result) noexcept {
  switch (result) {
    case kCuOutOfMemory:
      return "free memory of the device or of the host, or lower device.staging or the engine's share";
    case kCuOutOfResources:
      return "the device has no room for another launch: end other work on it";
    case kCuDeinitialized:
      return "the process is ending: release caches and the manager before main returns";
    case kCuNoDevice:
    case kCuInvalidDevice:
      return "make a device visible to this process (CUDA_VISIBLE_DEVICES, the container)";
    case kCuDeviceUnavailable:
      return "end the process that has the device for itself (nvidia-smi)";
    case kCuInvalidImage:
    case kCuNoBinaryForGpu:
      return "install a driver as new as this build's kernels, or a build for this device";
    case kCuUncorrectableEcc:
    case kCuUncorrectableNvlink:
    case kCuContained:
      return "the hardware failed: look at nvidia-smi -q -d ECC and the system's log, and begin the process anew";
    case kCuInvalidContext:
    case kCuContextDestroyed:
      return "other code in this process reset the device or destroyed its context: begin the process anew";
    case kCuLaunchTimeout:
      return "a kernel ran too long for a device with a display: use another, and begin the process anew";
    case kCuIllegalAddress:
    case kCuAssert:
    case kCuHardwareStack:
    case kCuIllegalInstruction:
    case kCuMisalignedAddress:
    case kCuInvalidAddressSpace:
    case kCuInvalidPc:
    case kCuLaunchFailed:
    case kCuTensorMemoryLeak:
      return "a kernel of this process, kvbm's or another, failed: compute-sanitizer finds which; begin the process "
             "anew";
    case kCuAlreadyRegistered:
      return "other code in this process registered this memory: register it only once";
    case kCuNotPermitted:
      return "raise the limit of locked memory (ulimit -l), or give the container the right";
    case kCuNotSupported:
      return "this device, driver or system cannot do that";
    case kCuSystemDriverMismatch:
      return "reboot, or install libcuda and the kernel module from one release";
    case kCuMpsRpcFailure:
    case kCuMpsServerNotReady:
      return "the MPS server does not answer: look at its log, and begin the process anew";
    case kCuMpsClientTerminated:
      return "another client of the MPS server failed: begin the process anew";
    case kCuExternalDevice:
    case kCuUnknown:
      return "look at nvidia-smi and at the system's log (Xid), and begin the process anew";
    default:
      return "a fault of kvbm's or of the driver: report it with this line";
  }
}

}  // namespace

std::string driver_error_text(const Driver& driver, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  const bool named = driver.cuGetErrorName(result, &name) == kCuSuccess && name != nullptr && *name != '\0';
  const bool described = driver.cuGetErrorString(result, &text) == kCuSuccess && text != nullptr && *text != '\0';
  return (named ? std::string(name) : "an error that the driver has no name for") + " (" + std::to_string(result) +
         "): " + (described ? std::string(text) + "; " : "") + remedy_of(result);
}

bool is_sticky(CuResult result) noexcept {
  switch (result) {
    case kCuDeinitialized:
    case kCuUncorrectableEcc:
    case kCuUncorrectableNvlink:
    case kCuContained:
    case kCuIllegalAddress:
    case kCuLaunchTimeout:
    case kCuContextDestroyed:
    case kCuAssert:
    case kCuHardwareStack:
    case kCuIllegalInstruction:
    case kCuMisalignedAddress:
    case kCuInvalidAddressSpace:
    case kCuInvalidPc:
    case kCuLaunchFailed:
    case kCuTensorMemoryLeak:
    case kCuMpsRpcFailure:
    case kCuMpsServerNotReady:
    case kCuMpsClientTerminated:
    case kCuExternalDevice:
    case kCuUnknown:
      return true;
    default:
      return false;
  }
}

Status driver_status(const Driver& driver, CuResult result, const char* what) {
  const Code code = code_of(result);
  if (code == Code::ok) return {};
  return {code, what, driver_error_text(driver, result)};
}

}  // namespace kvbm::device
