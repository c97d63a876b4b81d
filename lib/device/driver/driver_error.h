// Meaning of the driver's results: text, Status, and whether the context can still be trusted. Thread: any.
#pragma once

#include <string>

#include "base/status.h"
#include "device/driver/driver.h"

namespace kvbm::device {

// Returns the name, the code, the driver's text and the remedy: "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory
// access was encountered; a kernel of this process, kvbm's or another, failed: compute-sanitizer finds which; begin the
// process anew".
std::string driver_error_text(const Driver& driver, CuResult result);

// Returns whether the whole context is lost, or can no longer be trusted. By the text of cuda.h (CUDA 13.0):
//   "leaves the process in an inconsistent state and any further CUDA work will return the same error": 226 contained,
//   700 illegal address, 702 launch timeout, 714 to 718 (stack, instruction, alignment, address space, program
//   counter), 719 launch failed, 721 tensor memory leak, 911 external device
//   "the context cannot be used anymore, and must be destroyed": 710 assert; the process must end: 810 MPS client
//   the MPS server, by which the device is reached, is gone for this process: 806 RPC failure, 807 server not ready
//   the context is gone: 4 the driver is shutting down, 709 context destroyed
//   bytes are wrong without any other report: 214 uncorrectable ECC, 220 uncorrectable NVLink
//   the cause is not known, so nothing is trusted: 999 unknown
bool is_sticky(CuResult result) noexcept;

// Converts a result to a Status; sticky results become tier_disabled. `what` is static and names the call.
Status driver_status(const Driver& driver, CuResult result, const char* what);

}  // namespace kvbm::device
