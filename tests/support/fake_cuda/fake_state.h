// State of the fake driver, behind one lock; see fake_cuda.h.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_cuda/fake_cuda.h"
#include "support/refused_memory.h"

namespace kvbm::test {

struct FakeRange {
  enum class Kind { device, managed, pinned, registered, freed };
  uintptr_t start = 0;
  size_t bytes = 0;
  Kind kind = Kind::device;
  int ordinal = 0;
  device::CuContext context = nullptr;
  bool read_only = false;
  bool engine = false;           // made by the engine's side of the test
  bool foreign = false;          // memory of another process
  int fd = -1;                   // of device memory
  uintptr_t reserved_start = 0;  // of the whole address range that contains this piece
  size_t reserved_bytes = 0;
};

struct FakeContext {
  device::CuContext handle = nullptr;
  int ordinal = 0;
  int retained = 0;
  bool engine = false;  // the engine's side holds one reference
  bool destroyed = false;
  device::CuResult sticky = device::kCuSuccess;
  device::CuStream null_stream = nullptr, thread_stream = nullptr;
};

// One recording of an event. A waiter keeps the recording that was the last when it began.
struct FakeRecord {
  bool done = false;
  int64_t ns = 0;
};

// Word that an event shares with other processes.
struct FakeSharedEvent {
  std::atomic<uint64_t> recorded{0};
  std::atomic<uint64_t> completed{0};
};

struct FakeEvent {
  device::CuContext context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<FakeRecord> last;
  std::shared_ptr<FakeSharedEvent> shared;  // of an event for other processes
  int fd = -1;
  bool opened = false;
};

struct FakeWork {
  std::function<bool()> ready;            // under the lock; none: at once
  bool polls = false;                     // `ready` changes without a notification
  std::function<device::CuResult()> act;  // without the lock
  std::function<void()> after;            // under the lock, also for dropped work
};

struct FakeStream {
  device::CuStream handle = nullptr;
  device::CuContext context = nullptr;
  int ordinal = 0;
  bool engine = false;
  bool held = false;
  bool closing = false;
  int captured = device::kCuCaptureNone;
  bool acting = false;  // running without the lock
  uint64_t pushed = 0, finished = 0;
  std::deque<FakeWork> queue;
};

struct FakeModule {
  device::CuContext context = nullptr;
};
struct FakeFunction {
  device::CuModule module = nullptr;
  std::string name;
};

enum class Reach { inside, outside, pageable };

class FakeCuda::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(FakeCudaOptions options);
  ~State();
  void begin();  // makes it the living one
  void end();    // waits for every stream's thread and every call; later entries do not find it

  static State* current() noexcept;
  // A call of a driver's entry; current() stays valid while it lasts.
  class Call {
   public:
    Call() noexcept;
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
  };

  // All functions below are called with the lock held.
  device::CuResult beside_captures(const char* entry);
  device::CuResult count(const char* entry);  // an injected error, if this call is to fail
  // Returns when the call is not, or no longer, blocked; success: the call continues. Called before count().
  device::CuResult keep(const char* entry, std::unique_lock<std::mutex>& lock);
  FakeContext* find_context(device::CuContext handle);
  FakeContext* context_of(int ordinal);  // the living primary context, if there is one
  FakeContext& retain(int ordinal, bool engine);
  void destroy(FakeContext& context, std::unique_lock<std::mutex>& lock);
  void wait_until_idle(std::unique_lock<std::mutex>& lock);  // before memory is unmapped
  FakeStream* find_stream(device::CuStream stream, FakeContext* current);
  device::CuStream make_stream(FakeContext& context, bool engine);
  device::CuResult usable(device::CuContext handle);  // result of a call on an object of this context
  void push(FakeStream& stream, FakeWork work);
  void lose(FakeContext& context, device::CuResult code);
  bool is_dropped(const FakeStream& stream);

  device::CuResult allocate(FakeContext& context, size_t bytes, size_t pieces, FakeRange::Kind kind, bool engine,
                            uintptr_t* start);
  device::CuResult map_foreign(FakeContext& context, int fd, size_t bytes, uintptr_t* start);
  device::CuResult allocate_host(FakeContext& context, size_t bytes, uintptr_t* start);
  void add_range(FakeRange range);
  void free_range(FakeRange& range);
  FakeRange* find_range(uintptr_t address);  // the range that contains it, freed ones too
  Reach reach(int ordinal, uintptr_t address, size_t bytes, bool writes, bool kernel);
  uint64_t used(int ordinal) const;

