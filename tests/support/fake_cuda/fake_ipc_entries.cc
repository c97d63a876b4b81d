// Handles of the fake driver for other processes. Memory and the words of events are files without a name, which the
// other side opens through /proc. A handle is invalid once its process is gone.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "support/fake_cuda/fake_state.h"

namespace kvbm::test {

using namespace kvbm::device;

namespace {

using State = FakeCuda::State;
using Lock = std::unique_lock<std::mutex>;

constexpr uint64_t kMemory = 0x6D656D666D76626BULL, kEvent = 0x747665666D76626BULL;
constexpr CuResult kMapFailed = 205;  // CUDA_ERROR_MAP_FAILED

struct Handle {
  uint64_t what;
  int32_t process, fd;
  uint64_t file;  // distinguishes a descriptor that was closed and opened again
  uint64_t bytes;
  int32_t ordinal, unused;
};
static_assert(sizeof(Handle) <= sizeof(CuIpcHandle));

CuResult write_handle(uint64_t what, int fd, uint64_t bytes, int ordinal, CuIpcHandle* out) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return kCuInvalidValue;
  const Handle handle{what, ::getpid(), fd, info.st_ino, bytes, ordinal, 0};
  std::memset(out->reserved, 0, sizeof out->reserved);
  std::memcpy(out->reserved, &handle, sizeof handle);
  return kCuSuccess;
}

// Returns the file behind a handle, or -1.
int open_handle(const Handle& handle) {
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_ino == handle.file) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

CuResult read_handle(const State& state, const CuIpcHandle& in, uint64_t what, Handle* out) {
  std::memcpy(out, in.reserved, sizeof *out);
  if (out->what != what) return kCuInvalidValue;
  return state.options.refuse_own_ipc && out->process == ::getpid() ? kCuInvalidContext : kCuSuccess;
}

std::shared_ptr<FakeSharedEvent> map_event(int fd) {
  void* const word = ::mmap(nullptr, sizeof(FakeSharedEvent), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (word == MAP_FAILED) return nullptr;
  return {static_cast<FakeSharedEvent*>(word), [](FakeSharedEvent* p) { ::munmap(p, sizeof *p); }};
}

CuResult get_memory_handle(CuIpcHandle* handle, CuPointer pointer) {
  return fake_entry("cuIpcGetMemHandle", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    const FakeRange* range = state.find_range(static_cast<uintptr_t>(pointer));
    if (range == nullptr || range->kind != FakeRange::Kind::device || range->foreign) return kCuInvalidValue;
    return write_handle(kMemory, range->fd, range->bytes, range->ordinal, handle);
  });
}

CuResult open_memory_handle(CuPointer* pointer, CuIpcHandle in, unsigned flags) {
  return fake_entry("cuIpcOpenMemHandle", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    Handle handle{};
    if (flags != kCuIpcLazyPeerAccess) return kCuInvalidValue;
    if (CuResult result = read_handle(state, in, kMemory, &handle); result != kCuSuccess) return result;
    if (handle.ordinal != context->ordinal) return kCuInvalidValue;
    const int fd = open_handle(handle);
    if (fd < 0) return kMapFailed;
    uintptr_t start = 0;
    if (state.map_foreign(*context, fd, handle.bytes, &start) != kCuSuccess) {
      ::close(fd);
      return kMapFailed;
    }
    *pointer = start;
    return kCuSuccess;
  });
}

CuResult close_memory_handle(CuPointer pointer) {
  return fake_entry("cuIpcCloseMemHandle", Need::context, [&](State& state, FakeContext*, Lock& lock) -> CuResult {
    state.wait_until_idle(lock);
    FakeRange* range = state.find_range(static_cast<uintptr_t>(pointer));
    const bool opened = range != nullptr && range->foreign && range->start == pointer;
    if (!opened || range->kind == FakeRange::Kind::freed) return kCuInvalidValue;
    state.free_range(*range);
    return kCuSuccess;
  });
}

CuResult get_event_handle(CuIpcHandle* handle, CuEvent event) {
  return fake_entry("cuIpcGetEventHandle", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    const auto at = state.events.find(event);
    if (at == state.events.end() || !at->second.shared || at->second.opened) return kCuInvalidHandle;
    return write_handle(kEvent, at->second.fd, sizeof(FakeSharedEvent), context->ordinal, handle);
  });
}

CuResult open_event_handle(CuEvent* event, CuIpcHandle in) {
  return fake_entry("cuIpcOpenEventHandle", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    Handle handle{};
    if (CuResult result = read_handle(state, in, kEvent, &handle); result != kCuSuccess) return result;
    const int fd = open_handle(handle);
    if (fd < 0) return kMapFailed;
    FakeEvent opened;
    opened.context = context->handle;
    opened.flags = kCuEventDisableTiming;
    opened.fd = fd;
    opened.shared = map_event(fd);
    opened.opened = true;
    if (!opened.shared) {
      ::close(fd);
      return kMapFailed;
    }
    *event = state.next_handle<CuEvent>();
    state.events[*event] = std::move(opened);
    return kCuSuccess;
  });
}

}  // namespace

int fake_make_shared_event(std::shared_ptr<FakeSharedEvent>* out) {
  const int fd = ::memfd_create("kvbm fake event", MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, sizeof(FakeSharedEvent)) == 0) *out = map_event(fd);
  if (fd < 0 || *out) return fd;
  ::close(fd);
  return -1;
}

void fake_close_shared_event(FakeEvent& event) {
  if (event.fd >= 0) ::close(event.fd);
  event.fd = -1;
}

void add_fake_ipc_entries(Driver& driver) {
  driver.cuIpcGetMemHandle = get_memory_handle;
  driver.cuIpcOpenMemHandle = open_memory_handle;
  driver.cuIpcCloseMemHandle = close_memory_handle;
  driver.cuIpcGetEventHandle = get_event_handle;
  driver.cuIpcOpenEventHandle = open_event_handle;
}

}  // namespace kvbm::test
