// An engine on the fake of the CUDA driver: a manager of host memory (and a disk), and paged caches of one small model
// in the memory of fake devices, or in host memory, in any form. Device memory is memory of the test, so that what lies
// there can be written and read as it is.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/crypto/random.h"
#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "layout/engine_forms.h"
#include "manager/device/device_caches.h"
#include "manager/manager.h"
#include "manager/operation/cache.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/store.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

class DeviceEngine : public ::testing::Test {
 protected:
  static constexpr uint32_t kLayers = 3, kHeads = 4, kTokens = 16, kDim = 8, kBlocks = 24;
  static constexpr uint64_t kRow = kDim * 2;
  static constexpr uint64_t kBlockBytes = uint64_t{kLayers} * 2 * kHeads * kTokens * kRow;
  static constexpr uint64_t kCacheBytes = kBlockBytes * kBlocks;
  static constexpr int kOrdinal = 1;  // of two devices, so that the first is not it by luck

  // Result of a call, on any thread.
  struct Call {
    Mutex mutex;
    std::condition_variable_any ended;
    bool over KVBM_GUARDED_BY(mutex) = false;
    copy::Completion completion KVBM_GUARDED_BY(mutex);
    std::vector<int32_t> status;
    std::shared_ptr<manager::Operation> operation;
    copy::Completion wait() {
      MutexLock lock(mutex);
      while (!over) ended.wait(mutex);
      return completion;
    }
    bool is_over() {
      MutexLock lock(mutex);
      return over;
    }
  };

  static FakeCudaOptions two_devices() {
    FakeCudaOptions options;
    options.devices.resize(2);
    return options;
  }

  // A cache of one part: the tensors of a form, in one piece of memory.
  struct Paged {
    std::shared_ptr<manager::Cache> cache;
    std::byte* memory = nullptr;
    std::vector<std::byte> host;
  };

  void SetUp() override {
    add_emulated_kernels(fake_);
    ASSERT_EQ(fake_.driver().cuInit(0), device::kCuSuccess);  // like code that loads a driver
    auto executor = ThreadExecutor::create("test", 2);
    ASSERT_TRUE(executor.ok());
    executor_ = std::move(executor).value();
    auto files = make_os_file_system(*executor_);
    ASSERT_TRUE(files.ok());
    files_ = std::move(files).value();
  }

  // Room for `slots` records in the host; a disk of 64 MiB where there is a path.
  void make(uint32_t slots, const std::string& disk = {}, manager::DeviceOptions device = {}) {
    manager::Options options;
    options.host.block_bytes = kBlockBytes;
    options.host.capacity_bytes = 4096 + slots * (kBlockBytes + tier::HostArena::head_stride(kBlockBytes));
    options.host.huge_pages = false;
    options.device = std::move(device);
    options.device.driver = &fake_.driver();
    options.device.pin_threads = 2;
    options.device.lost_after_ns = lost_after_ns_;
    if (!disk.empty()) {
      options.tiers.resize(1);
      options.tiers[0].path = disk;
      options.tiers[0].capacity_bytes = 64 << 20;
      options.tiers[0].codec = codec_;
    }
    manager::Environment environment;
    environment.executor = executor_.get();
    environment.files = files_.get();
    environment.random = &random_;
    environment.log = &log_;
    auto made = manager::Manager::create(environment, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().message();
    manager_ = std::move(made).value();
    auto geometry = layout::Geometry::make(kTokens, {layout::attention(kLayers, kHeads, kDim, layout::Element::bf16)});
    ASSERT_TRUE(geometry.ok()) << geometry.status().message();
    manager::NamespaceOptions who;
    who.model = "m";
    who.codec = recipe_;
    who.allow_lossy = recipe_.has_value();
    who.geometry = std::make_shared<const layout::Geometry>(std::move(geometry).value());
    auto opened = manager_->namespaces().open(std::move(who));
    ASSERT_TRUE(opened.ok());
    ns_ = std::move(opened).value();
  }

  void TearDown() override {
    fake_.hold_all(false);
    ns_.reset();
    if (manager_ != nullptr) {
      Call closing;
      manager_->shutdown([&closing] {
        MutexLock lock(closing.mutex);
        closing.over = true;
        closing.ended.notify_all();
      });
      (void)closing.wait();
    }
    manager_.reset();
    executor_.reset();
  }

  // Describes `bytes` of memory as the tensors of a form.
  std::vector<layout::Tensor> tensors(layout::Form form, std::byte* memory) {
    const auto plan = ns_->plan({});
    const uint32_t n = layout::form_tensors(form, *plan.value().shape);
    std::vector<layout::Tensor> out;
    for (uint32_t i = 0; i < n; ++i) out.push_back({memory + i * (kCacheBytes / n), kCacheBytes / n});
    return out;
  }

  std::vector<manager::CachePart> parts(layout::Form form, std::byte* memory) {
    auto plan = ns_->plan({});
    auto arrangement = layout::arrange(form, *plan.value().shape, kBlocks, tensors(form, memory));
    EXPECT_TRUE(arrangement.ok()) << arrangement.status().message();
    auto part = manager::CachePart::shaped(std::move(plan).value(), std::move(arrangement).value());
    EXPECT_TRUE(part.ok());
    std::vector<manager::CachePart> out;
    out.push_back(std::move(part).value());
    return out;
  }

  Paged attach_host(layout::Form form) {
    Paged out;
    out.host.resize(kCacheBytes);
    out.memory = out.host.data();
    auto cache = manager::Cache::create(manager_->stack().keep(), ns_, parts(form, out.memory));
    EXPECT_TRUE(cache.ok());
    out.cache = std::move(cache).value();
    return out;
  }

  Result<std::shared_ptr<manager::AttachedDevice>> place(std::byte* memory, uint64_t bytes,
                                                         manager::MemoryKind kind = manager::MemoryKind::cuda,
                                                         int ordinal = kOrdinal) {
    const manager::TensorPlace tensor{memory, bytes, 0, 0};
    return manager_->devices().place(kind, static_cast<uint32_t>(ordinal), {&tensor, 1});
  }

  std::byte* allocate(int ordinal = kOrdinal, uint64_t bytes = kCacheBytes) {
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(fake_.allocate(ordinal, bytes)));
  }