  template <class Handle>
  Handle next_handle() {
    last_handle_ += 16;
    return reinterpret_cast<Handle>(last_handle_);
  }

  mutable std::mutex mutex;
  std::condition_variable changed;
  FakeCudaOptions options;
  bool initialized = false;
  bool stopping = false;
  bool hold_new = false;
  uint64_t copied = 0;
  std::map<device::CuContext, FakeContext> contexts;
  std::map<uintptr_t, FakeRange> ranges;    // by start
  std::atomic<uint64_t> ranges_version{1};  // rises with every change of `ranges`
  std::map<device::CuStream, std::shared_ptr<FakeStream>> streams;
  std::vector<std::shared_ptr<FakeStream>> ended;  // destroyed streams with running threads
  size_t threads = 0;  // of streams. Counted, not joined: a process may end with running streams, as with a real driver
  std::map<device::CuEvent, FakeEvent> events;
  std::map<device::CuModule, FakeModule> modules;
  std::map<device::CuFunction, FakeFunction> functions;
  struct Kernel {
    std::vector<size_t> parameter_bytes;
    FakeKernel run;
    uint64_t executed = 0;
  };
  std::map<std::string, Kernel> kernels;
  struct Fault {
    std::string what;   // an entry, or a kernel; empty: any kernel
    uint64_t from, to;  // of the calls or executions counted from now
    device::CuResult code;
  };
  std::vector<Fault> entry_faults, kernel_faults;
  struct Block {
    std::string entry;
    uint64_t call;  // counted from the start
    std::function<bool()> until;
  };
  std::vector<Block> blocks;
  size_t kept = 0;
  std::map<std::string, uint64_t> entry_calls;
  uint64_t executions = 0;

 private:
  void run(const std::shared_ptr<FakeStream>& stream);
  void serve(FakeStream& stream, std::unique_lock<std::mutex>& lock);
  uintptr_t map_guarded(size_t bytes);
  void unmap_all();
  // Address space that was ever given out, with guard pages; kept until the end, so that no address is reused.
  std::map<uintptr_t, size_t> mappings_;
  uintptr_t last_handle_ = 0x10000;
};

int64_t fake_now_ns();

// Creates the file of an event's shared word, mapped into *out; -1 if that fails.
int fake_make_shared_event(std::shared_ptr<FakeSharedEvent>* out);
void fake_close_shared_event(FakeEvent& event);

// Returns the table with all its entries.
const device::Driver& fake_driver_table();

// Contexts current to this thread, innermost last; empty after another FakeCuda began.
std::vector<device::CuContext>& fake_current_contexts();

// Capture mode of this thread (kCuCaptureMode*).
int& fake_capture_mode();

enum class Need { nothing, initialized, context };

// First steps of every entry: finds the fake, counts the call, injects an error, checks the call's requirements.
template <class Body>
device::CuResult fake_entry(const char* name, Need need, Body&& body) {
  const FakeCuda::State::Call call;
  FakeCuda::State* state = FakeCuda::State::current();
  if (state == nullptr) return device::kCuDeinitialized;
  const InPlace driver(Place::nowhere);  // no driver throws what operator new does
  std::unique_lock<std::mutex> lock(state->mutex);
  if (const device::CuResult ended = state->keep(name, lock); ended != device::kCuSuccess) return ended;
  if (const device::CuResult injected = state->count(name); injected != device::kCuSuccess) return injected;
  if (need != Need::nothing && !state->initialized) return device::kCuNotInitialized;
  FakeContext* context = nullptr;
  if (need == Need::context) {
    std::vector<device::CuContext>& stack = fake_current_contexts();
    if (stack.empty()) return device::kCuInvalidContext;
    if (const device::CuResult result = state->usable(stack.back()); result != device::kCuSuccess) return result;
    context = state->find_context(stack.back());
  }
  return body(*state, context, lock);
}

// Functions that add the entries, by file.
void add_fake_device_entries(device::Driver& driver);
void add_fake_memory_entries(device::Driver& driver);
void add_fake_stream_entries(device::Driver& driver);
void add_fake_ipc_entries(device::Driver& driver);

}  // namespace kvbm::test
