// Memory and events of a device from process to process, through a loaded library: the fake driver's, and, as a device
// suite, a real device's (KVBM_ON_DEVICE).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "device/context/device.h"
#include "device/driver/driver_library.h"

namespace driver_ipc_test {
namespace {

using namespace kvbm;
using namespace kvbm::device;

constexpr size_t kBytes = 10000;
// Exit status of the child if the driver shares nothing between processes: in containers, sandboxes and on MIG devices.
constexpr int kNotShared = 77;
constexpr const char* kWhyNot = "the driver shares no memory between processes here (CUDA_ERROR_NOT_SUPPORTED)";

#ifdef KVBM_ON_DEVICE
std::string library_path() {
  const char* const named = std::getenv("KVBMTEST_CUDA");
  return named != nullptr ? named : "";
}
bool may_be_absent() { return library_path().empty(); }
#else
std::string library_path() { return std::string(KVBM_TEST_MODULES) + "/libtest_cuda_driver.so"; }
bool may_be_absent() { return false; }
#endif

struct Offer {
  CuIpcHandle memory, event;
};

// State of each side: its own driver, loaded after the fork, and its own device.
struct Side {
  const Driver* cuda = nullptr;
  std::shared_ptr<Device> device;
  Status begin() {
    const auto library = driver_library(library_path());
    if (!library.ok()) return library.status();
    cuda = &library.value()->driver;
    auto opened = Device::open(*cuda, 0, nullptr);
    if (opened.ok()) device = opened.value();
    return opened.status();
  }
};

// Runs step by step; the exit status tells which one failed.
int child(int in, int out) {
  Offer offer{};
  if (::read(in, &offer, sizeof offer) != sizeof offer) return 1;
  Side side;
  if (!side.begin().ok()) return 2;
  const Device::Scope scope(*side.device);
  const Driver& cuda = *side.cuda;
  CuPointer memory = 0;
  const CuResult opened = cuda.cuIpcOpenMemHandle(&memory, offer.memory, kCuIpcLazyPeerAccess);
  if (opened == kCuNotSupported) return kNotShared;
  if (opened != kCuSuccess) return 3;
  CuEvent event = nullptr;
  if (cuda.cuIpcOpenEventHandle(&event, offer.event) != kCuSuccess) return 4;
  CuStream stream = nullptr;
  if (cuda.cuStreamCreateWithPriority(&stream, kCuStreamNonBlocking, 0) != kCuSuccess) return 5;
  // Pinned, because a copy into other memory would wait here for the event.
  void* pinned = nullptr;
  if (cuda.cuMemHostAlloc(&pinned, kBytes, kCuHostPortable) != kCuSuccess) return 14;
  const auto to = reinterpret_cast<CuPointer>(pinned);
  if (cuda.cuStreamWaitEvent(stream, event, 0) != kCuSuccess) return 6;
  if (cuda.cuMemcpyAsync(to, memory, kBytes, stream) != kCuSuccess) return 7;
  if (cuda.cuMemsetD8Async(memory, 'c', 1, stream) != kCuSuccess) return 8;
  const char waiting = 'w';
  if (::write(out, &waiting, 1) != 1) return 9;
  if (cuda.cuStreamSynchronize(stream) != kCuSuccess) return 10;
  const auto* const seen = static_cast<const char*>(pinned);
  if (std::count(seen, seen + kBytes, 'p') != kBytes) return 11;
  if (cuda.cuIpcCloseMemHandle(memory) != kCuSuccess) return 12;
  return cuda.cuEventDestroy(event) == kCuSuccess ? 0 : 13;
}

TEST(DriverIpcTest, another_process_reads_after_an_event_and_writes) {
  std::array<int, 2> down{}, up{};
  ASSERT_EQ(::pipe(down.data()) | ::pipe(up.data()), 0);
  const pid_t process = ::fork();
  ASSERT_GE(process, 0);
  if (process == 0) {
    ::close(down[1]);
    ::_exit(child(down[0], up[1]));
  }
  Side side;
  if (const Status begun = side.begin(); !begun.ok()) {
    ::close(down[1]);
    ASSERT_EQ(::waitpid(process, nullptr, 0), process);
    ASSERT_TRUE(may_be_absent() && begun.code() == Code::unsupported) << begun.message();
    GTEST_SKIP() << begun.message();
  }
  const Device::Scope scope(*side.device);
  const Driver& cuda = *side.cuda;
  CuPointer memory = 0;
  CuStream stream = nullptr;
  CuEvent gate = nullptr, event = nullptr;
  ASSERT_EQ(cuda.cuMemAlloc(&memory, kBytes), kCuSuccess);
  ASSERT_EQ(cuda.cuStreamCreateWithPriority(&stream, kCuStreamNonBlocking, 0), kCuSuccess);
  ASSERT_EQ(cuda.cuEventCreate(&gate, kCuEventDisableTiming), kCuSuccess);
  ASSERT_EQ(cuda.cuEventCreate(&event, kCuEventDisableTiming | kCuEventInterprocess), kCuSuccess);
  Offer offer{};
  const CuResult offered = cuda.cuIpcGetMemHandle(&offer.memory, memory);
  if (offered == kCuNotSupported) {
    ::close(down[1]);
    ASSERT_EQ(::waitpid(process, nullptr, 0), process);
    GTEST_SKIP() << kWhyNot;
  }
  ASSERT_EQ(offered, kCuSuccess);
  ASSERT_EQ(cuda.cuIpcGetEventHandle(&offer.event, event), kCuSuccess);
  // The stream is not at the event yet when the child waits for it: a word that is raised later holds it.
  CuPointer word = 0;
  ASSERT_EQ(cuda.cuMemAlloc(&word, 8), kCuSuccess);
  ASSERT_EQ(cuda.cuMemsetD8Async(word, 0, 8, stream), kCuSuccess);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), kCuSuccess);
  ASSERT_EQ(cuda.cuStreamWaitValue64(stream, word, 1, kCuWaitValueGeq), kCuSuccess);
  ASSERT_EQ(cuda.cuMemsetD8Async(memory, 'p', kBytes, stream), kCuSuccess);
  ASSERT_EQ(cuda.cuEventRecord(event, stream), kCuSuccess);
  ASSERT_EQ(::write(down[1], &offer, sizeof offer), static_cast<ssize_t>(sizeof offer));
  ::close(up[1]);
  char waiting = 0;
  const bool waits = ::read(up[0], &waiting, 1) == 1;
  EXPECT_EQ(cuda.cuEventQuery(event), kCuNotReady);
  CuStream other = nullptr;
  ASSERT_EQ(cuda.cuStreamCreateWithPriority(&other, kCuStreamNonBlocking, 0), kCuSuccess);
  ASSERT_EQ(cuda.cuStreamWriteValue64(other, word, 1, 0), kCuSuccess);
  int status = -1;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotShared) {
    ASSERT_EQ(cuda.cuStreamSynchronize(stream), kCuSuccess);
    GTEST_SKIP() << kWhyNot;
  }
  EXPECT_TRUE(waits) << "the child ended before it waited";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step of the child that failed";
  char first = 0;
  ASSERT_EQ(cuda.cuMemcpyAsync(reinterpret_cast<CuPointer>(&first), memory, 1, stream), kCuSuccess);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), kCuSuccess);
  EXPECT_EQ(first, 'c');
  for (const int fd : {down[0], down[1], up[0]}) ::close(fd);
}

}  // namespace
}  // namespace driver_ipc_test
