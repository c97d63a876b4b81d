// An attached cache on a device through kvbm.h: stored blocks are loaded bit for bit, in the order of a stream, layer
// by layer, and pages beside the blocks are unchanged.
#include <dlfcn.h>
#include <kvbm.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "device/on_device.h"

namespace kvbm::test::cache_test {
namespace {

constexpr uint32_t kBlocks = 64;
constexpr uint32_t kLayers = 6;
constexpr size_t kStored = 40;

class DeviceCache : public OnDevice, public ::testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    page_ = GetParam();
    const char* const named = std::getenv("KVBMTEST_CUDA");
    kvbm_setting_t settings[] = {{"device.library", named != nullptr ? named : ""}};
    kvbm_context_options_t context;
    kvbm_context_options_init(&context, sizeof context);
    context.settings = settings;
    context.n_settings = named != nullptr ? 1 : 0;
    ASSERT_EQ(kvbm_context_create(&context, &context_, &error_), KVBM_OK) << error_.message;
    kvbm_manager_options_t manager;
    kvbm_manager_options_init(&manager, sizeof manager);
    manager.block_bytes = kLayers * page_;
    manager.host_capacity_bytes = 2 * kBlocks * kLayers * (page_ + 4096);
    ASSERT_EQ(kvbm_manager_create(context_, &manager, &manager_, &error_), KVBM_OK) << error_.message;
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "device suite";
    ASSERT_EQ(kvbm_namespace_open(manager_, &who, &ns_, &error_), KVBM_OK) << error_.message;
    ASSERT_EQ(kvbm_queue_create(context_, 8, &queue_, &error_), KVBM_OK) << error_.message;
    SeededRandom random(page_);
    std::vector<kvbm_tensor_t> tensors;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      tensors_.push_back(std::make_unique<DeviceBytes>(device(), kBlocks * page_));
      content_.push_back(random_bytes(random, kBlocks * page_));
      tensors_.back()->upload(content_.back());
      tensors.push_back({tensors_.back()->pointer(), kBlocks * page_, 0, page_});
    }
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = tensors.data();
    part.n_tensors = tensors.size();
    kvbm_cache_options_t layout;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = kBlocks;
    layout.parts = &part;
    layout.n_parts = 1;
    layout.memory = KVBM_MEMORY_CUDA;
    ASSERT_EQ(kvbm_cache_attach(manager_, ns_, &layout, &cache_, &error_), KVBM_OK) << error_.message;
    std::vector<uint32_t> tokens(kStored * 4);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * 7);
    size_t made = 0;
    keys_.resize(kStored);
    ASSERT_EQ(kvbm_key_chain(ns_, nullptr, tokens.data(), tokens.size(), 4, nullptr, keys_.data(), kStored, &made),
              KVBM_OK);
    for (uint32_t i = 0; i < kStored; ++i) {
      from_.push_back(i * 37 % kBlocks);
      to_.push_back((i * 11 + 5) % kBlocks);
    }
    const device::Device::Scope scope(device());
    ASSERT_EQ(driver().cuStreamCreateWithPriority(&stream_, device::kCuStreamNonBlocking, 0), device::kCuSuccess);
  }
  void TearDown() override {
    kvbm_match_release(match_);
    kvbm_cache_release(cache_);
    kvbm_queue_release(queue_);
    kvbm_namespace_release(ns_);
    kvbm_manager_release(manager_);
    kvbm_context_release(context_);
    if (stream_ != nullptr) {
      const device::Device::Scope scope(device());
      (void)driver().cuStreamDestroy(stream_);
    }
    tensors_.clear();
  }

  void store() {
    kvbm_store_options_t options;
    kvbm_store_options_init(&options, sizeof options);
    options.stream = stream_;
    options.has_stream = 1;
    ASSERT_EQ(kvbm_cache_store(cache_, keys_.data(), from_.data(), kStored, &options, nullptr, 0), KVBM_OK);
  }
  void look_up() {
    size_t hits = 0;
    ASSERT_EQ(kvbm_cache_lookup(cache_, keys_.data(), kStored, nullptr, &match_, &hits), KVBM_OK);
    ASSERT_EQ(hits, kStored);
  }
  // Expects every page of `layer` to hold the stored blocks at to_, and `fill` elsewhere.
  void expect_loaded(uint32_t layer, const std::vector<std::byte>& got, std::byte fill) const {
    std::vector<std::byte> wanted(kBlocks * page_, fill);
    for (size_t i = 0; i < kStored; ++i) {
      std::memcpy(wanted.data() + to_[i] * page_, content_[layer].data() + from_[i] * page_, page_);
    }
    EXPECT_TRUE(got == wanted) << "layer " << layer;
  }
  void overwrite(unsigned char value) {
    const device::Device::Scope scope(device());
    for (const auto& tensor : tensors_) {
      ASSERT_EQ(driver().cuMemsetD8Async(tensor->at(), value, tensor->bytes(), stream_), device::kCuSuccess);
    }
  }

  uint64_t page_ = 0;
  kvbm_error_t error_{};
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  kvbm_queue_t* queue_ = nullptr;
  kvbm_cache_t* cache_ = nullptr;
  kvbm_match_t* match_ = nullptr;
  std::vector<std::unique_ptr<DeviceBytes>> tensors_;
  std::vector<std::vector<std::byte>> content_;
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> from_, to_;
  device::CuStream stream_ = nullptr;
};

