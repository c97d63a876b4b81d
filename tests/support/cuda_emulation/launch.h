// Runs the source of a CUDA kernel on the CPU: settings of a test, and its results.
//
// A kernel's source is compiled as C++ with KVBM_CUDA_EMULATION naming support/cuda_emulation/device.h, which takes the
// place of CUDA's headers (device/kernels/cuda.cuh). Its threads are fibers. They run one at a time and are switched
// where they wait for each other: at barriers, at operations of a warp and in __nanosleep. A run finds wrong sums,
// wrong addresses and missing or divergent barriers. It misses races between two barriers that the order of threads
// hides; each seed gives another order. It does not measure speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kvbm::emulation {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Dim grid;
  Dim block;
  size_t shared_bytes = 0;  // dynamic
};

struct Options {
  uint64_t order_seed = 0;  // 0: threads take turns in order; else the order is drawn anew for each turn
  unsigned os_threads = 1;  // blocks at a time, in no order; kernels that wait for other blocks of their grid need it
  // Returns whether the device may touch [address, address + bytes); called for each access that goes through cuda.cuh.
  std::function<bool(const void* address, size_t bytes, bool writes)> reaches;
};

// Result of a launch. The first error ends it: its thread is unwound, other threads stay where they are.
struct Outcome {
  enum class Kind : uint8_t { ok, illegal_address, misaligned, divergent, trapped, invalid_launch };
  Kind kind = Kind::ok;
  std::string text;
  [[nodiscard]] bool ok() const noexcept { return kind == Kind::ok; }
};

// Runs `body` once for each thread of the grid. Thread: any; several launches at a time are legal.
Outcome run_grid(const LaunchShape& shape, const Options& options, const std::function<void()>& body);

// A kernel called as the driver does, with an array of pointers to its parameters.
struct EmulatedKernel {
  std::string name;
  std::vector<size_t> parameter_bytes;
  std::function<Outcome(const LaunchShape&, const Options&, void** parameters)> run;
};

template <class... Args>
EmulatedKernel emulated_kernel(std::string name, void (*kernel)(Args...)) {
  return {std::move(name),
          {sizeof(Args)...},
          [kernel](const LaunchShape& shape, const Options& options, void** parameters) {
            return [&]<size_t... I>(std::index_sequence<I...>) {
              const std::tuple<Args...> copies(*static_cast<const Args*>(parameters[I])...);
              return run_grid(shape, options, [&] { std::apply(kernel, copies); });
            }
            (std::index_sequence_for<Args...>{});
          }};
}

// Launches a kernel with typed arguments, for tests; their types must be the parameters'.
template <class... Args>
Outcome launch(const LaunchShape& shape, const Options& options, void (*kernel)(Args...),
               std::type_identity_t<Args>... args) {
  return run_grid(shape, options, [&] { kernel(args...); });
}

}  // namespace kvbm::emulation
