#include "support/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "support/fake_cuda/fake_state.h"

namespace kvbm::test {

using namespace kvbm::device;

namespace {

using Guard = std::lock_guard<std::mutex>;
using Kind = FakeRange::Kind;

constexpr char kOwnKernels[] = "kernels of the kvbm fake device";

}  // namespace

const Driver& fake_driver_table() {
  static const Driver table = [] {
    Driver driver;
    add_fake_device_entries(driver);
    add_fake_memory_entries(driver);
    add_fake_stream_entries(driver);
    add_fake_ipc_entries(driver);
    return driver;
  }();
  return table;
}

bool FakeLaunch::reaches(const void* address, size_t bytes, bool writes) const {
  // Remembers the ranges of the last accesses. Emulated kernels ask about every access, mostly in a range asked about
  // just before, which is found here without the lock. There are several entries, because a kernel accesses jobs,
  // leaves, records, results and hashes in turn.
  struct Found {
    const FakeCuda::State* state = nullptr;
    uint64_t version = 0;
    int ordinal = -1;
    bool writes = false;
    uintptr_t start = 0, end = 0;
  };
  thread_local std::array<Found, 8> last;
  thread_local size_t oldest = 0;
  FakeCuda::State* state = FakeCuda::State::current();
  if (state == nullptr) return false;
  const auto start = reinterpret_cast<uintptr_t>(address);
  const uint64_t version = state->ranges_version.load(std::memory_order_acquire);
  for (const Found& found : last) {
    if (start < found.start || start >= found.end || bytes > found.end - start) continue;
    if (found.state == state && found.ordinal == ordinal && (found.writes || !writes) && found.version == version)
      return true;
  }
  const Guard lock(state->mutex);
  if (state->reach(ordinal, start, bytes, writes, true) != Reach::inside) return false;
  if (const FakeRange* range = state->find_range(start);
      range != nullptr && bytes <= range->start + range->bytes - start) {
    last[oldest++ % last.size()] = {state,        state->ranges_version.load(std::memory_order_relaxed),
                                    ordinal,      writes,
                                    range->start, range->start + range->bytes};
  }
  return true;
}

FakeCuda::FakeCuda(FakeCudaOptions options) : state_(std::make_shared<State>(std::move(options))) { state_->begin(); }
FakeCuda::~FakeCuda() { state_->end(); }

const Driver& FakeCuda::driver() const {
  static const Driver bringing = [] {
    Driver driver = fake_driver_table();
    driver.own_kernels = kOwnKernels;
    return driver;
  }();
  return state_->options.brings_kernels ? bringing : fake_driver_table();
}

void FakeCuda::add_kernel(const std::string& name, std::vector<size_t> parameter_bytes, FakeKernel kernel) {
  const Guard lock(state_->mutex);
  state_->kernels[name] = State::Kernel{std::move(parameter_bytes), std::move(kernel), 0};
}

CuPointer FakeCuda::allocate(int ordinal, size_t bytes) { return allocate_in_pieces(ordinal, bytes, 1); }

CuPointer FakeCuda::allocate_managed(int ordinal, size_t bytes) {
  const Guard lock(state_->mutex);
  uintptr_t start = 0;
  state_->allocate(state_->retain(ordinal, true), bytes, 1, Kind::managed, true, &start);
  return start;
}

CuPointer FakeCuda::allocate_in_pieces(int ordinal, size_t piece_bytes, size_t pieces) {
  const Guard lock(state_->mutex);
  uintptr_t start = 0;
  state_->allocate(state_->retain(ordinal, true), piece_bytes, pieces, Kind::device, true, &start);
  return start;
}

void FakeCuda::free(CuPointer pointer) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->wait_until_idle(lock);
  FakeRange* range = state_->find_range(static_cast<uintptr_t>(pointer));
  if (range != nullptr) state_->free_range(*range);
}

CuStream FakeCuda::make_stream(int ordinal) {
  const Guard lock(state_->mutex);
  return state_->make_stream(state_->retain(ordinal, true), true);
}

void FakeCuda::synchronize(CuStream handle) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto at = state_->streams.find(handle);
  if (at == state_->streams.end()) return;
  const std::shared_ptr<FakeStream> stream = at->second;
  const uint64_t last = stream->pushed;
  state_->changed.wait(lock, [&] { return stream->finished >= last; });
}

