// Peers' reports of epochs to a manager with a disk: bounds, plausibility, and the state after a restart. Only a caller
// that raises an epoch waits for the disk.
#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "base/thread/thread_executor.h"
#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::epochs_test {
namespace {

NamespaceId id(uint64_t n) {
  NamespaceId out;
  std::memcpy(out.bytes.data(), &n, sizeof n);
  out.bytes[15] = 1;
  return out;
}

NamespaceOptions who(const std::string& model, uint64_t epoch = 0) {
  NamespaceOptions out;
  out.model = model;
  out.epoch = epoch;
  return out;
}

class Epochs : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::all); }

  std::vector<cluster::EpochWord> hear(std::vector<cluster::EpochWord> words, uint32_t may_add = UINT32_MAX,
                                       bool trusted = false) {
    std::vector<cluster::EpochWord> out;
    bool done = false;
    manager_->namespaces().hear_epochs(std::move(words), may_add, trusted, [&](std::vector<cluster::EpochWord> taken) {
      out = std::move(taken);
      done = true;
    });
    EXPECT_TRUE(sim_.run_until([&] { return done; }));
    return out;
  }
  // Reports made-up epochs one after the other, 64 a call, as a link does.
  void hear_made_up(uint64_t from, uint64_t n, bool trusted = false) {
    for (uint64_t at = from; at < from + n;) {
      std::vector<cluster::EpochWord> words;
      for (; words.size() < 64 && at < from + n; ++at) words.push_back({id(at), 1});
      (void)hear(std::move(words), UINT32_MAX, trusted);
    }
  }
  void restart() {
    TearDown();
    ns_.reset();
    manager_.reset();
    make(AdmissionKind::all);
  }
};

TEST_F(Epochs, a_peer_cannot_end_invalidation) {
  const NamespaceId base = ns_->base_id();
  put(1);
  for (const uint64_t epoch : {UINT64_MAX, (uint64_t{1} << 63) + 1, (uint64_t{1} << 32) + 1}) {
    const auto taken = hear({{base, epoch}, {id(1), epoch}});
    EXPECT_EQ(taken[0].code, Code::invalid_argument);
    EXPECT_EQ(taken[1].code, Code::invalid_argument);
    EXPECT_EQ(ns_->epoch(), 0U);
  }
  const SlotId slot = manager_->host().acquire_one(family_, key(1));
  ASSERT_NE(slot, kNoSlot) << "nothing has changed";
  manager_->host().release({&slot, 1});
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 0U);
  EXPECT_TRUE(manager_->namespaces().invalidate(*ns_).ok());
  EXPECT_EQ(ns_->epoch(), 1U);
  // A report that was too far ahead changed nothing: the largest allowed step is still relative to the old epoch.
  EXPECT_EQ(hear({{base, (uint64_t{1} << 32) + 1}})[0].code, Code::ok);
  EXPECT_TRUE(manager_->namespaces().invalidate(*ns_).ok());
  EXPECT_EQ(ns_->epoch(), (uint64_t{1} << 32) + 2);
}

TEST_F(Epochs, a_question_changes_nothing_and_is_answered) {
  ASSERT_TRUE(manager_->namespaces().invalidate(*ns_).ok());
  const auto taken = hear({{ns_->base_id(), 0}, {id(1), 0}});
  EXPECT_EQ(taken[0].code, Code::ok);
  EXPECT_EQ(taken[0].known, 1U);
  EXPECT_EQ(taken[1].known, 0U);
  EXPECT_EQ(ns_->epoch(), 1U);
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 1U);
}

TEST_F(Epochs, made_up_namespaces_leave_three_quarters_to_this_node_also_over_restarts) {
  ASSERT_TRUE(manager_->namespaces().invalidate(*ns_).ok());
  hear_made_up(0, EpochTable::kForeignRows + 200);
  EXPECT_EQ(manager_->namespaces().epoch_rows().foreign, EpochTable::kForeignRows);
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, EpochTable::kForeignRows + 1);
  for (int i = 0; i < 3; ++i) {
    restart();
    EXPECT_EQ(ns_->epoch(), 1U);
    hear_made_up(100'000 + 1000 * static_cast<uint64_t>(i), 300);
    EXPECT_EQ(manager_->namespaces().epoch_rows().foreign, EpochTable::kForeignRows);
    EXPECT_EQ(manager_->namespaces().epoch_rows().all, EpochTable::kForeignRows + 1);
  }
  auto other = manager_->namespaces().open(who("other"));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(manager_->namespaces().invalidate(*other.value()).ok());
}

