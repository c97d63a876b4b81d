// A fake of the CUDA driver in host memory, for tests of logic and of faults: it moves real bytes in real order and says
// nothing about the speed or the behaviour of a device. Its devices are called "kvbm fake device".
//
// Device allocations are host memory in a registry, so that copies and emulated kernels move bytes and reach no further
// than a device would. A stream is a queue with a thread of its own: work is done in order within a stream and in any
// order between streams. One FakeCuda lives at a time in a process (the entries of a driver's table have no context);
// making another one after it starts from nothing. The same is a shared library, libtest_cuda_driver.so, with the names
// of libcuda (modules/cuda_driver.cc), set up by the text of `apply` in the environment variable KVBM_FAKE_CUDA.
//
// Stricter than a device, so that what passes here is not by luck: a context must be current wherever the driver may
// want one; handles and addresses are never used twice; device memory begins with bytes that are not zero.
// Looser: nothing is timed, and no stream waits for the null stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/driver.h"

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
  bool stream_memory_64 = true;  // streams wait for words
  int compute_mode = 0;
  bool direct_rdma = true;  // GPUDirect RDMA, as the attributes say it
  bool dma_buf = true;
  int direct_flushes = device::kCuFlushByHost;
  int direct_ordering = device::kCuOrderingOwner;
};

struct FakeCudaOptions {
  std::vector<FakeDevice> devices = {FakeDevice{}};
  int version = 13000;
  device::CuResult init = device::kCuSuccess;   // what cuInit says; kCuNoDevice by itself where there are no devices
  device::CuResult image = device::kCuSuccess;  // what loading a module says: kCuNoBinaryForGpu
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
  void** parameters = nullptr;  // copied when it was launched, as the driver does
  int ordinal = 0;
  // Whether a kernel on this device may touch [address, address + bytes). What is outside is for the kernel to report,
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

  // Lives as long as the process; its entries say kCuDeinitialized while no FakeCuda lives.
  [[nodiscard]] const device::Driver& driver() const;

  // A function that modules have, with the size of each of its parameters.
  void add_kernel(const std::string& name, std::vector<size_t> parameter_bytes, FakeKernel kernel);

  // What an engine does in the same process, with the primary context that kvbm shares. No fault is injected into these.
  device::CuPointer allocate(int ordinal, size_t bytes);
  device::CuPointer allocate_managed(int ordinal, size_t bytes);
  // One reserved address range mapped piece by piece (a multiple of 4 KiB each), as by virtual memory management; pieces
  // can be freed one by one.
  device::CuPointer allocate_in_pieces(int ordinal, size_t piece_bytes, size_t pieces);
  void free(device::CuPointer pointer);
  device::CuStream make_stream(int ordinal);
  void synchronize(device::CuStream stream);
  // Work of the engine's on its stream, between memory of that stream's device; false where there is no such stream.
  bool copy(device::CuPointer to, device::CuPointer from, size_t bytes, device::CuStream stream);
  [[nodiscard]] bool idle(device::CuStream stream) const;
  // Begins and ends a capture of a stream into a graph, in global mode: as long as it lasts, entries that are not safe
  // beside it are refused, in any thread that has not said that it knows, and end the capture as the driver ends it.
  void capture(device::CuStream stream, bool on);
  [[nodiscard]] bool capture_is_whole(device::CuStream stream) const;
  void wait_idle();  // until every stream that is not held has nothing left

  // Faults. The nth call from now of an entry, by the table's name ("cuMemAlloc"; n from 1), and `count` - 1 calls after
  // it do nothing and return `code`; nothing else changes.
  void fail(const std::string& entry, uint64_t nth, device::CuResult code, uint64_t count = 1);
  // The nth call from now of an entry does not return before `until` says so (asked now and then, under no lock; none:
  // never), and then goes on as it would have. unblock(), or the end of this, ends it without an effect, as
  // kCuDeinitialized.
  void block(const std::string& entry, uint64_t nth = 1, std::function<bool()> until = {});
  void unblock();
  [[nodiscard]] size_t blocked() const;  // calls that are so kept
  // The nth execution from now of a kernel (any where the name is empty) ends with `code`, and the device with it.
  void fail_kernel(const std::string& name, uint64_t nth, device::CuResult code);
  // From now on everything on this device's context says `code`, work in flight is dropped.
  void lose(int ordinal, device::CuResult code = device::kCuLaunchFailed);
  // As cudaDeviceReset by somebody else in the process: the context and all in it are gone, its memory too.
  void destroy_context(int ordinal);
  // A stream that does not get on: what it runs ends, nothing more begins until it is released.
  void hold(device::CuStream stream);
  void release(device::CuStream stream);
  void hold_all(bool held);  // every stream, later ones too

  // "devices=2,version=11080,init=100,image=209,major=7,minor=5,memory=1048576,maps_host=0,integrated=1,read_only=0,waits=0,direct=0,ordering=0,brings_kernels=0,
  // refuse_own_ipc=1,fail=cuMemAlloc:3:2,lose=0:719,destroy=0,hold=1"; false where a word is not understood. What says
  // how a device is counts for devices not yet opened.
  bool apply(const std::string& text);

  // What happened and what is left.
  [[nodiscard]] uint64_t calls(const std::string& entry) const;
  [[nodiscard]] uint64_t launches(const std::string& kernel) const;  // executed
  [[nodiscard]] uint64_t copied_bytes() const;
  struct Left {
    size_t device_allocations = 0, host_allocations = 0, registrations = 0, ipc_mappings = 0;
    size_t streams = 0, events = 0, modules = 0, contexts = 0;
    uint64_t device_bytes = 0;
  };
  [[nodiscard]] Left left(int ordinal) const;  // not what the engine's calls above made
  [[nodiscard]] std::vector<device::CuStream> streams(int ordinal) const;
  [[nodiscard]] bool reaches(int ordinal, const void* address, size_t bytes, bool writes) const;

  class State;

 private:
  std::shared_ptr<State> state_;  // threads of streams keep it a moment longer
};

}  // namespace kvbm::test