bool FakeCuda::copy(CuPointer to, CuPointer from, size_t bytes, CuStream handle) {
  const Guard lock(state_->mutex);
  const auto at = state_->streams.find(handle);
  if (at == state_->streams.end()) return false;
  state_->push(*at->second, FakeWork{{},
                                     false,
                                     [to, from, bytes]() -> CuResult {
                                       std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                                                   bytes);
                                       return kCuSuccess;
                                     },
                                     {}});
  return true;
}

void FakeCuda::capture(CuStream handle, bool on) {
  const Guard lock(state_->mutex);
  const auto at = state_->streams.find(handle);
  if (at != state_->streams.end()) at->second->captured = on ? 1 : kCuCaptureNone;
}

bool FakeCuda::capture_is_whole(CuStream handle) const {
  const Guard lock(state_->mutex);
  const auto at = state_->streams.find(handle);
  return at != state_->streams.end() && at->second->captured == 1;
}

bool FakeCuda::idle(CuStream handle) const {
  const Guard lock(state_->mutex);
  const auto at = state_->streams.find(handle);
  return at == state_->streams.end() || at->second->finished == at->second->pushed;
}

void FakeCuda::wait_idle() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto idle = [](const auto& stream) { return stream->held || stream->finished == stream->pushed; };
  state_->changed.wait(lock, [&] {
    return std::all_of(state_->ended.begin(), state_->ended.end(), idle) &&
           std::all_of(state_->streams.begin(), state_->streams.end(), [&](const auto& e) { return idle(e.second); });
  });
}

void FakeCuda::fail(const std::string& entry, uint64_t nth, CuResult code, uint64_t count) {
  const Guard lock(state_->mutex);
  const uint64_t from = state_->entry_calls[entry] + nth;
  state_->entry_faults.push_back(State::Fault{entry, from, from + count - 1, code});
}

void FakeCuda::block(const std::string& entry, uint64_t nth, std::function<bool()> until) {
  const Guard lock(state_->mutex);
  state_->blocks.push_back({entry, state_->entry_calls[entry] + nth, std::move(until)});
}

void FakeCuda::unblock() {
  const Guard lock(state_->mutex);
  state_->blocks.clear();
  state_->changed.notify_all();
}

size_t FakeCuda::blocked() const {
  const Guard lock(state_->mutex);
  return state_->kept;
}

void FakeCuda::fail_kernel(const std::string& name, uint64_t nth, CuResult code) {
  const Guard lock(state_->mutex);
  const uint64_t from = (name.empty() ? state_->executions : state_->kernels[name].executed) + nth;
  state_->kernel_faults.push_back(State::Fault{name, from, from, code});
}

void FakeCuda::lose(int ordinal, CuResult code) {
  const Guard lock(state_->mutex);
  state_->lose(state_->retain(ordinal, true), code);
}

void FakeCuda::destroy_context(int ordinal) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  FakeContext* context = state_->context_of(ordinal);
  if (context != nullptr) state_->destroy(*context, lock);
}

void FakeCuda::hold(CuStream handle) {
  const Guard lock(state_->mutex);
  if (const auto at = state_->streams.find(handle); at != state_->streams.end()) at->second->held = true;
}

void FakeCuda::release(CuStream handle) {
  const Guard lock(state_->mutex);
  if (const auto at = state_->streams.find(handle); at != state_->streams.end()) at->second->held = false;
  for (auto& stream : state_->ended) {
    if (stream->handle == handle) stream->held = false;
  }
  state_->changed.notify_all();
}

void FakeCuda::hold_all(bool held) {
  const Guard lock(state_->mutex);
  state_->hold_new = held;
  for (auto& [handle, stream] : state_->streams) stream->held = held;
  for (auto& stream : state_->ended) stream->held = held;
  state_->changed.notify_all();
}

uint64_t FakeCuda::calls(const std::string& entry) const {
  const Guard lock(state_->mutex);
  const auto at = state_->entry_calls.find(entry);
  return at == state_->entry_calls.end() ? 0 : at->second;
}

uint64_t FakeCuda::launches(const std::string& kernel) const {
  const Guard lock(state_->mutex);
  const auto at = state_->kernels.find(kernel);
  return at == state_->kernels.end() ? 0 : at->second.executed;
}

uint64_t FakeCuda::copied_bytes() const {
  const Guard lock(state_->mutex);
  return state_->copied;
}

