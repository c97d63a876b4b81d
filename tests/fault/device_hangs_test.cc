// Calls of the driver that never return, each in turn, under a manager with a cache on a device. Stores, loads and
// waits for layers end, the manager closes, and no calling thread stays blocked.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "device/driver/driver_library.h"
#include "manager/device/layer_waits.h"
#include "support/device_engine.h"

namespace kvbm::test::device_hangs_test {
namespace {

using layout::Form;
using std::chrono::steady_clock;

constexpr uint64_t kLostAfterNs = 300'000'000;
constexpr auto kFarEnd = std::chrono::seconds(20);  // of a call that must end after kLostAfterNs, on a busy machine
constexpr auto kPast = std::chrono::seconds(2);     // a thread of the engine that takes longer is in the blocked call

class DeviceHangs : public DeviceEngine {
 protected:
  DeviceHangs() { lost_after_ns_ = kLostAfterNs; }

  std::shared_ptr<Call> load_by_layers(const Paged& cache, uint64_t number, uint32_t first_id, bool issued) {
    auto marks = cache.cache->mark_layers(0, 0, issued);
    if (!marks.ok()) return nullptr;
    manager::LoadRequest request = load_request(cache, find(cache, 1, 4), first_id);
    request.layers = marks.value();
    cache.cache->layer_waits().add(number, manager::LayerWaits::place(std::move(marks).value()));
    return load(std::move(request));
  }

  // Makes every call of an engine once, while `entry` does not return; null: all calls do. `on_device`: a load is also
  // awaited by a word. Returns false if `entry` was not called.
  bool round(const char* entry, bool on_device = true) {
    make(32);
    Paged cache = attach_device(Form::nhd);
    fill(cache, 1);
    EXPECT_EQ(store_all(cache, 1, 0, 4).items_done, 4U);
    const device::CuStream stream = fake_.make_stream(kOrdinal);
    std::map<std::string, uint64_t> before;
    for (const device::TableEntry& symbol : device::driver_symbols()) before[symbol.entry] = fake_.calls(symbol.entry);
    if (entry != nullptr) fake_.block(entry);

    const auto began = steady_clock::now();
    std::vector<std::shared_ptr<Call>> calls{store(store_request(cache, 100, 8, 4)), load_by_layers(cache, 7, 12, true),
                                             load_by_layers(cache, 8, 16, !on_device)};
    // Driver calls of the engine's own may be the one that does not return.
    std::promise<void> past;
    auto engine_past = past.get_future();
    std::thread engine([own = cache.cache, stream, &past] {
      for (uint32_t layer = 0; layer < kLayers; ++layer) (void)own->wait_layer(7, layer, stream);
      for (uint32_t layer = 0; layer < kLayers; ++layer) (void)own->wait_layer(8, layer, stream);
      past.set_value();
    });
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i] == nullptr) continue;
      const copy::Completion done = calls[i]->wait();
      EXPECT_TRUE(entry != nullptr || done.items_done == 4U) << i;
      for (uint32_t k = 0; i > 0 && k < 4; ++k) {
        const auto id = static_cast<uint32_t>(8 + 4 * i + k);
        EXPECT_TRUE(calls[i]->status[k] != 0 || block(cache, id) == block(cache, k)) << i << ", " << k;
      }
    }
    EXPECT_LT(steady_clock::now() - began, kFarEnd);
    if (engine_past.wait_for(kPast) == std::future_status::ready) engine.join();

    ns_.reset();
    Call closing;
    manager_->shutdown([&closing] {
      MutexLock lock(closing.mutex);
      closing.over = true;
      closing.ended.notify_all();
    });
    (void)closing.wait();
    cache.cache.reset();
    manager_.reset();
    if (!engine.joinable()) executor_.reset();  // an operation that has just ended may hold the manager last
    EXPECT_LT(steady_clock::now() - began, 2 * kFarEnd);
    bool called = false;
    for (const auto& [name, calls_before] : before) {
      if (entry == nullptr && fake_.calls(name) > calls_before) called_.push_back(name);
      if (entry != nullptr && name == entry) called = fake_.calls(name) > calls_before || fake_.blocked() > 0;
    }
    fake_.unblock();
    if (engine.joinable()) engine.join();
    return called;
  }
  std::vector<std::string> called_;  // by a round, between the attach of its cache and its end
};

constexpr const char* kEntries[] = {"cuCtxPopCurrent",
                                    "cuCtxPushCurrent",
                                    "cuEventDestroy",
                                    "cuEventElapsedTime",
                                    "cuEventRecord",
                                    "cuEventSynchronize",
                                    "cuLaunchKernel",
                                    "cuMemFree",
                                    "cuMemHostUnregister",
                                    "cuStreamDestroy",
                                    "cuStreamGetCtx",
                                    "cuStreamIsCapturing",
                                    "cuStreamWaitEvent",
                                    "cuStreamWaitValue64",
                                    "cuStreamWriteValue64",
                                    "cuThreadExchangeStreamCaptureMode",
                                    "cuDevicePrimaryCtxRelease",
                                    "cuModuleUnload"};

TEST_F(DeviceHangs, are_tried_for_all_calls_that_are_made) {
  (void)round(nullptr);
  for (const std::string& entry : called_) {
    const bool known =
        std::any_of(std::begin(kEntries), std::end(kEntries), [&](const char* one) { return entry == one; });
    EXPECT_TRUE(known) << entry;
  }
}

class DeviceHangsIn : public DeviceHangs, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeviceHangsIn, keep_no_store_no_load_no_wait_and_no_end_of_a_manager) {
  const std::string entry = GetParam();
  // A word that a stream has waited for stays for ever, and the context with it.
  const bool called = round(GetParam(), entry != "cuDevicePrimaryCtxRelease" && entry != "cuModuleUnload");
  // A wait for an issued part uses an event, and a wait for one that has landed uses nothing.
  EXPECT_TRUE(called || entry == "cuStreamWaitValue64" || entry == "cuStreamWaitEvent") << "it was not called";
}

INSTANTIATE_TEST_SUITE_P(Calls, DeviceHangsIn, ::testing::ValuesIn(kEntries),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace kvbm::test::device_hangs_test
