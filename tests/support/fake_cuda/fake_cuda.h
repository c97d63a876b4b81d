// A fake of the CUDA driver in host memory, for tests of logic and of faults: it moves real bytes in real order and
// says nothing about the speed or the behaviour of a device. Its devices are called "kvbm fake device".
//
// Device allocations are host memory in a registry, so that copies and emulated kernels move bytes and reach no further
// than a device would. A stream is a queue with a thread of its own: work runs in order within a stream and in any
// order between streams. One FakeCuda lives at a time in a process, because the entries of a driver's table have no
// context; the next one starts from nothing.
// The fake is also a shared library, libtest_cuda_driver.so, with the names of libcuda (modules/cuda_driver.cc). The
// environment variable KVBM_FAKE_CUDA configures it with the text of `apply`.
//
// Stricter than a device, so that tests do not pass by luck: a context must be current wherever the driver may want
// one; handles and addresses are never reused; device memory begins with bytes that are not zero. Looser: nothing is
// timed, and no stream waits for the null stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/driver/driver.h"

namespace kvbm::test {

struct FakeDevice {
  std::string name = "kvbm fake device";
  int major = 9, minor = 0;
  int multiprocessors = 16;
  int copy_engines = 2;
  uint64_t memory_bytes = 1ULL << 30;
  bool maps_host = true;
  bool integrated = false;
  bool registers_read_only = true;
  bool unified_addressing = true;
  bool stream_memory_64 = true;  // streams can wait for words
  int compute_mode = 0;
  bool direct_rdma = true;  // GPUDirect RDMA, by its attribute
  bool dma_buf = true;
  int direct_flushes = device::kCuFlushByHost;
  int direct_ordering = device::kCuOrderingOwner;
};

struct FakeCudaOptions {
  std::vector<FakeDevice> devices = {FakeDevice{}};
  int version = 13000;
  device::CuResult init = device::kCuSuccess;   // result of cuInit; kCuNoDevice by itself without devices
  device::CuResult image = device::kCuSuccess;  // result of loading a module: kCuNoBinaryForGpu
  bool brings_kernels = true;                   // Driver::kernels is set: no embedded image is needed
  bool refuse_own_ipc = false;                  // as the driver does: a handle is not opened where it was made
};

// One launch, as an emulated kernel sees it.
struct FakeLaunch {
  struct Dim {
    unsigned x = 1, y = 1, z = 1;
  };
  Dim grid, block;
  unsigned shared_bytes = 0;
  void** parameters = nullptr;  // copied at the launch, as the driver does
  int ordinal = 0;
  // Returns whether a kernel on this device may touch [address, address + bytes). The kernel reports an access outside,
  // as kCuIllegalAddress, before it touches anything.
  [[nodiscard]] bool reaches(const void* address, size_t bytes, bool writes) const;

  template <class T>
  [[nodiscard]] const T& parameter(size_t i) const {
    return *static_cast<const T*>(parameters[i]);
  }
};

// Returns kCuSuccess, or the error that the device ends with. Runs on the stream's thread, under no lock.
using FakeKernel = std::function<device::CuResult(const FakeLaunch&)>;

class FakeCuda {
 public:
  explicit FakeCuda(FakeCudaOptions options = {});
  ~FakeCuda();  // ends every stream, also one that hangs
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // Returns the table, which lives as long as the process; its entries return kCuDeinitialized while no FakeCuda lives.
  [[nodiscard]] const device::Driver& driver() const;

  // Adds a function to all modules, with the size of each of its parameters.
  void add_kernel(const std::string& name, std::vector<size_t> parameter_bytes, FakeKernel kernel);

  // Calls of an engine in the same process, with the primary context that kvbm shares. No fault is injected into these.
  device::CuPointer allocate(int ordinal, size_t bytes);
  device::CuPointer allocate_managed(int ordinal, size_t bytes);
  // One reserved address range mapped piece by piece (a multiple of 4 KiB each), as by virtual memory management;
  // pieces can be freed one by one.
  device::CuPointer allocate_in_pieces(int ordinal, size_t piece_bytes, size_t pieces);
  void free(device::CuPointer pointer);
  device::CuStream make_stream(int ordinal);
  void synchronize(device::CuStream stream);
  // Enqueues a copy of the engine on its stream, between memory of that stream's device; false if there is no such
  // stream.
  bool copy(device::CuPointer to, device::CuPointer from, size_t bytes, device::CuStream stream);
  [[nodiscard]] bool idle(device::CuStream stream) const;
  // Begins and ends a capture of a stream into a graph, in global mode. Meanwhile unsafe entries are refused in any
  // thread without the relaxed capture mode, and end the capture as in the driver.
  void capture(device::CuStream stream, bool on);
  [[nodiscard]] bool capture_is_whole(device::CuStream stream) const;
  void wait_idle();  // until every stream that is not held is empty

  // Faults. The nth call from now of an entry, by the table's name ("cuMemAlloc"; n from 1), and `count` - 1 calls
  // after it do nothing and return `code`; nothing else changes.
  void fail(const std::string& entry, uint64_t nth, device::CuResult code, uint64_t count = 1);
  // Makes the nth call from now of an entry block until `until` returns true (polled, under no lock; none: for ever);
  // then it continues normally. unblock(), or the end of this object, ends it without an effect, as kCuDeinitialized.
  void block(const std::string& entry, uint64_t nth = 1, std::function<bool()> until = {});
  void unblock();
  [[nodiscard]] size_t blocked() const;  // calls that are blocked now
  // Makes the nth execution from now of a kernel (any if the name is empty) end with `code`, and the device with it.
  void fail_kernel(const std::string& name, uint64_t nth, device::CuResult code);
  // Makes every call on this device's context return `code` from now on; work in flight is dropped.
  void lose(int ordinal, device::CuResult code = device::kCuLaunchFailed);
  // Does a cudaDeviceReset by other code in the process: the context and everything in it are gone, its memory too.
  void destroy_context(int ordinal);
  // Stops a stream: the work that it runs ends, and no more begins until release().
  void hold(device::CuStream stream);
  void release(device::CuStream stream);
  void hold_all(bool held);  // every stream, later ones too

  // Applies a configuration. Returns false if a word is unknown. Words that describe devices apply to devices not yet
  // opened. All words:
  //   devices=2,version=11080,init=100,image=209,major=7,minor=5,memory=1048576,maps_host=0,integrated=1,read_only=0,
  //   waits=0,direct=0,ordering=0,brings_kernels=0,refuse_own_ipc=1,fail=cuMemAlloc:3:2,lose=0:719,destroy=0,hold=1
  bool apply(const std::string& text);

  // Counts of calls and of remaining objects.
  [[nodiscard]] uint64_t calls(const std::string& entry) const;
  [[nodiscard]] uint64_t launches(const std::string& kernel) const;  // executed
  [[nodiscard]] uint64_t copied_bytes() const;
  struct Left {
    size_t device_allocations = 0, host_allocations = 0, registrations = 0, ipc_mappings = 0;
    size_t streams = 0, events = 0, modules = 0, contexts = 0;
    uint64_t device_bytes = 0;
  };
  [[nodiscard]] Left left(int ordinal) const;  // without objects of the engine's calls above
  [[nodiscard]] std::vector<device::CuStream> streams(int ordinal) const;
  [[nodiscard]] bool reaches(int ordinal, const void* address, size_t bytes, bool writes) const;

  class State;

 private:
  std::shared_ptr<State> state_;  // threads of streams keep it a moment longer
};

}  // namespace kvbm::test
