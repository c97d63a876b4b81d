#include "device/context/device_link.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <fstream>

namespace kvbm::device {

namespace {

constexpr uint64_t kUnknown = 256ULL << 10;
constexpr uint64_t kLeast = 16ULL << 10;
constexpr uint64_t kMost = 1ULL << 20;
// 8 KiB for each GT/s of 16 lanes: 5 us at 0.125 GB/s a lane and GT/s, less encoding and framing, are about as much.
constexpr double kBytesPerTransfer = 512;
constexpr unsigned kMostLanes = 32;

// Returns the number that a file begins with ("32.0 GT/s PCIe"); 0 if there is none.
double number_in(const std::string& file) {
  std::ifstream in(file);
  double out = 0;
  return in >> out ? out : 0;
}

}  // namespace

// Uses maximum speeds and widths, because an idle link reports a lower current speed: the lower one of the device and
// of the port that it is plugged into.
uint64_t staged_run_of_link(const std::string& pci, const std::string& devices) {
  std::string name = pci;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string folder = devices + "/" + name;
  // The folder is a link into the tree of devices, so its parent is the port's. A port without a PCIe link says
  // nothing.
  const auto of_link = [&folder](const char* file) {
    const double device = number_in(folder + file);
    const double port = number_in(folder + "/.." + file);
    return port > 0 ? std::min(device, port) : device;
  };
  const double speed = of_link("/max_link_speed");
  const double lanes = of_link("/max_link_width");
  if (!(speed > 0) || !(lanes > 0) || lanes > kMostLanes) return kUnknown;
  const auto bytes = static_cast<uint64_t>(std::min(speed * lanes * kBytesPerTransfer, static_cast<double>(kMost)));
  return std::clamp(std::bit_floor(bytes), kLeast, kMost);
}

}  // namespace kvbm::device
