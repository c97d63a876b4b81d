// Streams and events of the fake driver.
#include "support/fake_cuda/fake_state.h"

namespace kvbm::test {

using namespace kvbm::device;

namespace {

using State = FakeCuda::State;
using Lock = std::unique_lock<std::mutex>;

constexpr unsigned kWaitEq = 1, kWaitAnd = 2, kWaitNor = 3;

// Runs an entry about one stream; its context need not be the current one.
template <class Body>
CuResult on_stream(const char* name, CuStream handle, Body&& body) {
  return fake_entry(name, Need::context, [&](State& state, FakeContext* context, Lock& lock) -> CuResult {
    FakeStream* stream = state.find_stream(handle, context);
    if (stream == nullptr) return kCuInvalidHandle;
    if (CuResult result = state.usable(stream->context); result != kCuSuccess) return result;
    return body(state, *stream, lock);
  });
}

template <class Body>
CuResult on_event(const char* name, CuEvent handle, Body&& body) {
  return fake_entry(name, Need::context, [&](State& state, FakeContext*, Lock& lock) -> CuResult {
    const auto at = state.events.find(handle);
    if (at == state.events.end()) return kCuInvalidHandle;
    if (CuResult result = state.usable(at->second.context); result != kCuSuccess) return result;
    return body(state, at->second, lock);
  });
}

CuResult create_stream(CuStream* stream, unsigned flags, int) {
  return fake_entry("cuStreamCreateWithPriority", Need::context,
                    [&](State& state, FakeContext* context, Lock&) -> CuResult {
                      if ((flags & ~kCuStreamNonBlocking) != 0) return kCuInvalidValue;
                      *stream = state.make_stream(*context, false);
                      return kCuSuccess;
                    });
}

// The stream's thread still does the work that was enqueued before.
CuResult destroy_stream(CuStream handle) {
  return fake_entry("cuStreamDestroy", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    const auto at = state.streams.find(handle);
    if (at == state.streams.end()) return kCuInvalidHandle;
    at->second->closing = true;
    state.ended.push_back(at->second);
    state.streams.erase(at);
    state.changed.notify_all();
    return kCuSuccess;
  });
}

CuResult stream_context(CuStream handle, CuContext* context) {
  return on_stream("cuStreamGetCtx", handle, [&](State&, FakeStream& stream, Lock&) -> CuResult {
    *context = stream.context;
    return kCuSuccess;
  });
}

CuResult is_capturing(CuStream handle, int* status) {
  return on_stream("cuStreamIsCapturing", handle, [&](State&, FakeStream& stream, Lock&) -> CuResult {
    *status = stream.captured;
    return kCuSuccess;
  });
}

CuResult exchange_capture_mode(int* mode) {
  return fake_entry("cuThreadExchangeStreamCaptureMode", Need::initialized,
                    [&](State&, FakeContext*, Lock&) -> CuResult {
                      if (*mode < kCuCaptureModeGlobal || *mode > kCuCaptureModeRelaxed) return kCuInvalidValue;
                      std::swap(*mode, fake_capture_mode());
                      return kCuSuccess;
                    });
}

CuResult synchronize_stream(CuStream handle) {
  return on_stream("cuStreamSynchronize", handle, [&](State& state, FakeStream& found, Lock& lock) -> CuResult {
    const auto at = state.streams.find(found.handle);
    const std::shared_ptr<FakeStream> stream = at->second;  // may be destroyed by another thread meanwhile
    const uint64_t last = stream->pushed;
    state.changed.wait(lock, [&] { return state.stopping || stream->finished >= last; });
    return state.usable(stream->context);
  });
}

CuResult wait_event(CuStream handle, CuEvent event_handle, unsigned flags) {
  return on_stream("cuStreamWaitEvent", handle, [&](State& state, FakeStream& stream, Lock&) -> CuResult {
    const auto at = state.events.find(event_handle);
    if (at == state.events.end()) return kCuInvalidHandle;
    if (CuResult result = state.usable(at->second.context); result != kCuSuccess) return result;
    if (flags != 0) return kCuInvalidValue;
    if (at->second.shared) {
      const std::shared_ptr<FakeSharedEvent> shared = at->second.shared;
      const uint64_t last = shared->recorded.load(std::memory_order_acquire);
      const auto ready = [shared, last] { return shared->completed.load(std::memory_order_acquire) >= last; };
      state.push(stream, FakeWork{ready, true, {}, {}});
    } else if (at->second.last) {
      const std::shared_ptr<FakeRecord> last = at->second.last;
      state.push(stream, FakeWork{[last] { return last->done; }, false, {}, {}});
    }
    return kCuSuccess;
  });
}

bool is_reached(uint64_t now, uint64_t value, unsigned how) {
  if (how == kWaitEq) return now == value;
  if (how == kWaitAnd) return (now & value) != 0;
  if (how == kWaitNor) return ~(now | value) != 0;
  return static_cast<int64_t>(now - value) >= 0;
}

bool is_word(State& state, int ordinal, CuPointer address, bool writes) {
  return state.reach(ordinal, static_cast<uintptr_t>(address), sizeof(uint64_t), writes, true) == Reach::inside;
}

CuResult wait_value(CuStream handle, CuPointer address, uint64_t value, unsigned flags) {
  return on_stream("cuStreamWaitValue64", handle, [&](State& state, FakeStream& stream, Lock&) -> CuResult {
    const int ordinal = stream.ordinal;
    if (!state.options.devices[static_cast<size_t>(ordinal)].stream_memory_64) return kCuNotSupported;
    if (flags > kWaitNor || address % sizeof(uint64_t) != 0) return kCuInvalidValue;
    if (!is_word(state, ordinal, address, false)) return kCuInvalidValue;
    const auto ready = [&state, ordinal, address, value, flags] {
      if (!is_word(state, ordinal, address, false)) return true;  // freed meanwhile
      auto& word = *reinterpret_cast<uint64_t*>(address);
      return is_reached(std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire), value, flags);
    };
    const auto act = [&state, ordinal, address] {
      const std::lock_guard<std::mutex> inner(state.mutex);
      return is_word(state, ordinal, address, false) ? kCuSuccess : kCuIllegalAddress;
    };
    state.push(stream, FakeWork{ready, true, act, {}});
    return kCuSuccess;
  });
}

