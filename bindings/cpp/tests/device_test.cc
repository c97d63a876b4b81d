// Caches in the memory of a device, on the fake of the CUDA driver that the library's own tests use.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <kvbm.hpp>

namespace {

constexpr uint64_t kPage = 4096, kBlocks = 16, kLayers = 2;

std::string driver_file() {
  const char* given = std::getenv("KVBMTEST_CUDA_DRIVER");
  return given != nullptr && *given != '\0' ? given : BUILT_CUDA_DRIVER;
}

// The engine's side of the fake: device memory is the host's.
struct Fake {
  explicit Fake(const std::string& path) : library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library, nullptr) << dlerror();
  }
  template <class Entry>
  Entry entry(const char* name) const {
    void* found = dlsym(library, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<Entry>(found);
  }
  uint8_t* memory() const {
    const auto address = entry<unsigned long long (*)(int, std::size_t)>("kvbm_fake_allocate")(0, kBlocks * kPage);
    return reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(address));
  }
  void* stream() const { return entry<void* (*)(int)>("kvbm_fake_make_stream")(0); }
  void synchronize(void* stream) const { entry<void (*)(void*)>("kvbm_fake_synchronize")(stream); }
  void* library;  // stays loaded
};

struct World {
  // Opens a world with a geometry, as a node. `option` of the configuration is set to `value`.
  explicit World(const std::string& library, const char* option = nullptr, const std::string& value = {})
      : context(settings_of(library, option, value)), manager(context, manager_of()) {
    auto options = kvbm::namespace_options();
    options.model = "m";
    kvbm_component_t component{};
    component.element = KVBM_ELEMENT_BF16, component.layers = kLayers, component.heads = 2, component.head_dim = 32;
    const kvbm::Geometry geometry(16, 1, kvbm::Span<const kvbm_component_t>(&component, 1));  // a page for each layer
    ns = std::make_unique<kvbm::Namespace>(manager.open(options, option != nullptr ? &geometry : nullptr));
    opaque = option == nullptr;
  }
  static kvbm::Context settings_of(const std::string& library, const char* option, const std::string& value) {
    const kvbm_setting_t settings[] = {
        {"device.library", library.c_str()}, {"device.cuda", "auto"}, {option, value.c_str()}};
    return kvbm::Context{kvbm::Span<const kvbm_setting_t>(settings, option != nullptr ? 3 : 2)};
  }
  static kvbm_manager_options_t manager_of() {
    auto options = kvbm::manager_options();
    options.block_bytes = kLayers * kPage;
    options.host_capacity_bytes = 4u << 20;
    return options;
  }
  kvbm::Cache attach(uint8_t* const (&memory)[kLayers]) {
    kvbm_tensor_t tensors[kLayers];
    for (std::size_t i = 0; i < kLayers; ++i) tensors[i] = {memory[i], kBlocks * kPage, 0, opaque ? kPage : 0};
    const uint32_t form = opaque ? KVBM_FORM_OPAQUE : KVBM_FORM_BLOCKS_NHD;
    const kvbm_cache_part_t part = {{}, form, 0, tensors, kLayers, {}};
    auto options = kvbm::cache_options();
    options.n_blocks = kBlocks, options.parts = &part, options.n_parts = 1;
    options.memory = KVBM_MEMORY_CUDA;
    return kvbm::Cache(manager, *ns, options);
  }
  kvbm::Context context;
  kvbm::Manager manager;
  std::unique_ptr<kvbm::Namespace> ns;
  bool opaque = true;
};