TEST_F(Epochs, a_call_adds_as_many_rows_as_it_may) {
  std::vector<cluster::EpochWord> words;
  for (uint64_t n = 0; n < 10; ++n) words.push_back({id(n), 1});
  words.push_back({ns_->base_id(), 1});  // in use here
  const auto taken = hear(std::move(words), 4);
  for (uint64_t n = 0; n < 10; ++n) {
    EXPECT_EQ(taken[n].code, n < 4 ? Code::ok : Code::at_limit) << n;
    EXPECT_EQ(taken[n].added, n < 4) << n;
  }
  EXPECT_EQ(taken[10].code, Code::ok);
  EXPECT_FALSE(taken[10].added);
  EXPECT_EQ(ns_->epoch(), 1U);
}

TEST_F(Epochs, a_row_is_this_nodes_own_once_the_namespace_is_opened_here) {
  const NamespaceId base = Namespace::base_id_of(who("later"));
  ASSERT_EQ(hear({{base, 3}})[0].code, Code::ok);
  EXPECT_EQ(manager_->namespaces().epoch_rows().foreign, 1U);
  {
    auto later = manager_->namespaces().open(who("later"));
    ASSERT_TRUE(later.ok());
    EXPECT_EQ(later.value()->epoch(), 3U) << "it would find blocks of an ended epoch";
  }
  EXPECT_EQ(manager_->namespaces().epoch_rows().foreign, 0U);
  ASSERT_TRUE(manager_->namespaces().invalidate(*ns_).ok());  // which writes that down, too
  restart();
  EXPECT_EQ(manager_->namespaces().epoch_rows().foreign, 0U);
  hear_made_up(0, EpochTable::kForeignRows + 10);
  EXPECT_EQ(manager_->namespaces().open(who("later")).value()->epoch(), 3U);
}

// Namespaces that were used, invalidated and closed leave no records here that their rows would be needed for.
TEST_F(Epochs, rows_of_closed_namespaces_without_records_are_given_back) {
  ASSERT_TRUE(manager_->namespaces().invalidate(*ns_).ok());
  put(1);
  flush();
  hear_made_up(0, EpochTable::kRows - 1, true);
  ASSERT_EQ(manager_->namespaces().epoch_rows().all, EpochTable::kRows);
  auto other = manager_->namespaces().open(who("other"));
  ASSERT_TRUE(manager_->namespaces().invalidate(*other.value()).ok());
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 2U) << "its own, and that of the namespace that is open";
  EXPECT_EQ(ns_->epoch(), 1U);
  restart();
  EXPECT_EQ(ns_->epoch(), 1U);
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 2U);
}

TEST_F(Epochs, rows_stay_while_a_record_may_be_of_an_older_epoch) {
  {
    auto other = manager_->namespaces().open(who("other"));
    family_ = other.value()->plan({}).value().family;
    put(2);  // and it stays valid
  }
  const NamespaceId base = Namespace::base_id_of(who("other"));
  ASSERT_EQ(hear({{base, 1}}, UINT32_MAX, true)[0].code, Code::ok);  // its block stays, without an open handle
  hear_made_up(0, EpochTable::kRows - 1, true);
  ASSERT_EQ(manager_->namespaces().epoch_rows().all, EpochTable::kRows);
  EXPECT_TRUE(manager_->namespaces().invalidate(*ns_).ok());
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 2U);
  EXPECT_EQ(manager_->namespaces().open(who("other")).value()->epoch(), 1U);
}

TEST_F(Epochs, many_namespaces_come_and_go) {
  for (uint64_t n = 0; n < 2 * EpochTable::kRows; ++n) {
    auto one = manager_->namespaces().open(who("model " + std::to_string(n)));
    ASSERT_TRUE(one.ok());
    if (n % 8 == 0) {
      ASSERT_TRUE(manager_->namespaces().invalidate(*one.value()).ok()) << n;
    }
  }
  EXPECT_LE(manager_->namespaces().known().size(), 256U);
  EXPECT_LE(manager_->namespaces().epoch_rows().all, EpochTable::kRows);
}

// A disk that can be stopped while it writes epochs.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int inside = 0, most = 0, calls = 0;
};

class SlowEpochs final : public test::PacedTier {
 public:
  SlowEpochs(Executor& executor, std::shared_ptr<test::Pace> pace, std::shared_ptr<Gate> gate)
      : PacedTier(executor, std::move(pace)), gate_(std::move(gate)) {}
  Status set_epochs(std::span<const tier::EpochRow>, std::span<const NamespaceId>,
                    std::span<const tier::EpochRow>) override {
    return wait();
  }
  Status set_epoch(const NamespaceId&, uint64_t) override { return wait(); }

 private:
  Status wait() {
    std::unique_lock lock(gate_->mutex);
    ++gate_->calls;
    gate_->most = std::max(gate_->most, ++gate_->inside);
    gate_->changed.notify_all();
    gate_->changed.wait(lock, [this] { return gate_->open; });
    --gate_->inside;
    return {};
  }
  const std::shared_ptr<Gate> gate_;
};

