// A store's tier on real threads: puts, gets, lookups and erases at a time, opened and closed again and again.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread/thread_executor.h"
#include "support/disk_world.h"
#include "tier/store/store_tier.h"

namespace kvbm::test::store_threads_test {
namespace {

using tier::store::ObjectRequest;
using tier::store::ObjectStore;
using tier::store::StoreTier;
using tier::store::StoreTierOptions;
using tier::store::Verb;

constexpr uint64_t kBytes = 3000;

struct Bucket {
  std::mutex mutex;
  std::map<std::string, std::vector<std::byte>> objects;
};

// Stores objects in memory, and answers on threads of its own.
class MemoryStore final : public ObjectStore {
 public:
  explicit MemoryStore(std::shared_ptr<Bucket> bucket)
      : bucket_(std::move(bucket)), threads_(std::move(ThreadExecutor::create("bucket", 3)).value()) {
    facts_.object_bytes = 16 << 10;
    facts_.concurrency = 8;
  }
  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return facts_; }
  void start(std::unique_ptr<ObjectRequest> request) override {
    threads_->post([this, held = std::move(request)]() mutable {
      apply(*held);
      auto finished = std::move(held->finished);
      finished(std::move(held));
    });
  }
  void cancel(uint64_t /*id*/) noexcept override {}
  std::unique_ptr<ObjectRequest> run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> /*late*/) override {
    apply(*request);
    return request;
  }
  void close() noexcept override { threads_.reset(); }
  void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override {
    ADD_FAILURE() << "something was never finished";
  }

 private:
  void apply(ObjectRequest& r) {
    const std::lock_guard lock(bucket_->mutex);
    r.code = Code::ok;
    if (r.verb == Verb::put) {
      bucket_->objects[r.name].assign(r.data.bytes.get(), r.data.bytes.get() + r.bytes);
    } else if (r.verb == Verb::remove) {
      bucket_->objects.erase(r.name);
    } else if (r.verb == Verb::get) {
      const auto at = bucket_->objects.find(r.name);
      if (at == bucket_->objects.end()) {
        r.code = Code::miss;
        return;
      }
      const auto& bytes = at->second;
      r.done = r.offset >= bytes.size() ? 0 : std::min<uint64_t>(r.bytes, bytes.size() - r.offset);
      if (r.done != 0) std::memcpy(r.data.bytes.get(), bytes.data() + r.offset, r.done);
    } else {
      std::string out;
      for (auto at = bucket_->objects.upper_bound(std::max(r.after, r.name)); at != bucket_->objects.end(); ++at) {
        if (!at->first.starts_with(r.name)) break;
        if (out.size() + at->first.size() + 1 > r.bytes) {
          r.more = true;
          break;
        }
        out.append(at->first).push_back('\0');
      }
      std::memcpy(r.data.bytes.get(), out.data(), out.size());
      r.done = out.size();
    }
  }

  const std::shared_ptr<Bucket> bucket_;
  tier::store::StoreFacts facts_;
  std::unique_ptr<ThreadExecutor> threads_;
};

// Waits until so many calls are over.
struct Latch {
  std::mutex mutex;
  std::condition_variable changed;
  int left = 0;
  void add() {
    const std::lock_guard lock(mutex);
    ++left;
  }
  void done() {
    const std::lock_guard lock(mutex);
    --left;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0; });
  }
};

class Engine {
 public:
  Engine(StoreTier& tier, Executor& executor, FamilyId family, Latch& latch, std::atomic<uint64_t>& wrong,
         std::atomic<uint64_t>& right)
      : tier_(tier), executor_(executor), family_(family), latch_(latch), wrong_(wrong), right_(right) {}

  void work(uint64_t seed, int steps) {
    SeededRandom random(seed);
    for (int i = 0; i < steps; ++i) {
      const uint64_t first = 1 + random.below(60), n = 1 + random.below(8);
      switch (random.below(5)) {
        case 0:
        case 1:
          put(first, n, random.below(2) == 0);
          break;
        case 2:
        case 3:
          get(first, n, random.below(2) == 0);
          break;
        default: {
          const Identity id{key_of(first), family_};
          tier::Found found;
          tier_.find({&id, 1}, {&found, 1}, true);
          if (random.below(3) == 0) tier_.erase({&id, 1});
          (void)tier_.stats();
        }
      }
    }
  }