TEST(Device, without_a_driver_a_cache_on_a_device_is_refused) {
  World w("/nowhere/libcuda.so.1");
  uint8_t* const somewhere = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(kPage));
  uint8_t* const memory[kLayers] = {somewhere, somewhere};
  try {
    w.attach(memory);
    FAIL();
  } catch (const kvbm::Error& error) {
    EXPECT_EQ(error.status(), KVBM_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("/nowhere/libcuda.so.1"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(w.manager.devices().empty());
}

class DeviceLayers : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DeviceLayers, what_is_stored_comes_back_layer_by_layer) {
  if (!std::filesystem::exists(driver_file()))
    GTEST_SKIP() << "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)";
  const Fake fake(driver_file());
  World w(driver_file());
  uint8_t* const memory[kLayers] = {fake.memory(), fake.memory()};
  kvbm::Cache cache = w.attach(memory);
  const auto value = [](std::size_t layer, std::size_t block) { return static_cast<uint8_t>(10 * layer + block + 1); };
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t block = 0; block < 3; ++block)
      std::fill_n(memory[layer] + block * kPage, kPage, value(layer, block));
  }
  const std::vector<uint32_t> tokens(12, 7), from = {0, 1, 2}, to = {5, 6, 7};
  const kvbm::Keys keys = w.ns->chain(tokens, 4);
  void* const stream = fake.stream();
  auto store = kvbm::store_options();
  store.stream = stream, store.has_stream = 1;
  EXPECT_EQ(cache.store(keys, from, &store), KVBM_OK);
  kvbm::Match match = cache.lookup(keys);
  auto load = kvbm::load_options();
  load.stream = stream, load.has_stream = 1, load.wait_layers = GetParam();
  kvbm::Queue queue(w.context, 4);
  const kvbm::Submission loading = cache.load(match, to, queue, 1, load);
  for (uint32_t layer = 0; layer < kLayers; ++layer) cache.wait_layer(loading.operation, layer, stream);
  EXPECT_THROW(cache.wait_layer(loading.operation, kLayers, stream), kvbm::Error);
  fake.synchronize(stream);
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t block = 0; block < 3; ++block) {
      const uint8_t* page = memory[layer] + (5 + block) * kPage;
      EXPECT_EQ(std::count(page, page + kPage, value(layer, block)), static_cast<std::ptrdiff_t>(kPage));
    }
  }
  kvbm_completion_t done[1];
  ASSERT_EQ(queue.wait(done, KVBM_FOREVER), 1u);
  EXPECT_EQ(done[0].status, KVBM_OK);
  EXPECT_EQ(done[0].items_done, 3u);
  const auto rows = w.manager.devices();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_STREQ(rows[0].state, "ready");
  EXPECT_EQ(rows[0].gathers.bytes, 3 * kLayers * kPage);
  EXPECT_EQ(rows[0].scatters.leaves, 3 * kLayers);
}
INSTANTIATE_TEST_SUITE_P(Waits, DeviceLayers, ::testing::Values(KVBM_WAIT_LAYERS_ON_DEVICE, KVBM_WAIT_LAYERS_ISSUED));

TEST(Device, a_request_moves_between_devices_behind_their_streams) {
  if (!std::filesystem::exists(driver_file()))
    GTEST_SKIP() << "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)";
  const Fake fake(driver_file());
  World prefill(driver_file(), "node.listen", "127.0.0.1:0");
  const std::string address = prefill.manager.node_address();
  World decode(driver_file(), "node.peers", address);
  uint8_t* const from[kLayers] = {fake.memory(), fake.memory()};
  uint8_t* const to[kLayers] = {fake.memory(), fake.memory()};
  kvbm::Cache source = prefill.attach(from), target = decode.attach(to);
  const kvbm_request_id_t request = {{'c', '+', '+'}};
  const kvbm_source_t sources[] = {{address.c_str(), 0, 0}};
  auto options = kvbm::session_options();
  options.stream = fake.stream(), options.has_stream = 1;
  const std::vector<uint32_t> there = {3, 1}, here = {0, 2};
  kvbm::Session session(target, request, there, kvbm::Span<const kvbm_source_t>(sources), options);
  kvbm::Offer offer(source, request, here);
  void* const computing = fake.stream();
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    std::fill_n(from[layer], kBlocks * kPage, static_cast<uint8_t>(layer + 1));
    offer.publish_on_stream(0, layer, 1, 0, 0, computing);
    ASSERT_TRUE(session.wait_layer(0, layer, KVBM_FOREVER));
    const uint8_t* page = to[layer] + 3 * kPage;
    EXPECT_EQ(std::count(page, page + kPage, static_cast<uint8_t>(layer + 1)), static_cast<std::ptrdiff_t>(kPage));
  }
  EXPECT_TRUE(session.wait(KVBM_FOREVER));
  EXPECT_TRUE(offer.wait(KVBM_FOREVER));
}

}  // namespace
