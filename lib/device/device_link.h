// How fast a device is linked to the host, by what the kernel says of its PCIe link: the driver does not tell.
#pragma once

#include <cstdint>
#include <string>

namespace kvbm::device {

// From how long a run of neighbours in host memory on the copy engine is worth a copy of its own: 5 us of the link at its
// fastest, for one call takes 1.5 to 2.5 us and the engine as long to begin. 256 KiB on PCIe 5 x16, 128 KiB on PCIe 4 x16, half of
// it on half as many lanes; 256 KiB where nothing is said of the link. `pci` as DeviceFacts has it.
[[nodiscard]] uint64_t staged_run_of_link(const std::string& pci, const std::string& devices = "/sys/bus/pci/devices");

}  // namespace kvbm::device
