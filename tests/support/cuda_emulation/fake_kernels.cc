#include "support/cuda_emulation/fake_kernels.h"

#include <cstdio>

#include "device/kernels/leaf_job.h"
#include "support/cuda_emulation/kernels.h"

namespace kvbm::test {
namespace {

constexpr device::CuResult kMisaligned = 716;  // CUDA_ERROR_MISALIGNED_ADDRESS

device::CuResult result_of(emulation::Outcome::Kind kind) {
  switch (kind) {
    case emulation::Outcome::Kind::ok:
      return device::kCuSuccess;
    case emulation::Outcome::Kind::illegal_address:
      return device::kCuIllegalAddress;
    case emulation::Outcome::Kind::misaligned:
      return kMisaligned;
    case emulation::Outcome::Kind::divergent:  // a device hangs, or continues with wrong values
    case emulation::Outcome::Kind::trapped:
    case emulation::Outcome::Kind::invalid_launch:
      return device::kCuLaunchFailed;
  }
  return device::kCuUnknown;
}

// Device memory and pinned memory of the fake lie at their own addresses.
template <class T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

emulation::Dim dim_of(const FakeLaunch::Dim& d) { return {d.x, d.y, d.z}; }

}  // namespace

void add_emulated_kernels(FakeCuda& fake) { add_emulated_kernels(fake, {}); }

void add_emulated_kernels(FakeCuda& fake, AfterKernel after) {
  for (const emulation::EmulatedKernel& kernel : emulation::emulated_kernels()) {
    fake.add_kernel(kernel.name, kernel.parameter_bytes, [&kernel, after](const FakeLaunch& launch) {
      emulation::Options options;
      options.reaches = [&launch](const void* address, size_t bytes, bool writes) {
        return launch.reaches(address, bytes, writes);
      };
      const emulation::LaunchShape shape{dim_of(launch.grid), dim_of(launch.block), launch.shared_bytes};
      const emulation::Outcome outcome = kernel.run(shape, options, launch.parameters);
      if (!outcome.ok()) std::fprintf(stderr, "emulated %s: %s\n", kernel.name.c_str(), outcome.text.c_str());
      if (after) after(kernel.name, launch);
      return result_of(outcome.kind);
    });
  }
}

bool has_job_at(const FakeLaunch& launch, const void* address) {
  const auto* const jobs = at<const device::LeafJob>(launch.parameter<uint64_t>(0));
  for (uint32_t i = 0; i < launch.parameter<uint32_t>(1); ++i) {
    if (at<const void>(jobs[i].run.address) == address) return true;
  }
  return false;
}

void spoil_first_record(const FakeLaunch& launch) {
  *at<std::byte>(at<const device::LeafJob>(launch.parameter<uint64_t>(0))->record) ^= std::byte{1};
}

}  // namespace kvbm::test