FakeCuda::Left FakeCuda::left(int ordinal) const {
  const Guard lock(state_->mutex);
  Left left;
  const FakeContext* context = state_->context_of(ordinal);
  if (context == nullptr) return left;
  const CuContext own = context->handle;
  left.contexts = static_cast<size_t>(context->retained - (context->engine ? 1 : 0));
  for (const auto& [start, range] : state_->ranges) {
    if (range.context != own || range.engine || range.kind == Kind::freed) continue;
    left.registrations += range.kind == Kind::registered;
    left.host_allocations += range.kind == Kind::pinned;
    left.ipc_mappings += range.foreign;
    if (range.kind != Kind::device || range.foreign) continue;
    ++left.device_allocations;
    left.device_bytes += range.bytes;
  }
  for (const auto& [handle, stream] : state_->streams) left.streams += stream->context == own && !stream->engine;
  for (const auto& [handle, event] : state_->events) left.events += event.context == own;
  for (const auto& [handle, module] : state_->modules) left.modules += module.context == own;
  return left;
}

std::vector<CuStream> FakeCuda::streams(int ordinal) const {
  const Guard lock(state_->mutex);
  std::vector<CuStream> out;
  for (const auto& [handle, stream] : state_->streams) {
    if (stream->ordinal == ordinal && !stream->engine) out.push_back(handle);
  }
  return out;
}

bool FakeCuda::reaches(int ordinal, const void* address, size_t bytes, bool writes) const {
  const Guard lock(state_->mutex);
  return state_->reach(ordinal, reinterpret_cast<uintptr_t>(address), bytes, writes, true) == Reach::inside;
}

namespace {

// Splits "a:b:c" into its parts.
std::vector<std::string> parts_of(std::string_view text, char between) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(between, from), text.size());
    parts.emplace_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

// Applies one word about devices to every device. Returns false if the word is not about devices.
bool set_device(FakeDevice& device, const std::string& key, uint64_t value) {
  if (key == "major")
    device.major = static_cast<int>(value);
  else if (key == "minor")
    device.minor = static_cast<int>(value);
  else if (key == "memory")
    device.memory_bytes = value;
  else if (key == "multiprocessors")
    device.multiprocessors = static_cast<int>(value);
  else if (key == "maps_host")
    device.maps_host = value != 0;
  else if (key == "integrated")
    device.integrated = value != 0;
  else if (key == "read_only")
    device.registers_read_only = value != 0;
  else if (key == "waits")
    device.stream_memory_64 = value != 0;
  else if (key == "direct")
    device.direct_rdma = device.dma_buf = value != 0;
  else if (key == "dma_buf")
    device.dma_buf = value != 0;
  else if (key == "ordering")
    device.direct_ordering = static_cast<int>(value);
  else if (key == "unified")
    device.unified_addressing = value != 0;
  else
    return false;
  return true;
}

bool set_option(FakeCudaOptions& options, const std::string& key, uint64_t value) {
  if (key == "version")
    options.version = static_cast<int>(value);
  else if (key == "init")
    options.init = static_cast<CuResult>(value);
  else if (key == "image")
    options.image = static_cast<CuResult>(value);
  else if (key == "brings_kernels")
    options.brings_kernels = value != 0;
  else if (key == "refuse_own_ipc")
    options.refuse_own_ipc = value != 0;
  else if (key == "devices")
    options.devices.resize(value, options.devices.empty() ? FakeDevice{} : options.devices[0]);
  else
    return false;
  return true;
}

}  // namespace

bool FakeCuda::apply(const std::string& text) {
  bool all = true;
  for (const std::string& word : parts_of(text, ',')) {
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::vector<std::string> values =
        parts_of(equals == std::string::npos ? "" : std::string_view(word).substr(equals + 1), ':');
    const uint64_t first = number(values[0]);
    if (key == "fail" && values.size() == 3) {
      fail(values[0], number(values[1]), static_cast<CuResult>(number(values[2])));
    } else if (key == "fail_kernel" && values.size() == 3) {
      fail_kernel(values[0], number(values[1]), static_cast<CuResult>(number(values[2])));
    } else if (key == "lose" && values.size() == 2) {
      lose(static_cast<int>(first), static_cast<CuResult>(number(values[1])));
    } else if (key == "destroy") {
      destroy_context(static_cast<int>(first));
    } else if (key == "hold") {
      hold_all(first != 0);
    } else {
      const Guard lock(state_->mutex);
      bool known = set_option(state_->options, key, first);
      for (FakeDevice& device : state_->options.devices) known = set_device(device, key, first) || known;
      all = all && known;
    }
  }
  return all;
}

}  // namespace kvbm::test
