// Runs the tests of the kernels (tests/unit/device/*_kernel_test.cc), built a second time, on a device.
//
// Their jobs name memory of the host. A launch works on copies of it: every stretch that its jobs name, every array of
// results and the jobs themselves are device allocations of exactly that size. So compute-sanitizer, and the fake
// driver, stop a kernel that accesses one byte beyond. The results are copied back to the host memory of the case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/context/device.h"
#include "device/driver/driver_library.h"
#include "device/kernels/codec_job.h"
#include "device/kernels/kernel_image.h"
#include "device/kernels/leaf_job.h"
#include "device/on_device.h"
#include "support/cuda_emulation/kernels.h"

namespace kvbm::test {
namespace {

using device::CodedJob;
using device::CuResult;
using device::DeviceRun;
using device::LeafJob;

// All cases except the one in which the emulation checks every access.
constexpr const char* kNotOfDevices = "-GatherKernel.touches_nothing_beyond_the_leaf";
// Alignment that the widest access and a coded leaf need.
constexpr uint64_t kAlignment = 64;

// Memory of the host that a launch names, and its copies on the device.
class Copies {
 public:
  explicit Copies(device::Device& device) : device_(device) {}
  void name(uint64_t address, uint64_t bytes) {
    if (address != 0) stretches_.push_back({address, address + bytes, nullptr});
  }
  // Names the first `bytes` bytes of the run, including the gaps between its pieces.
  void name(const DeviceRun& run, uint64_t bytes) {
    uint64_t low = UINT64_MAX, high = 0;
    for (uint64_t at = 0; at < bytes;) {
      const uint64_t piece = at / run.piece_bytes, inside = at % run.piece_bytes;
      const uint64_t n = std::min<uint64_t>(run.piece_bytes - inside, bytes - at);
      const uint64_t begin = run.address +
                             static_cast<uint64_t>(static_cast<int64_t>(piece / run.count1) * run.stride0 +
                                                   static_cast<int64_t>(piece % run.count1) * run.stride1) +
                             inside;
      low = std::min(low, begin);
      high = std::max(high, begin + n);
      at += n;
    }
    if (low < high) name(low, high - low);
  }
  // Makes the copies: stretches that overlap or touch become one.
  void bring() {
    std::sort(stretches_.begin(), stretches_.end(),
              [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
    std::vector<Stretch> joined;
    for (Stretch& s : stretches_) {
      if (!joined.empty() && s.begin <= joined.back().end) {
        joined.back().end = std::max(joined.back().end, s.end);
      } else {
        joined.push_back(std::move(s));
      }
    }
    stretches_ = std::move(joined);
    for (Stretch& s : stretches_) {
      s.copy = std::make_unique<DeviceBytes>(device_, std::max<uint64_t>(s.end - s.begin, 1), s.begin % kAlignment);
      if (s.end != s.begin) s.copy->upload({reinterpret_cast<const std::byte*>(s.begin), s.end - s.begin});
    }
  }
  // Returns the device address for `address`.
  [[nodiscard]] uint64_t at(uint64_t address) const {
    if (address == 0) return 0;
    const auto behind = std::upper_bound(stretches_.begin(), stretches_.end(), address,
                                         [](uint64_t a, const Stretch& s) { return a < s.begin; });
    return (behind - 1)->copy->at() + address - (behind - 1)->begin;
  }
  void take_back() const {
    for (const Stretch& s : stretches_) {
      if (s.end == s.begin) continue;
      const std::vector<std::byte> bytes = s.copy->download();
      std::memcpy(reinterpret_cast<void*>(s.begin), bytes.data(), bytes.size());
    }
  }

 private:
  struct Stretch {
    uint64_t begin, end;
    std::unique_ptr<DeviceBytes> copy;
  };
  device::Device& device_;
  std::vector<Stretch> stretches_;
};

void name_memory(Copies& copies, const LeafJob& job) {
  copies.name(job.run, job.bytes);
  copies.name(job.record, job.bytes);
}
void name_memory(Copies& copies, const CodedJob& job) {
  copies.name(job.leaf.run, job.leaf.bytes);
  copies.name(job.leaf.record, job.stored_bytes);
}
void move_to(const Copies& copies, LeafJob& job) {
  job.run.address = copies.at(job.run.address);
  job.record = copies.at(job.record);
}
void move_to(const Copies& copies, CodedJob& job) { move_to(copies, job.leaf); }

template <class T>
T argument(void** parameters, size_t i) {
  T value{};
  std::memcpy(&value, parameters[i], sizeof value);
  return value;
}

// Parameters of a kernel. Its jobs, their count and `warps` come first, but kernels of coded leaves have no `warps`.
// Then come arrays of so many bytes a job, by address, and for some kernels working memory.
struct Parameters {
  std::vector<uint64_t> array_bytes;
  bool coded = false, works = false;
};
Parameters parameters_of(const std::string& kernel) {
  if (kernel == "kvbm_gather_leaves" || kernel == "kvbm_hash_leaves") return {{8}};
  if (kernel == "kvbm_scatter_leaves" || kernel == "kvbm_check_leaves") return {{8, 1}};
  if (kernel == "kvbm_poison_leaves") return {};
  const bool works = kernel == "kvbm_decode_planar" || kernel == "kvbm_quantize";
  return {{sizeof(device::CodedResult)}, true, works};
}

// The device and its module, for all cases.
class Machine {
 public:
  // An empty reason means ready; `absent`: the only problem is that there is no device.
  struct Opened {
    std::string why_not;
    bool absent = false;
  };
  Opened open() {
    const char* const named = std::getenv("KVBMTEST_CUDA");
    const auto library = device::driver_library(named != nullptr ? named : "");
    if (!library.ok()) return refused(library.status(), named);
    driver_ = &library.value()->driver;
    auto opened = device::Device::open(*driver_, 0, nullptr);
    if (!opened.ok()) return refused(opened.status(), named);
    device_ = std::move(opened).value();
    const device::Device::Scope scope(*device_);
    const CuResult result = driver_->cuModuleLoadData(&module_, device::kernel_image(*driver_));
    if (result != device::kCuSuccess) return {"the image was not loaded: " + name_of(result)};
    return {};
  }
  void close() {
    if (device_ == nullptr) return;
    {
      const device::Device::Scope scope(*device_);
      if (module_ != nullptr) (void)driver_->cuModuleUnload(module_);
    }
    device_.reset();
  }

  emulation::Outcome launch(const std::string& name, const emulation::LaunchShape& shape, void** parameters) {
    const Parameters what = parameters_of(name);
    if (what.coded) return launch_jobs<CodedJob>(name, what, shape, parameters);
    return launch_jobs<LeafJob>(name, what, shape, parameters);
  }

 private:
  template <class Job>
  emulation::Outcome launch_jobs(const std::string& kernel, const Parameters& what, const emulation::LaunchShape& shape,
                                 void** parameters) {
    const device::Device::Scope scope(*device_);
    const auto count = argument<uint32_t>(parameters, 1);
    const size_t first = what.coded ? 2 : 3;  // of the arrays
    const auto* const given = reinterpret_cast<const Job*>(argument<uint64_t>(parameters, 0));
    std::vector<Job> jobs(given, given + count);
    Copies copies(*device_);
    for (const Job& job : jobs) name_memory(copies, job);
    for (size_t i = 0; i < what.array_bytes.size(); ++i) {
      copies.name(argument<uint64_t>(parameters, first + i), what.array_bytes[i] * count);
    }
    const size_t at_work = first + what.array_bytes.size();
    if (what.works) {
      copies.name(argument<uint64_t>(parameters, at_work),
                  uint64_t{device::kCodedScratch} * device::kCodedWarps * shape.grid.x);
    }
    copies.bring();
    for (Job& job : jobs) move_to(copies, job);
    DeviceBytes jobs_there(*device_, std::max<uint64_t>(jobs.size() * sizeof(Job), 1));
    if (count != 0) jobs_there.upload({reinterpret_cast<const std::byte*>(jobs.data()), jobs.size() * sizeof(Job)});
    std::vector<uint64_t> addresses = {jobs_there.at()};
    for (size_t i = first; i < at_work + (what.works ? 1 : 0); ++i)
      addresses.push_back(copies.at(argument<uint64_t>(parameters, i)));
    std::vector<void*> passed = {&addresses[0], parameters[1]};
    if (!what.coded) passed.push_back(parameters[2]);
    for (size_t i = 1; i < addresses.size(); ++i) passed.push_back(&addresses[i]);
    const emulation::Outcome outcome = run(kernel, shape, passed.data());
    if (outcome.ok()) copies.take_back();
    return outcome;
  }
  emulation::Outcome run(const std::string& kernel, const emulation::LaunchShape& shape, void** parameters) {
    using Kind = emulation::Outcome::Kind;
    device::CuFunction function = nullptr;
    CuResult result = driver_->cuModuleGetFunction(&function, module_, kernel.c_str());
    if (result != device::kCuSuccess) return {Kind::invalid_launch, "the image has no kernel " + kernel};
    result =
        driver_->cuLaunchKernel(function, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                                shape.block.z, static_cast<unsigned>(shape.shared_bytes), nullptr, parameters, nullptr);
    if (result == device::kCuSuccess) result = driver_->cuStreamSynchronize(nullptr);
    if (result == device::kCuSuccess) return {};
    return {result == device::kCuIllegalAddress ? Kind::illegal_address : Kind::trapped,
            kernel + ": " + name_of(result)};
  }
  static Opened refused(const Status& status, const char* named) {
    return {status.message(), named == nullptr && status.code() == Code::unsupported};
  }
  [[nodiscard]] std::string name_of(CuResult result) const {
    const char* text = nullptr;
    (void)driver_->cuGetErrorName(result, &text);
    return text != nullptr ? text : std::to_string(result);
  }
  const device::Driver* driver_ = nullptr;
  std::shared_ptr<device::Device> device_;
  device::CuModule module_ = nullptr;
};

Machine& machine() {
  static Machine* const one = new Machine();  // never destroyed: the driver may end before static objects
  return *one;
}

// The only case of a program that has no device.
class WithoutDevice : public ::testing::Test {
 public:
  explicit WithoutDevice(Machine::Opened opened) : opened_(std::move(opened)) {}
  void TestBody() override {
    if (!opened_.absent) FAIL() << opened_.why_not;
    GTEST_SKIP() << opened_.why_not;
  }

 private:
  const Machine::Opened opened_;
};

// Returns the cases of one source, by its name without folder and ending; all cases if it is empty.
std::string cases_of(const std::string& file) {
  if (file.empty()) return "*";
  std::string out;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& one = *suite.GetTestInfo(j);
      if (!std::string(one.file()).ends_with("/" + file + ".cc")) continue;
      out += (out.empty() ? "" : ":") + std::string(suite.name()) + "." + one.name();
    }
  }
  return out;
}

}  // namespace

emulation::Outcome launch_here(const std::string& name, const emulation::LaunchShape& shape, void** parameters) {
  return machine().launch(name, shape, parameters);
}

}  // namespace kvbm::test

kvbm::emulation::Outcome kvbm::emulation::launch_on_device(const std::string& name, const LaunchShape& shape,
                                                           void** parameters) {
  return test::launch_here(name, shape, parameters);
}

// Usage: [--file NAME] runs only the cases of tests/unit/device/NAME.cc.
int main(int argc, char** argv) {
  using namespace kvbm::test;
  ::testing::InitGoogleTest(&argc, argv);
  const std::string cases = cases_of(argc == 3 && std::string(argv[1]) == "--file" ? argv[2] : "");
  if (cases.empty() || (argc != 1 && argc != 3)) {
    (void)std::fprintf(stderr, "usage: %s [--file NAME], of a kernel's test\n", argv[0]);
    return 2;
  }
  const Machine::Opened opened = machine().open();
  if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, cases + kNotOfDevices);
  if (!opened.why_not.empty()) {
    ::testing::RegisterTest("KernelsOnDevice", "need_a_device", nullptr, nullptr, __FILE__, __LINE__,
                            [opened]() -> ::testing::Test* { return new WithoutDevice(opened); });
    GTEST_FLAG_SET(filter, "KernelsOnDevice.need_a_device");
  }
  const int failed = RUN_ALL_TESTS();
  machine().close();
  return failed;
}