 private:
  void put(uint64_t first, uint64_t n, bool durable) {
    auto records = std::make_shared<std::vector<std::unique_ptr<TestRecord>>>();
    auto batch = std::make_unique<tier::PutBatch>();
    for (uint64_t i = 0; i < n; ++i) {
      records->push_back(std::make_unique<TestRecord>(first + i, kBytes, family_of(1)));
      tier::PutItem item;
      item.id = {key_of(first + i), family_};
      item.head = records->back()->head;
      item.payload = records->back()->payload();
      batch->items.push_back(item);
    }
    batch->deadline_ns = executor_.clock().now_ns() + 20'000'000'000;
    batch->durable = durable;
    latch_.add();
    batch->done = [this, records](tier::PutBatch&) { latch_.done(); };
    tier_.put(std::move(batch));
  }
  void get(uint64_t first, uint64_t n, bool borrows) {
    struct Room {
      tier::disk::AlignedBuffer head{8192}, payload{8192};
    };
    auto rooms = std::make_shared<std::vector<std::unique_ptr<Room>>>();
    auto batch = std::make_unique<tier::GetBatch>();
    for (uint64_t i = 0; i < n; ++i) {
      rooms->push_back(std::make_unique<Room>());
      tier::GetItem item;
      item.id = {key_of(first + i), family_};
      item.head = rooms->back()->head.span();
      item.payload = rooms->back()->payload.span();
      batch->items.push_back(std::move(item));
    }
    batch->deadline_ns = executor_.clock().now_ns() + 20'000'000'000;
    batch->accepts.verifies = batch->accepts.borrows = borrows;
    latch_.add();
    batch->done = [this, rooms, first](tier::GetBatch& b) {
      for (size_t i = 0; i < b.items.size(); ++i) {
        if (b.status[i] != Code::ok) continue;
        const TestRecord expected(first + i, kBytes, family_of(1));
        const tier::GetItem& item = b.items[i];
        const ConstBytes payload =
            item.lender != nullptr ? item.lent : ConstBytes(item.payload).first(item.payload_bytes);
        const bool equal =
            payload.size() == kBytes && std::equal(payload.begin(), payload.end(), expected.payload().begin());
        ++(equal ? right_ : wrong_);
      }
      latch_.done();
    };
    tier_.get(std::move(batch));
  }

  StoreTier& tier_;
  Executor& executor_;
  const FamilyId family_;
  Latch& latch_;
  std::atomic<uint64_t>& wrong_;
  std::atomic<uint64_t>& right_;
};

TEST(StoreThreads, work_at_a_time_and_close_in_the_middle) {
  const auto bucket = std::make_shared<Bucket>();
  std::atomic<uint64_t> wrong{0}, right{0};
  SystemRandom random;
  FamilyTable families;
  const FamilyId family = families.intern(family_of(1)).value();
  for (int round = 0; round < 12; ++round) {
    auto executor = std::move(ThreadExecutor::create("core", 2)).value();
    StoreTierOptions options;
    options.poll_ns = 2'000'000;
    options.publish_ns = 3'000'000;
    options.linger_ns = 1'000'000;
    options.staging_bytes = 128 << 10;
    if (round % 3 == 0) options.capacity_bytes = 200 << 10;
    auto opened = StoreTier::open(std::make_unique<MemoryStore>(bucket), options, *executor, families, random, nullptr,
                                  1, nullptr);
    ASSERT_TRUE(opened.ok());
    std::unique_ptr<StoreTier> tier = std::move(opened).value();
    Latch latch;
    std::vector<std::thread> threads;
    Engine engine(*tier, *executor, family, latch, wrong, right);
    for (uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] { engine.work(static_cast<uint64_t>(round) * 10 + t, 60); });
    }
    for (auto& thread : threads) thread.join();
    // In half of the rounds waits for the calls; in the others closes while calls are in flight.
    if (round % 2 == 0) latch.wait();
    Latch down;
    down.add();
    tier->shutdown([&] { down.done(); });
    down.wait();
    latch.wait();
    tier.reset();
    executor.reset();
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(right, 200U);
}

}  // namespace
}  // namespace kvbm::test::store_threads_test
