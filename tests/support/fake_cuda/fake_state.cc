#include "support/fake_cuda/fake_state.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <thread>

namespace kvbm::test {

using namespace kvbm::device;

namespace {

std::atomic<FakeCuda::State*> living{nullptr};
std::atomic<uint64_t> generation{0};
std::atomic<int> under_way{0};  // calls of entries, of any state

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

FakeCuda::State::State(FakeCudaOptions given) : options(std::move(given)) {}
FakeCuda::State::~State() = default;

void FakeCuda::State::begin() {
  generation.fetch_add(1, std::memory_order_relaxed);
  living.store(this, std::memory_order_release);
}

void FakeCuda::State::end() {
  living.store(nullptr);
  std::unique_lock<std::mutex> lock(mutex);
  stopping = true;
  changed.notify_all();
  changed.wait(lock, [this] { return threads == 0; });
  unmap_all();
  lock.unlock();
  // Threads that are blocked in a call notice the end, and leave.
  while (under_way.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// Sequentially consistent, like end(): if a call does not see that the state is gone, end() sees the call.
FakeCuda::State::Call::Call() noexcept { under_way.fetch_add(1); }
FakeCuda::State::Call::~Call() { under_way.fetch_sub(1); }

FakeCuda::State* FakeCuda::State::current() noexcept { return living.load(); }

std::vector<CuContext>& fake_current_contexts() {
  thread_local std::vector<CuContext> stack;
  thread_local uint64_t of_generation = 0;
  const uint64_t now = generation.load(std::memory_order_relaxed);
  if (of_generation != now) stack.clear();
  of_generation = now;
  return stack;
}

int& fake_capture_mode() {
  thread_local int mode = kCuCaptureModeGlobal;
  return mode;
}

// Ends captures beside an unsafe call, as the driver's manual says: such a call ends the capture of any thread.
CuResult FakeCuda::State::beside_captures(const char* entry) {
  static constexpr std::string_view kUnsafe[] = {
      "cuMemAlloc",          "cuMemFree",    "cuMemHostAlloc",     "cuMemFreeHost",       "cuMemHostRegister",
      "cuMemHostUnregister", "cuEventQuery", "cuEventSynchronize", "cuStreamSynchronize", "cuModuleLoadData"};
  if (fake_capture_mode() == kCuCaptureModeRelaxed) return kCuSuccess;
  if (std::find(std::begin(kUnsafe), std::end(kUnsafe), entry) == std::end(kUnsafe)) return kCuSuccess;
  CuResult result = kCuSuccess;
  for (auto& [handle, stream] : streams) {
    if (stream->captured == kCuCaptureNone) continue;
    stream->captured = 2;  // CU_STREAM_CAPTURE_STATUS_INVALIDATED
    result = kCuCaptureUnsupported;
  }
  return result;
}

CuResult FakeCuda::State::count(const char* entry) {
  const uint64_t call = ++entry_calls[entry];
  if (const CuResult refused = beside_captures(entry); refused != kCuSuccess) return refused;
  for (const Fault& one : entry_faults) {
    if (one.what == entry && call >= one.from && call <= one.to) return one.code;
  }
  return kCuSuccess;
}

CuResult FakeCuda::State::keep(const char* entry, std::unique_lock<std::mutex>& lock) {
  const uint64_t call = entry_calls[entry] + 1;
  const auto is_this = [&](const Block& one) { return one.entry == entry && one.call == call; };
  const auto found = std::find_if(blocks.begin(), blocks.end(), is_this);
  if (found == blocks.end()) return kCuSuccess;
  const std::function<bool()> until = found->until;
  found->call = 0;  // later calls pass, and so does this one if it is checked again
  ++kept;
  changed.notify_all();
  bool goes_on = false;
  const auto released = [&] {
    if (stopping || blocks.empty()) return true;
    if (!until) return false;
    lock.unlock();
    goes_on = until();
    lock.lock();
    return goes_on;
  };
  while (!released()) changed.wait_for(lock, std::chrono::milliseconds(1));
  --kept;
  changed.notify_all();
  return goes_on ? kCuSuccess : kCuDeinitialized;
}

FakeContext* FakeCuda::State::find_context(CuContext handle) {
  const auto at = contexts.find(handle);
  return at == contexts.end() ? nullptr : &at->second;
}

FakeContext* FakeCuda::State::context_of(int ordinal) {
  for (auto& [handle, context] : contexts) {
    if (context.ordinal == ordinal && !context.destroyed) return &context;
  }
  return nullptr;
}

FakeContext& FakeCuda::State::retain(int ordinal, bool engine) {
  FakeContext* context = context_of(ordinal);
  if (context == nullptr) {
    const auto handle = next_handle<CuContext>();
    context = &contexts[handle];
    context->handle = handle;
    context->ordinal = ordinal;
  }
  if (engine && context->engine) return *context;  // an engine retains once
  context->engine |= engine;
  ++context->retained;
  return *context;
}

CuResult FakeCuda::State::usable(CuContext handle) {
  const FakeContext* context = find_context(handle);
  if (context == nullptr) return kCuInvalidContext;
  if (context->destroyed) return kCuContextDestroyed;
  return context->sticky;
}

void FakeCuda::State::lose(FakeContext& context, CuResult code) {
  if (context.sticky == kCuSuccess) context.sticky = code;
  changed.notify_all();
}

void FakeCuda::State::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  changed.wait(lock, [this] {
    const auto acts = [](const auto& stream) { return stream->acting; };
    return std::none_of(ended.begin(), ended.end(), acts) &&
           std::none_of(streams.begin(), streams.end(), [&](const auto& entry) { return acts(entry.second); });
  });
}

void FakeCuda::State::destroy(FakeContext& context, std::unique_lock<std::mutex>& lock) {
  context.destroyed = true;
  for (auto& [handle, stream] : streams) {
    if (stream->context == context.handle) stream->closing = true;
  }
  changed.notify_all();
  wait_until_idle(lock);
  for (auto at = ranges.begin(); at != ranges.end();) {
    FakeRange& range = (at++)->second;  // freeing a registered range erases it
    if (range.context == context.handle) free_range(range);
  }
}

FakeStream* FakeCuda::State::find_stream(CuStream handle, FakeContext* current) {
  // CU_STREAM_LEGACY is 1 and CU_STREAM_PER_THREAD 2; threads share one here.
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value <= 2) {
    if (current == nullptr) return nullptr;
    CuStream& own = value == 2 ? current->thread_stream : current->null_stream;
    if (own == nullptr) own = make_stream(*current, true);
    handle = own;
  }
  const auto at = streams.find(handle);
  return at == streams.end() ? nullptr : at->second.get();
}

CuStream FakeCuda::State::make_stream(FakeContext& context, bool engine) {
  auto stream = std::make_shared<FakeStream>();
  stream->handle = next_handle<CuStream>();
  stream->context = context.handle;
  stream->ordinal = context.ordinal;
  stream->engine = engine;
  stream->held = hold_new;
  streams[stream->handle] = stream;
  ++threads;
  std::thread([self = shared_from_this(), stream] { self->run(stream); }).detach();
  return stream->handle;
}

void FakeCuda::State::push(FakeStream& stream, FakeWork work) {
  stream.queue.push_back(std::move(work));
  ++stream.pushed;
  changed.notify_all();
}

bool FakeCuda::State::is_dropped(const FakeStream& stream) { return stopping || usable(stream.context) != kCuSuccess; }

void FakeCuda::State::run(const std::shared_ptr<FakeStream>& stream) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stopping || stream->closing || !stream->queue.empty(); });
    if (stream->queue.empty()) break;
    serve(*stream, lock);
  }
  std::erase(ended, stream);
  --threads;
  changed.notify_all();
}

void FakeCuda::State::serve(FakeStream& stream, std::unique_lock<std::mutex>& lock) {
  FakeWork work = std::move(stream.queue.front());
  const auto may_begin = [&] { return is_dropped(stream) || (!stream.held && (!work.ready || work.ready())); };
  while (!may_begin()) {
    if (work.polls) {
      changed.wait_for(lock, std::chrono::microseconds(200));
    } else {
      changed.wait(lock);
    }
  }
  CuResult result = kCuSuccess;
  if (!is_dropped(stream) && work.act) {
    stream.acting = true;
    lock.unlock();
    result = work.act();
    lock.lock();
    stream.acting = false;
  }
  FakeContext* context = find_context(stream.context);
  if (result != kCuSuccess && context != nullptr) lose(*context, result);
  if (work.after) work.after();
  stream.queue.pop_front();
  ++stream.finished;
  changed.notify_all();
}

int64_t fake_now_ns() { return now_ns(); }

}  // namespace kvbm::test
