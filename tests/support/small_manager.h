// A manager of a few host slots over one simulated disk, with blocks named by numbers: block n is n in every byte.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "manager/host/host_record.h"
#include "manager/manager.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"

namespace kvbm::test {

class SmallManager : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlock = 8192;
  static constexpr uint32_t kSlots = 8;

  static Key key(uint64_t n) {
    Key k;
    std::memcpy(k.bytes.data(), &n, sizeof n);
    k.bytes[15] = 1;
    return k;
  }

  void make(manager::AdmissionKind admission) {
    manager::Options options;
    options.host.block_bytes = kBlock;
    options.host.capacity_bytes = 4096 + kSlots * (kBlock + tier::HostArena::head_stride(kBlock));
    options.host.huge_pages = false;
    options.tiers.resize(1);
    options.tiers[0].path = "/tier";
    options.tiers[0].capacity_bytes = 64 << 20;
    options.tiers[0].admission = admission;
    options.tiers[0].admission_uses = 1;
    adjust(options);
    manager::Environment environment;
    environment.executor = &sim_;
    environment.files = &disk_;
    environment.random = &sim_.random();
    environment.log = &log_;
    auto made = manager::Manager::create(environment, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().message();
    manager_ = std::move(made).value();
    manager::NamespaceOptions who;
    who.model = "m";
    auto opened = manager_->namespaces().open(std::move(who));
    ASSERT_TRUE(opened.ok());
    ns_ = std::move(opened).value();
    family_ = ns_->plan({}).value().family;
  }

  // Settings that a test changes.
  virtual void adjust(manager::Options& /*options*/) {}

  void TearDown() override {
    if (manager_ == nullptr) return;
    bool closed = false;
    manager_->shutdown([&] { closed = true; });
    EXPECT_TRUE(sim_.run_until([&] { return closed; }));
  }

  // A block of `bytes` bytes, all of them n.
  void put(uint64_t n, uint64_t bytes = kBlock) {
    SlotId slot = kNoSlot;
    ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::ok);
    std::memset(manager_->host().arena().payload(slot).data(), static_cast<int>(n), bytes);
    ASSERT_EQ(manager_->host().table().complete({&slot, 1}), Code::ok);
    manager_->host().arena().clear_head(slot);
    manager::note_payload_bytes(manager_->host(), slot, bytes);
    const Key k = key(n);
    block::Publication what;
    what.family = family_;
    what.keys = {&k, 1};
    Code code = Code::internal;
    ASSERT_EQ(manager_->stack().publish({&slot, 1}, what, {}, {&code, 1}), Code::ok);
    ASSERT_EQ(code, Code::ok);
    manager_->host().release({&slot, 1});
  }

  void flush() {
    bool done = false;
    manager_->lower().flush([&] { done = true; });
    ASSERT_TRUE(sim_.run_until([&] { return done; }));
  }

  SimExecutor sim_{7};
  SimDisk disk_{sim_};
  Log log_;
  std::shared_ptr<manager::Manager> manager_;
  std::shared_ptr<manager::Namespace> ns_;
  FamilyId family_ = 0;
};

}  // namespace kvbm::test