TEST_P(DeviceCache, gives_back_what_was_stored_behind_what_the_stream_held) {
  store();
  if (HasFatalFailure()) return;
  look_up();
  overwrite(0x6B);  // the load is behind it
  kvbm_load_options_t load;
  kvbm_load_options_init(&load, sizeof load);
  load.stream = stream_;
  load.has_stream = 1;
  ASSERT_EQ(kvbm_cache_load(cache_, match_, to_.data(), kStored, &load, nullptr, 0), KVBM_OK);
  for (uint32_t layer = 0; layer < kLayers; ++layer) expect_loaded(layer, tensors_[layer]->download(), std::byte{0x6B});
  kvbm_device_row_t row{};
  size_t rows = 0;
  ASSERT_EQ(kvbm_manager_devices(manager_, &row, 1, &rows), KVBM_OK);
  EXPECT_EQ(rows, 1U);
  EXPECT_EQ(row.lost, 0U) << row.state;
  EXPECT_EQ(row.gathers.bytes, kStored * kLayers * page_);
  EXPECT_EQ(row.scatters.bytes, kStored * kLayers * page_);
  EXPECT_EQ(row.scatters.bad_leaves, 0U);
}

TEST_P(DeviceCache, a_stream_waits_for_each_layer_without_the_processor) {
  store();
  if (HasFatalFailure()) return;
  look_up();
  overwrite(0x6B);
  kvbm_load_options_t load;
  kvbm_load_options_init(&load, sizeof load);
  uint64_t operation = 0;
  load.stream = stream_;
  load.has_stream = 1;
  load.wait_layers = 1;
  load.out_operation = &operation;
  const kvbm_status_t accepted = kvbm_cache_load(cache_, match_, to_.data(), kStored, &load, queue_, 1);
  if (accepted == KVBM_ERR_UNSUPPORTED) GTEST_SKIP() << "streams of this device do not wait for memory";
  ASSERT_EQ(accepted, KVBM_OK);
  // Copies of each layer behind its wait, as an engine's attention would see it, in memory of the device.
  std::vector<std::unique_ptr<DeviceBytes>> seen;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_EQ(kvbm_cache_wait_layer(cache_, operation, layer, stream_), KVBM_OK) << layer;
    seen.push_back(std::make_unique<DeviceBytes>(device(), kBlocks * page_));
    const device::Device::Scope scope(device());
    ASSERT_EQ(driver().cuMemcpyAsync(seen[layer]->at(), tensors_[layer]->at(), kBlocks * page_, stream_),
              device::kCuSuccess);
  }
  kvbm_completion_t done{};
  ASSERT_EQ(kvbm_queue_wait(queue_, &done, 1, 60'000'000'000ULL), 1U);
  EXPECT_EQ(done.status, KVBM_OK);
  {
    const device::Device::Scope scope(device());
    ASSERT_EQ(driver().cuStreamSynchronize(stream_), device::kCuSuccess);
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) expect_loaded(layer, seen[layer]->download(), std::byte{0x6B});
}

// Calls of an engine that captures a graph; kvbm makes none of them.
struct Captures {
  int (*begin)(device::CuStream stream, int mode) = nullptr;
  int (*end)(device::CuStream stream, void** graph) = nullptr;
  int (*destroy)(void* graph) = nullptr;
  Captures() {
    const char* const named = std::getenv("KVBMTEST_CUDA");
    void* const library = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded
    if (library == nullptr) return;
    const auto find = [library](auto& entry, const char* name) {
      *reinterpret_cast<void**>(&entry) = ::dlsym(library, name);
    };
    find(begin, "cuStreamBeginCapture_v2");
    find(end, "cuStreamEndCapture");
    find(destroy, "cuGraphDestroy");
  }
};

// Captures in the strictest mode, in which a call that the driver regards as unsafe would fail and end the capture.
TEST_P(DeviceCache, works_beside_a_capture_and_does_not_end_it) {
  constexpr int kGlobalMode = 0;
  const Captures captures;
  ASSERT_TRUE(captures.begin != nullptr && captures.end != nullptr && captures.destroy != nullptr);
  store();
  if (HasFatalFailure()) return;
  look_up();
  overwrite(0x6B);
  device::CuStream captured = nullptr;
  {
    const device::Device::Scope scope(device());
    ASSERT_EQ(driver().cuStreamSynchronize(stream_), device::kCuSuccess);
    ASSERT_EQ(driver().cuStreamCreateWithPriority(&captured, device::kCuStreamNonBlocking, 0), device::kCuSuccess);
    ASSERT_EQ(captures.begin(captured, kGlobalMode), 0);
  }
  // Only the captured stream is refused.
  kvbm_load_options_t load;
  kvbm_load_options_init(&load, sizeof load);
  load.stream = captured;
  load.has_stream = 1;
  EXPECT_EQ(kvbm_cache_load(cache_, match_, to_.data(), kStored, &load, nullptr, 0), KVBM_ERR_INVALID);
  load.stream = stream_;
  EXPECT_EQ(kvbm_cache_load(cache_, match_, to_.data(), kStored, &load, nullptr, 0), KVBM_OK);
  std::vector<uint32_t> other(keys_.size(), 1);
  kvbm_key_t key{};
  std::memset(&key, 0x5A, sizeof key);
  EXPECT_EQ(kvbm_cache_store(cache_, &key, other.data(), 1, nullptr, nullptr, 0), KVBM_OK);
  void* graph = nullptr;
  {
    const device::Device::Scope scope(device());
    EXPECT_EQ(captures.end(captured, &graph), 0) << "the capture was ended";
    EXPECT_NE(graph, nullptr);
    if (graph != nullptr) {
      EXPECT_EQ(captures.destroy(graph), 0);
    }
    EXPECT_EQ(driver().cuStreamDestroy(captured), device::kCuSuccess);
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) expect_loaded(layer, tensors_[layer]->download(), std::byte{0x6B});
}

// Pages of one leaf and of several, and one that no vector fits.
constexpr uint64_t kPages[] = {512, 4096, 32768, 73728, 1044};
INSTANTIATE_TEST_SUITE_P(Pages, DeviceCache, ::testing::ValuesIn(kPages),
                         [](const auto& param) { return std::to_string(param.param) + "_bytes"; });

}  // namespace
}  // namespace kvbm::test::cache_test
