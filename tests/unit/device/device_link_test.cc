// Length from which runs are staged, by the kernel's description of the device's link.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "device/context/device_link.h"
#include "support/temp_dir.h"

namespace kvbm::device::device_link_test {
namespace {

constexpr uint64_t kKiB = 1024;

class DeviceLink : public ::testing::Test {
 protected:
  // Makes folders as in /sys: the device's folder lies in that of its port, and a link leads to it.
  DeviceLink() {
    std::filesystem::create_directories(port_ + "/0000:1b:00.0");
    std::filesystem::create_directory_symlink(port_ + "/0000:1b:00.0", dir_.path() + "/0000:1b:00.0");
  }
  static void write(const std::string& folder, const std::string& file, const std::string& text) {
    std::ofstream(folder + "/" + file) << text << "\n";
  }
  void say(const std::string& file, const std::string& text) { write(port_ + "/0000:1b:00.0", file, text); }
  void say_of_port(const std::string& file, const std::string& text) { write(port_, file, text); }
  [[nodiscard]] uint64_t found() const { return staged_run_of_link("0000:1B:00.0", dir_.path()); }
  test::TempDir dir_;
  const std::string port_ = dir_.path() + "/pci0000:1a/0000:1a:01.0";
};

TEST_F(DeviceLink, staged_runs_are_five_microseconds_of_it) {
  const struct {
    const char* speed;
    const char* lanes;
    uint64_t bytes;
  } cases[] = {{"64.0 GT/s PCIe", "16", 512 * kKiB}, {"32.0 GT/s PCIe", "16", 256 * kKiB},
               {"16.0 GT/s PCIe", "16", 128 * kKiB}, {"8.0 GT/s PCIe", "16", 64 * kKiB},
               {"32.0 GT/s PCIe", "8", 128 * kKiB},  {"2.5 GT/s PCIe", "1", 16 * kKiB}};
  for (const auto& c : cases) {
    say("max_link_speed", c.speed);
    say("max_link_width", c.lanes);
    EXPECT_EQ(found(), c.bytes) << c.speed << " x" << c.lanes;
  }
}

TEST_F(DeviceLink, a_slower_or_narrower_port_counts) {
  say("max_link_speed", "32.0 GT/s PCIe");
  say("max_link_width", "16");
  say_of_port("max_link_speed", "16.0 GT/s PCIe");
  say_of_port("max_link_width", "16");
  EXPECT_EQ(found(), 128 * kKiB);
  say_of_port("max_link_width", "8");
  EXPECT_EQ(found(), 64 * kKiB);
  say_of_port("max_link_speed", "64.0 GT/s PCIe");
  say_of_port("max_link_width", "32");
  EXPECT_EQ(found(), 256 * kKiB);
  say_of_port("max_link_speed", "Unknown");
  say_of_port("max_link_width", "0");
  EXPECT_EQ(found(), 256 * kKiB);
}

TEST_F(DeviceLink, staged_runs_are_256_KiB_where_nothing_or_nonsense_is_said) {
  EXPECT_EQ(found(), 256 * kKiB);
  say("max_link_speed", "Unknown");
  say("max_link_width", "16");
  EXPECT_EQ(found(), 256 * kKiB);
  say("max_link_speed", "32.0 GT/s PCIe");
  say("max_link_width", "255");  // reported by a link that is down
  EXPECT_EQ(found(), 256 * kKiB);
}

}  // namespace
}  // namespace kvbm::device::device_link_test