  Paged attach_device(layout::Form form) {
    Paged out;
    out.memory = allocate();
    auto device = place(out.memory, kCacheBytes);
    EXPECT_TRUE(device.ok()) << device.status().message();
    if (!device.ok()) return out;
    auto cache =
        manager::Cache::create(manager_->stack().keep(), ns_, parts(form, out.memory), std::move(device).value());
    EXPECT_TRUE(cache.ok());
    out.cache = std::move(cache).value();
    return out;
  }

  static void fill(const Paged& cache, uint32_t seed) {
    uint32_t state = seed * 2654435761U + 1;
    for (uint64_t i = 0; i < kCacheBytes; ++i) {
      state = state * 1664525U + 1013904223U;
      cache.memory[i] = static_cast<std::byte>(state >> 24);
    }
  }

  // Returns every byte of an engine block, in the order of the record.
  static std::vector<std::byte> block(const Paged& cache, uint32_t id) {
    const manager::CachePart& part = cache.cache->parts()[0];
    std::vector<std::byte> out;
    for (uint32_t i = 0; i < part.leaf_count(); ++i) {
      const StridedRun run = part.run(i, id);
      for (uint32_t a = 0; a < run.count0; ++a) {
        for (uint32_t b = 0; b < run.count1; ++b) {
          const std::byte* from = run.data + a * run.stride0 + b * run.stride1;
          out.insert(out.end(), from, from + run.bytes);
        }
      }
    }
    return out;
  }

  static std::vector<Key> keys(uint64_t first, size_t n) {
    std::vector<Key> out(n);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t value = first + i;
      std::memcpy(out[i].bytes.data(), &value, sizeof value);
      out[i].bytes[15] = 1;
    }
    return out;
  }
  static std::vector<uint32_t> ids(uint32_t first, size_t n) {
    std::vector<uint32_t> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = first + static_cast<uint32_t>(i);
    return out;
  }

  template <class Operation, class Request>
  std::shared_ptr<Call> start(Request request, size_t n) {
    auto call = std::make_shared<Call>();
    call->status.assign(n, 1);
    request.item_status = call->status;
    auto operation = std::make_shared<Operation>(std::move(request));
    call->operation = operation;
    operation->start([call](const copy::Completion& completion) {
      MutexLock lock(call->mutex);
      call->completion = completion;
      call->over = true;
      call->operation = nullptr;
      call->ended.notify_all();
    });
    return call;
  }

  manager::StoreRequest store_request(const Paged& cache, uint64_t first_key, uint32_t first_id, size_t n) {
    manager::StoreRequest request;
    request.cache = cache.cache;
    request.keys = keys(first_key, n);
    request.block_ids = ids(first_id, n);
    return request;
  }
  std::shared_ptr<Call> store(manager::StoreRequest request) {
    const size_t n = request.keys.size();
    return start<manager::StoreOperation>(std::move(request), n);
  }
  copy::Completion store_all(const Paged& cache, uint64_t first_key, uint32_t first_id, size_t n) {
    return store(store_request(cache, first_key, first_id, n))->wait();
  }

  std::shared_ptr<manager::Match> find(const Paged& cache, uint64_t first_key, size_t n) {
    const auto plans = cache.cache->plans();
    return manager::look_up(manager_->stack().keep(), ns_, plans.value(), keys(first_key, n), {});
  }
  // Makes a request that loads the match into blocks first_id and following. A null match is a mistake of the test.
  manager::LoadRequest load_request(const Paged& cache, std::shared_ptr<manager::Match> match, uint32_t first_id) {
    manager::LoadRequest request;
    request.cache = cache.cache;
    request.n_ids = match->hits();
    request.block_ids = ids(first_id, match->hits());
    request.match = std::move(match);
    return request;
  }
  std::shared_ptr<Call> load(manager::LoadRequest request) {
    const size_t n = request.n_ids;
    return start<manager::LoadOperation>(std::move(request), n);
  }
  // Finds and loads blocks. The completion's items_done is the number of right ones.
  copy::Completion load_all(const Paged& cache, uint64_t first_key, uint32_t first_id, size_t n) {
    auto match = find(cache, first_key, n);
    if (match == nullptr) return {};
    return load(load_request(cache, std::move(match), first_id))->wait();
  }

  // Settings of managers that are made from now on.
  uint64_t lost_after_ns_ = 600'000'000'000;  // kernels on the CPU take as long as they take
  std::string codec_ = "off";
  std::optional<codec::Recipe> recipe_;
  FakeCuda fake_{two_devices()};
  SystemRandom random_;
  Log log_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::shared_ptr<manager::Manager> manager_;
  std::shared_ptr<manager::Namespace> ns_;
};

}  // namespace kvbm::test
