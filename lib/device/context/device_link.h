// Speed of a device's link to the host, as the kernel describes its PCIe link: the driver does not report it.
#pragma once

#include <cstdint>
#include <string>

namespace kvbm::device {

// Returns the shortest run of neighbours in host memory that is worth a copy of its own on the copy engine. That is 5
// us of the link at its fastest, because one call takes 1.5 to 2.5 us and the engine as long to begin. 256 KiB on PCIe
// 5 x16, 128 KiB on PCIe 4 x16, half of it on half as many lanes; 256 KiB if the link is unknown. `pci` as DeviceFacts
// has it.
[[nodiscard]] uint64_t staged_run_of_link(const std::string& pci, const std::string& devices = "/sys/bus/pci/devices");

}  // namespace kvbm::device