TEST(EpochsOfASlowDisk, nothing_else_waits_for_them) {
  auto gate = std::make_shared<Gate>();
  auto executor = ThreadExecutor::create("test", 2).value();
  test::SimExecutor sim(3);
  test::SimDisk disk(sim);
  Log log;
  Options options;
  options.host.block_bytes = 8192;
  options.host.capacity_bytes = 1 << 20;
  options.host.huge_pages = false;
  options.tiers.resize(1);
  options.tiers[0].admission = AdmissionKind::on_request;
  options.tiers[0].make = [&](TierIndex, FamilyTable&, tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
    return std::unique_ptr<tier::Tier>(std::make_unique<SlowEpochs>(*executor, std::make_shared<test::Pace>(), gate));
  };
  Environment environment;
  environment.executor = executor.get();
  environment.files = &disk;
  environment.random = &sim.random();
  environment.log = &log;
  auto manager = Manager::create(environment, std::move(options)).value();

  std::mutex mutex;
  std::condition_variable changed;
  int answers = 0;
  constexpr int kBursts = 50;
  for (int i = 0; i < kBursts; ++i) {
    manager->namespaces().hear_epochs({{id(static_cast<uint64_t>(i)), 1}}, 1, false, [&](const auto&) {
      const std::lock_guard lock(mutex);
      ++answers;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(gate->mutex);
    ASSERT_TRUE(gate->changed.wait_for(lock, std::chrono::seconds(60), [&] { return gate->inside != 0; }));
  }
  // While the disk is stopped, the executor still runs tasks such as stores and loads, and namespaces can be opened.
  std::atomic<bool> ran{false};
  executor->post([&] {
    ran = true;
    const std::lock_guard lock(mutex);
    changed.notify_all();
  });
  std::atomic<bool> opened{false};
  std::thread opens([&] {
    opened = manager->namespaces().open(who("m")).ok();
    const std::lock_guard lock(mutex);
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return ran && opened; }));
  }
  {
    const std::lock_guard lock(gate->mutex);
    EXPECT_EQ(gate->most, 1);
    gate->open = true;
    gate->changed.notify_all();
  }
  opens.join();
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return answers == kBursts; }));
  }
  EXPECT_EQ(gate->most, 1);
  bool closed = false;
  manager->shutdown([&] {
    const std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return closed; }));
}

// A tier that writes no epoch down. For a store that hangs, each call takes a thread for seconds.
class RefusesEpochs final : public test::PacedTier {
 public:
  RefusesEpochs(Executor& executor, int& tries) : PacedTier(executor, std::make_shared<test::Pace>()), tries_(tries) {}
  Status set_epochs(std::span<const tier::EpochRow>, std::span<const NamespaceId>,
                    std::span<const tier::EpochRow>) override {
    ++tries_;
    return {Code::io_error, "no epoch is written down"};
  }

 private:
  int& tries_;
};

class EpochsOfOneTier : public Epochs {
 protected:
  void adjust(Options& options) override {
    options.tiers[0] = {};
    options.tiers[0].make = [this](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<RefusesEpochs>(sim_, tries_));
    };
    log_.set_sink([](void* said, const LogMessage&) { ++*static_cast<int*>(said); }, &said_, LogLevel::warning);
  }
  int tries_ = 0, said_ = 0;
};

TEST_F(EpochsOfOneTier, one_that_a_store_reports_again_and_again_counts_and_is_written_into_others_once) {
  said_ = 0;
  for (int i = 0; i < 3; ++i) manager_->namespaces().epoch_raised({ns_->base_id(), 7});
  EXPECT_EQ(ns_->epoch(), 7U);
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 1U) << "other nodes hear of it";
  EXPECT_EQ(tries_, 1);
  EXPECT_EQ(said_, 1);
  manager_->namespaces().epoch_raised({ns_->base_id(), 8});
  EXPECT_EQ(ns_->epoch(), 8U);
  EXPECT_EQ(tries_, 2);
  EXPECT_FALSE(manager_->namespaces().invalidate(*ns_).ok()) << "an invalidation from here is in all tiers or fails";
  EXPECT_EQ(ns_->epoch(), 8U);
}

TEST_F(Epochs, calls_beyond_the_queue_are_put_off) {
  size_t put_off = 0, ok = 0;
  for (size_t i = 0; i < Namespaces::kHeardWaiting + 10; ++i) {
    manager_->namespaces().hear_epochs({{id(i), 1}}, 1, false, [&](const std::vector<cluster::EpochWord>& words) {
      ++(words[0].code == Code::again ? put_off : ok);
    });
  }
  EXPECT_EQ(put_off, 10U);
  EXPECT_TRUE(sim_.run_until([&] { return ok == Namespaces::kHeardWaiting; }));
}

}  // namespace
}  // namespace kvbm::manager::epochs_test