CuResult write_value(CuStream handle, CuPointer address, uint64_t value, unsigned flags) {
  return on_stream("cuStreamWriteValue64", handle, [&](State& state, FakeStream& stream, Lock&) -> CuResult {
    const int ordinal = stream.ordinal;
    if (!state.options.devices[static_cast<size_t>(ordinal)].stream_memory_64) return kCuNotSupported;
    if (flags > 1 || address % sizeof(uint64_t) != 0) return kCuInvalidValue;
    if (!is_word(state, ordinal, address, true)) return kCuInvalidValue;
    state.push(stream, FakeWork{{},
                                false,
                                [&state, ordinal, address, value] {
                                  const std::lock_guard<std::mutex> inner(state.mutex);
                                  if (!is_word(state, ordinal, address, true)) return kCuIllegalAddress;
                                  auto& word = *reinterpret_cast<uint64_t*>(address);
                                  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
                                  return kCuSuccess;
                                },
                                {}});
    return kCuSuccess;
  });
}

CuResult create_event(CuEvent* handle, unsigned flags) {
  return fake_entry("cuEventCreate", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    if ((flags & ~7U) != 0) return kCuInvalidValue;
    const bool interprocess = (flags & kCuEventInterprocess) != 0;
    if (interprocess && (flags & kCuEventDisableTiming) == 0) return kCuInvalidValue;
    FakeEvent event;
    event.context = context->handle;
    event.flags = flags;
    if (interprocess) {
      event.fd = fake_make_shared_event(&event.shared);
      if (event.fd < 0) return kCuOutOfMemory;
    }
    *handle = state.next_handle<CuEvent>();
    state.events[*handle] = std::move(event);
    return kCuSuccess;
  });
}

