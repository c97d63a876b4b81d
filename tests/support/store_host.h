// Hosts with a store's tier each, over one simulated bucket (sim_store.h). Records are made from numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/telemetry/log.h"
#include "support/disk_world.h"
#include "support/sim_store.h"
#include "tier/store/store_tier.h"

namespace kvbm::test::store_host {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kBytes = 5000;

// Returns the time of a host with the right clock.
inline uint64_t unix_ms_of(const SimExecutor& sim) { return 1'700'000'000'000 + sim.clock().now_ns() / 1'000'000; }

struct Epochs final : tier::TierListener {
  void removed(TierIndex, std::span<const Identity>, bool damaged) override { damages += damaged ? 1 : 0; }
  void disabled(TierIndex, const Status&) override {}
  void epoch_raised(TierIndex, const NamespaceEpoch& row) override { raised.push_back(row); }
  uint64_t damages = 0;
  std::vector<NamespaceEpoch> raised;
};

// Counts open requests, and checks that each is answered once.
struct Asked {
  uint64_t open = 0, wrong = 0, late = 0, right = 0, missed = 0, stored = 0;
};

// A host with a store's tier on the simulation.
class Host {
 public:
  Host(SimExecutor& sim, std::shared_ptr<SimBucket> bucket, Asked& asked, uint64_t skew_ms,
       tier::store::StoreTierOptions options = {}, uint64_t record_bytes = kBytes)
      : sim_(sim), asked_(asked), bytes_(record_bytes) {
    family_ = families_.intern(family_of(1)).value();
    auto store = std::make_unique<SimStore>(sim, std::move(bucket));
    control = store->control();
    options.unix_ms = [&sim, skew_ms] { return unix_ms_of(sim) + skew_ms; };
    options.staging_bytes = 256 << 10;
    log_.set_sink(&note, this, LogLevel::info);
    auto opened =
        tier::store::StoreTier::open(std::move(store), options, sim, families_, sim.random(), &log_, 1, &listener);
    EXPECT_TRUE(opened.ok());
    tier = std::move(opened).value();
  }
  ~Host() {
    bool down = false;
    tier->shutdown([&] { down = true; });
    EXPECT_TRUE(sim_.run_until_within([&] { return down; }, 60 * kSecond));
  }

  [[nodiscard]] Identity id(uint64_t n) const { return {key_of(n), family_}; }
  [[nodiscard]] FamilyId family() const { return family_; }

  void put(const std::vector<uint64_t>& numbers, uint64_t within, bool durable = false,
           std::set<uint64_t>* stored = nullptr) {
    auto records = std::make_shared<std::vector<std::unique_ptr<TestRecord>>>();
    auto batch = std::make_unique<tier::PutBatch>();
    for (const uint64_t n : numbers) {
      records->push_back(std::make_unique<TestRecord>(n, bytes_, family_of(1)));
      tier::PutItem item;
      item.id = id(n);
      item.head = records->back()->head;
      item.payload = records->back()->payload();
      batch->items.push_back(item);
    }
    batch->deadline_ns = sim_.clock().now_ns() + within;
    batch->durable = durable;
    ++asked_.open;
    batch->done = [this, records, numbers, stored](tier::PutBatch& b) {
      --asked_.open;
      if (sim_.clock().now_ns() > b.deadline_ns + kSecond / 10) ++asked_.late;
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (b.status[i] != Code::ok) continue;
        ++asked_.stored;
        if (stored != nullptr) stored->insert(numbers[i]);
      }
    };
    tier->put(std::move(batch));
  }

  // Returns the numbers that the tier finds.
  std::vector<uint64_t> found(const std::vector<uint64_t>& numbers) {
    std::vector<Identity> ids;
    for (const uint64_t n : numbers) ids.push_back(id(n));
    std::vector<tier::Found> out(ids.size());
    tier->find(ids, out, true);
    std::vector<uint64_t> there;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (out[i].present) there.push_back(numbers[i]);
    }
    return there;
  }

  void get(const std::vector<uint64_t>& numbers, uint64_t within, bool borrows = false,
           std::set<uint64_t>* right = nullptr) {
    struct Room {
      tier::disk::AlignedBuffer head{8192}, payload{8192};
    };
    auto rooms = std::make_shared<std::vector<std::unique_ptr<Room>>>();
    auto batch = std::make_unique<tier::GetBatch>();
    for (const uint64_t n : numbers) {
      rooms->push_back(std::make_unique<Room>());
      tier::GetItem item;
      item.id = id(n);
      item.head = rooms->back()->head.span();
      item.payload = rooms->back()->payload.span();
      batch->items.push_back(std::move(item));
    }
    batch->deadline_ns = sim_.clock().now_ns() + within;
    batch->accepts.verifies = batch->accepts.borrows = borrows;
    ++asked_.open;
    batch->done = [this, rooms, numbers, right](tier::GetBatch& b) {
      --asked_.open;
      if (sim_.clock().now_ns() > b.deadline_ns + kSecond / 10) ++asked_.late;
      for (size_t i = 0; i < numbers.size(); ++i) check(b, i, numbers[i], right);
    };
    tier->get(std::move(batch));
  }

  std::shared_ptr<SimStore::Control> control;
  Epochs listener;
  std::unique_ptr<tier::store::StoreTier> tier;
  std::vector<std::string> said;  // lines of the log

  // Returns the number of lines of the log that contain `part`.
  [[nodiscard]] size_t count_said(std::string_view part) const {
    return static_cast<size_t>(std::count_if(
        said.begin(), said.end(), [part](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

 private:
  static void note(void* self, const LogMessage& message) { static_cast<Host*>(self)->said.emplace_back(message.text); }
  void check(tier::GetBatch& b, size_t i, uint64_t n, std::set<uint64_t>* right) {
    const tier::GetItem& item = b.items[i];
    if (b.status[i] != Code::ok) {
      ++asked_.missed;
      return;
    }
    const TestRecord expected(n, bytes_, family_of(1));
    const ConstBytes payload = item.lender != nullptr ? item.lent : ConstBytes(item.payload).first(item.payload_bytes);
    const bool equal = item.payload_bytes == bytes_ && item.head_bytes == expected.head.size() &&
                       std::equal(expected.head.begin(), expected.head.end(), item.head.begin()) &&
                       std::equal(payload.begin(), payload.end(), expected.payload().begin());
    // The receiver checks lent bytes and rejects a record that does not verify.
    const auto head = codec::HeadView::parse(ConstBytes(item.head).first(item.head_bytes));
    const bool verifies = head.ok() && leaves_verify(head.value(), payload);
    if (b.accepts.verifies && !verifies) {
      tier->reject(item.id, item.location);
      ++asked_.missed;
      return;
    }
    if (!equal) ++asked_.wrong;
    ++asked_.right;
    if (right != nullptr) right->insert(n);
  }
  static bool leaves_verify(const codec::HeadView& head, ConstBytes payload) {
    for (uint32_t l = 0; l < head.header().leaf_count; ++l) {
      const codec::Leaf leaf = head.leaf(l);
      if (codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes)) != leaf.hash) return false;
    }
    return true;
  }

  SimExecutor& sim_;
  Asked& asked_;
  const uint64_t bytes_;
  Log log_;
  FamilyTable families_;
  FamilyId family_ = 0;
};

inline std::vector<uint64_t> numbers_of(uint64_t first, uint64_t n) {
  std::vector<uint64_t> out;
  for (uint64_t i = 0; i < n; ++i) out.push_back(first + i);
  return out;
}

}  // namespace kvbm::test::store_host
