// Requests on real threads, shut down while some are under way: the store is not called once it may be closed.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/crypto/random.h"
#include "base/thread/thread_executor.h"
#include "support/sim_executor.h"
#include "tier/store/requests.h"

namespace kvbm::test::store_close_test {
namespace {

using tier::store::ObjectRequest;
using tier::store::ObjectStore;
using tier::store::Requests;

// Answers on threads of its own, and counts calls after its end.
class Ends final : public ObjectStore {
 public:
  Ends() : threads_(std::move(ThreadExecutor::create("ends", 2)).value()) { facts_.concurrency = 4; }
  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override {
    called();
    return facts_;
  }
  void start(std::unique_ptr<ObjectRequest> request) override {
    threads_->post([held = std::move(request)]() mutable {
      held->code = Code::ok;
      auto finished = std::move(held->finished);
      finished(std::move(held));
    });
    called();  // code after the answer is within the call too
  }
  void cancel(uint64_t /*id*/) noexcept override { called(); }
  std::unique_ptr<ObjectRequest> run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> /*late*/) override {
    return request;
  }
  void close() noexcept override { over_ = true; }
  void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override {}
  [[nodiscard]] uint64_t late() const noexcept { return late_; }

 private:
  void called() const noexcept {
    if (over_) ++late_;
  }
  tier::store::StoreFacts facts_;
  std::atomic<bool> over_{false};
  mutable std::atomic<uint64_t> late_{0};
  std::unique_ptr<ThreadExecutor> threads_;
};

TEST(Requests, do_not_call_a_store_that_may_be_closed) {
  uint64_t late = 0;
  for (int round = 0; round < 2000; ++round) {
    Ends store;
    auto executor = std::move(ThreadExecutor::create("core", 3)).value();
    SeededRandom random(static_cast<uint64_t>(round));
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    {
      const auto requests = std::make_shared<Requests>(store, *executor, random, 5'000'000'000);
      for (int i = 0; i < 8; ++i) {
        requests->submit(std::make_unique<ObjectRequest>(), kNever, i % 2 == 0,
                         [](Code, std::unique_ptr<ObjectRequest>) {});
      }
      requests->shutdown([&](bool /*all*/) {
        store.close();
        const std::lock_guard lock(mutex);
        over = true;
        changed.notify_all();
      });
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return over; });
    }
    executor.reset();
    late += store.late();
  }
  EXPECT_EQ(late, 0U);
}

// Does not end what it runs before the test does.
class Keeps final : public ObjectStore {
 public:
  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return facts_; }
  void start(std::unique_ptr<ObjectRequest> /*request*/) override {}
  void cancel(uint64_t which) noexcept override { cancelled.push_back(which); }
  std::unique_ptr<ObjectRequest> run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> late) override {
    id = request->id;
    end = std::move(late);
    return nullptr;
  }
  void close() noexcept override {}
  void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override {}
  std::vector<uint64_t> cancelled;
  uint64_t id = 0;
  UniqueFunction<void()> end;

 private:
  tier::store::StoreFacts facts_;
};

// A store must not be closed while it has an operation, also one that a caller waited for and gave up.
TEST(Requests, wait_for_a_request_that_was_run_before_they_end) {
  for (const bool ends : {true, false}) {
    SimExecutor sim(1);
    Keeps store;
    const auto requests = std::make_shared<Requests>(store, sim, sim.random(), 5'000'000'000);
    EXPECT_EQ(requests->run(std::make_unique<ObjectRequest>()), nullptr);
    EXPECT_EQ(requests->stats().requests, 1U);
    EXPECT_EQ(requests->stats().unanswered, 1U);
    bool over = false, all = false;
    requests->shutdown([&](bool everything) {
      over = true;
      all = everything;
    });
    EXPECT_EQ(store.cancelled, std::vector<uint64_t>{store.id});
    sim.run_for(1'000'000'000);
    EXPECT_FALSE(over);
    if (ends) store.end();
    EXPECT_TRUE(sim.run_until_within([&] { return over; }, 2'000'000'000));
    EXPECT_EQ(all, ends) << "a store that keeps it is left as it is";
    EXPECT_EQ(requests->run(std::make_unique<ObjectRequest>()), nullptr) << "the store may be gone";
    EXPECT_EQ(requests->stats().requests, 1U);
    store.end = {};
  }
}

}  // namespace
}  // namespace kvbm::test::store_close_test
