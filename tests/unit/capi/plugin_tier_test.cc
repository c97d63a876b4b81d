// A plug-in tier ends on the core's executor, whichever thread its last call ended on.
#include "capi/plugin/plugin_tier.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "base/family/family_table.h"
#include "base/thread/thread_executor.h"

namespace kvbm::capi::plugin_tier_test {
namespace {

// A tier with a slow forget: it returns when `go_on` is set. `asked` gets the calling thread's id.
struct SlowToForget {
  std::promise<std::thread::id> asked;
  std::promise<void> go_on;
};

const kvbm_tier_table_t kTable = {sizeof(kvbm_tier_table_t),
                                  1,
                                  "slow to forget",
                                  [](void*, const uint8_t (*)[32], size_t, uint8_t*, uint32_t*, uint64_t*) {},
                                  [](void*, const kvbm_tier_item_t*, size_t, uint64_t, kvbm_status_t*) {},
                                  [](void*, kvbm_tier_item_t*, size_t, uint64_t, kvbm_status_t*) {},
                                  [](void* user, const uint8_t (*)[32], size_t) {
                                    auto& plugin = *static_cast<SlowToForget*>(user);
                                    plugin.asked.set_value(std::this_thread::get_id());
                                    plugin.go_on.get_future().wait();
                                  },
                                  [](void*, uint64_t*, uint64_t*, uint64_t*) {}};

class PluginTierEnds : public ::testing::Test {
 protected:
  // Shuts the tier down and destroys it in the callback, as the last reference to a manager does.
  std::future<std::thread::id> end(std::unique_ptr<PluginTier> tier) {
    auto ended = std::make_shared<std::promise<std::thread::id>>();
    auto on = ended->get_future();
    PluginTier& closing = *tier;
    closing.shutdown([ended, tier = std::move(tier)]() mutable {
      tier.reset();
      ended->set_value(std::this_thread::get_id());
    });
    return on;
  }
  std::thread::id core_thread() {
    std::promise<std::thread::id> self;
    core_->post([&self] { self.set_value(std::this_thread::get_id()); });
    return self.get_future().get();
  }
  std::unique_ptr<PluginTier> open() {
    auto tier = PluginTier::create(kTable, &plugin_, *core_, families_, 1, nullptr);
    return std::move(tier).value();
  }

  SlowToForget plugin_;
  FamilyTable families_;
  std::unique_ptr<ThreadExecutor> core_ = ThreadExecutor::create("core", 1).value();
};

TEST_F(PluginTierEnds, after_a_record_that_it_was_forgetting) {
  auto tier = open();
  Family family{};
  Identity id{};
  id.family = families_.intern(family).value();
  tier->reject(id, 0);
  const std::thread::id plugin_thread = plugin_.asked.get_future().get();
  auto on = end(std::move(tier));
  const std::thread::id core = core_thread();  // and what reject() posted before has run
  EXPECT_EQ(on.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  plugin_.go_on.set_value();
  const std::thread::id ended_on = on.get();
  EXPECT_NE(ended_on, plugin_thread);
  EXPECT_EQ(ended_on, core);
}

TEST_F(PluginTierEnds, with_nothing_in_flight) {
  const std::thread::id core = core_thread();
  EXPECT_EQ(end(open()).get(), core);
}

}  // namespace
}  // namespace kvbm::capi::plugin_tier_test
