// A tier in memory that answers in the order it is asked, with a latency and a speed that a test sets as it goes.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "tier/tier.h"

namespace kvbm::test {

// What a test may change at any time; batches that are on their way keep what they were asked under.
struct Pace {
  uint64_t latency_ns = 0;
  double ns_per_byte = 0;
  uint64_t gets = 0;  // items asked for so far
};

class PacedTier final : public tier::Tier {
 public:
  PacedTier(Executor& executor, std::shared_ptr<Pace> pace) : executor_(executor), pace_(std::move(pace)) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "paced"; }
  [[nodiscard]] std::string describe() const override { return "paced"; }
  void find(std::span<const Identity> ids, std::span<tier::Found> out, bool /*touch*/) noexcept override {
    for (size_t i = 0; i < ids.size(); ++i) {
      out[i] = {};
      const auto it = records_.find(ids[i]);
      if (it == records_.end()) continue;
      out[i] = {true, static_cast<uint32_t>(it->second.head.size()), it->second.payload.size(), 1};
    }
  }
  bool pin(const Identity& id) noexcept override { return records_.contains(id); }
  void unpin(const Identity& /*id*/) noexcept override {}

  void put(std::unique_ptr<tier::PutBatch> batch) override {
    batch->status.assign(batch->items.size(), Code::ok);
    for (const tier::PutItem& item : batch->items) {
      records_[item.id] = {{item.head.begin(), item.head.end()}, {item.payload.begin(), item.payload.end()}};
    }
    finish(std::move(batch), executor_.clock().now_ns());
  }

  void get(std::unique_ptr<tier::GetBatch> batch) override {
    const uint64_t now = executor_.clock().now_ns();
    batch->status.assign(batch->items.size(), Code::miss);
    uint64_t bytes = 0;
    for (const tier::GetItem& item : batch->items) {
      const auto it = records_.find(item.id);
      if (it != records_.end()) bytes += it->second.payload.size();
    }
    pace_->gets += batch->items.size();
    free_ns_ = std::max(free_ns_, now + pace_->latency_ns) +
               static_cast<uint64_t>(static_cast<double>(bytes) * pace_->ns_per_byte);
    const bool late = free_ns_ > batch->deadline_ns;
    for (size_t i = 0; i < batch->items.size(); ++i) {
      tier::GetItem& item = batch->items[i];
      const auto it = records_.find(item.id);
      if (it == records_.end()) continue;
      batch->status[i] = late ? Code::deadline : Code::ok;
      item.head_bytes = static_cast<uint32_t>(it->second.head.size());
      item.payload_bytes = it->second.payload.size();
      item.location = 1;
      if (late) continue;
      std::memcpy(item.head.data(), it->second.head.data(), it->second.head.size());
      std::memcpy(item.payload.data(), it->second.payload.data(), it->second.payload.size());
    }
    finish(std::move(batch), std::min(free_ns_, std::max(now, batch->deadline_ns)));
  }

  void erase(std::span<const Identity> ids) override {
    for (const Identity& id : ids) records_.erase(id);
  }
  void reject(const Identity& id, uint64_t /*location*/) override { records_.erase(id); }
  Status erase_family(FamilyId /*family*/) override { return {}; }
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> /*out*/) override {
    cursor = 0;
    return 0;
  }
  [[nodiscard]] tier::TierStats stats() const override { return {}; }
  Result<uint64_t> epoch(const NamespaceId& /*base_id*/) override { return uint64_t{0}; }
  Status set_epoch(const NamespaceId& /*base_id*/, uint64_t /*epoch*/) override { return {}; }
  void shutdown(UniqueFunction<void()> done) override { executor_.post(std::move(done)); }

 private:
  struct Record {
    std::vector<std::byte> head;
    std::vector<std::byte> payload;
  };
  template <class Batch>
  void finish(std::unique_ptr<Batch> batch, uint64_t at_ns) {
    auto held = std::make_shared<std::unique_ptr<Batch>>(std::move(batch));
    executor_.post_at(at_ns, [held] { (*held)->done(**held); });
  }

  Executor& executor_;
  const std::shared_ptr<Pace> pace_;
  std::map<Identity, Record> records_;
  uint64_t free_ns_ = 0;
};

}  // namespace kvbm::test