CuResult destroy_event(CuEvent handle) {
  return on_event("cuEventDestroy", handle, [&](State& state, FakeEvent& event, Lock&) -> CuResult {
    fake_close_shared_event(event);
    state.events.erase(handle);
    return kCuSuccess;
  });
}

CuResult record_event(CuEvent handle, CuStream stream_handle) {
  return on_stream("cuEventRecord", stream_handle, [&](State& state, FakeStream& stream, Lock&) -> CuResult {
    const auto at = state.events.find(handle);
    if (at == state.events.end()) return kCuInvalidHandle;
    FakeEvent& event = at->second;
    if (event.context != stream.context) return kCuInvalidHandle;
    if (event.shared) {
      const std::shared_ptr<FakeSharedEvent> shared = event.shared;
      const uint64_t mine = shared->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
      state.push(stream, FakeWork{{}, false, {}, [shared, mine] {
                                    uint64_t seen = shared->completed.load(std::memory_order_relaxed);
                                    while (seen < mine && !shared->completed.compare_exchange_weak(
                                                              seen, mine, std::memory_order_acq_rel)) {
                                    }
                                  }});
      return kCuSuccess;
    }
    event.last = std::make_shared<FakeRecord>();
    state.push(stream, FakeWork{{}, false, {}, [record = event.last] {
                                  record->done = true;
                                  record->ns = fake_now_ns();
                                }});
    return kCuSuccess;
  });
}

bool is_complete(const FakeEvent& event) {
  if (event.shared) {
    return event.shared->completed.load(std::memory_order_acquire) >=
           event.shared->recorded.load(std::memory_order_acquire);
  }
  return !event.last || event.last->done;
}

CuResult query_event(CuEvent handle) {
  return on_event("cuEventQuery", handle, [&](State&, FakeEvent& event, Lock&) -> CuResult {
    return is_complete(event) ? kCuSuccess : kCuNotReady;
  });
}

CuResult synchronize_event(CuEvent handle) {
  return on_event("cuEventSynchronize", handle, [&](State& state, FakeEvent& event, Lock& lock) -> CuResult {
    const FakeEvent copy = event;  // the event may be destroyed by another thread meanwhile
    while (!state.stopping && !is_complete(copy) && state.usable(copy.context) == kCuSuccess) {
      state.changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    return state.usable(copy.context);
  });
}

CuResult elapsed_time(float* ms, CuEvent from, CuEvent to) {
  return fake_entry("cuEventElapsedTime", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    const auto begin = state.events.find(from), end = state.events.find(to);
    if (begin == state.events.end() || end == state.events.end()) return kCuInvalidHandle;
    if (((begin->second.flags | end->second.flags) & kCuEventDisableTiming) != 0) return kCuInvalidHandle;
    if (!begin->second.last || !end->second.last) return kCuInvalidHandle;
    if (!begin->second.last->done || !end->second.last->done) return kCuNotReady;
    *ms = static_cast<float>(static_cast<double>(end->second.last->ns - begin->second.last->ns) * 1e-6);
    return kCuSuccess;
  });
}

}  // namespace

void add_fake_stream_entries(Driver& driver) {
  driver.cuStreamCreateWithPriority = create_stream;
  driver.cuStreamDestroy = destroy_stream;
  driver.cuStreamGetCtx = stream_context;
  driver.cuStreamIsCapturing = is_capturing;
  driver.cuThreadExchangeStreamCaptureMode = exchange_capture_mode;
  driver.cuStreamSynchronize = synchronize_stream;
  driver.cuStreamWaitEvent = wait_event;
  driver.cuStreamWaitValue64 = wait_value;
  driver.cuStreamWriteValue64 = write_value;
  driver.cuEventCreate = create_event;
  driver.cuEventDestroy = destroy_event;
  driver.cuEventRecord = record_event;
  driver.cuEventQuery = query_event;
  driver.cuEventSynchronize = synchronize_event;
  driver.cuEventElapsedTime = elapsed_time;
}

}  // namespace kvbm::test
