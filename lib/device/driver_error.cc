#include "device/driver_error.h"

namespace kvbm::device {

namespace {

Code code_of(CuResult result) noexcept {
  if (result == kCuSuccess) return Code::ok;
  if (is_sticky(result)) return Code::tier_disabled;
  switch (result) {
    case kCuOutOfMemory: return Code::no_memory;
    case kCuNotReady: return Code::again;
    case kCuAlreadyRegistered: return Code::exists;
    case kCuNotPermitted: return Code::not_permitted;
    case kCuNoDevice:
    case kCuInvalidDevice:
    case kCuNoBinaryForGpu:
    case kCuNotSupported:
    case kCuNotFound: return Code::unsupported;
    default: return Code::internal;  // a call of ours that the driver takes for wrong
  }
}

}  // namespace

std::string driver_error_text(const Driver& driver, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  const bool named = driver.cuGetErrorName(result, &name) == kCuSuccess && name != nullptr;
  const bool told = driver.cuGetErrorString(result, &text) == kCuSuccess && text != nullptr;
  return (named ? std::string(name) : "error") + " (" + std::to_string(result) + ")" +
         (told ? ": " + std::string(text) : "");
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
    case kCuMpsClientTerminated:
    case kCuExternalDevice:
    case kCuUnknown: return true;
    default: return false;
  }
}

Status driver_status(const Driver& driver, CuResult result, const char* what) {
  const Code code = code_of(result);
  if (code == Code::ok) return {};
  return {code, what, driver_error_text(driver, result)};
}

}  // namespace kvbm::device
