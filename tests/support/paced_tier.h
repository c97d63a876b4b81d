// A tier in memory that answers in the order it is asked, with a latency and a speed that a test sets as it goes.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/thread/executor.h"
#include "tier/tier.h"

namespace kvbm::test {

// Settings that a test may change at any time.
struct Pace {
  uint64_t latency_ns = 0;
  double ns_per_byte = 0;
  uint64_t gets = 0;     // items asked for so far
  bool damages = false;  // returned records have another first byte
  // Keeps puts in `kept`, unanswered, until the test calls answer_put().
  bool keeps_puts = false;
  Code refuses = Code::ok;  // puts end with it and store nothing, unless it is ok
  std::deque<std::unique_ptr<tier::PutBatch>> kept{};
  // Hooks, each run once: after a put was taken, before records are erased, and after a record was read but not
  // returned yet.
  std::function<void()> on_put{}, on_erase{}, on_read{};
  static void run(std::function<void()>& hook) {
    if (const auto once = std::exchange(hook, nullptr)) once();
  }
  // Reports the oldest kept put as stored.
  void answer_put() {
    const auto batch = std::move(kept.front());
    kept.pop_front();
    batch->done(*batch);
  }
};

class PacedTier : public tier::Tier {
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
    batch->status.assign(batch->items.size(), pace_->refuses);
    for (const tier::PutItem& item : batch->items) {
      if (pace_->refuses != Code::ok) break;
      records_[item.id] = {{item.head.begin(), item.head.end()}, {item.payload.begin(), item.payload.end()}};
    }
    if (pace_->keeps_puts) {
      pace_->kept.push_back(std::move(batch));
      return Pace::run(pace_->on_put);
    }
    auto held = std::make_shared<std::unique_ptr<tier::PutBatch>>(std::move(batch));
    executor_.post([held] { (*held)->done(**held); });
  }

  void get(std::unique_ptr<tier::GetBatch> batch) override {
    const uint64_t now = executor_.clock().now_ns();
    pace_->gets += batch->items.size();
    batch->status.assign(batch->items.size(), Code::again);
    auto get = std::make_shared<Get>();
    get->batch = std::move(batch);
    get->from_ns = now + pace_->latency_ns;
    queue_.push_back(get);
    if (get->batch->deadline_ns != kNever) {
      executor_.post_at(get->batch->deadline_ns, [get] { over(*get, Code::deadline); });
    }
    if (queue_.size() == 1) serve();
  }

  void erase(std::span<const Identity> ids) override {
    Pace::run(pace_->on_erase);
    for (const Identity& id : ids) records_.erase(id);
  }
  void reject(const Identity& id, uint64_t /*location*/) override { records_.erase(id); }
  Status erase_family(FamilyId family) override {
    Pace::run(pace_->on_erase);
    std::erase_if(records_, [family](const auto& one) { return one.first.family == family; });
    return {};
  }
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> /*out*/) override {
    cursor = 0;
    return 0;
  }
  [[nodiscard]] tier::TierStats stats() const override { return {}; }
  Result<uint64_t> epoch(const NamespaceId& /*base_id*/) override { return uint64_t{0}; }
  Status set_epoch(const NamespaceId& /*base_id*/, uint64_t /*epoch*/) override { return {}; }
  void sync(UniqueFunction<void(const Status&)> done) override { done({}); }
  void shutdown(UniqueFunction<void()> done) override { executor_.post(std::move(done)); }

 private:
  struct Record {
    std::vector<std::byte> head;
    std::vector<std::byte> payload;
  };
  struct Get {
    std::unique_ptr<tier::GetBatch> batch;  // null: it is over
    uint64_t from_ns = 0;
    size_t next = 0;
  };
  // Ends a get: items that were not decided get `code`.
  static void over(Get& get, Code code) {
    if (get.batch == nullptr) return;
    for (Code& one : get.batch->status) {
      if (one == Code::again) one = code;
    }
    const auto batch = std::move(get.batch);
    batch->done(*batch);
  }

  // Serves the next item of the first batch, at the present speed.
  void serve() {
    while (!queue_.empty() &&
           (queue_.front()->batch == nullptr || queue_.front()->next == queue_.front()->batch->items.size())) {
      over(*queue_.front(), Code::ok);
      queue_.pop_front();
    }
    if (queue_.empty()) return;
    const std::shared_ptr<Get> get = queue_.front();
    const auto it = records_.find(get->batch->items[get->next].id);
    const uint64_t bytes = it == records_.end() ? 0 : it->second.payload.size();
    const uint64_t at = std::max(executor_.clock().now_ns(), get->from_ns) +
                        static_cast<uint64_t>(static_cast<double>(bytes) * pace_->ns_per_byte);
    executor_.post_at(at, [this, get] {
      if (get->batch != nullptr) fill(*get);
      serve();
    });
  }

  void fill(Get& get) {
    tier::GetItem& item = get.batch->items[get.next];
    const auto it = records_.find(item.id);
    get.batch->status[get.next++] = it == records_.end() ? Code::miss : Code::ok;
    if (it == records_.end()) return;
    item.head_bytes = static_cast<uint32_t>(it->second.head.size());
    item.payload_bytes = it->second.payload.size();
    item.location = 1;
    std::memcpy(item.head.data(), it->second.head.data(), it->second.head.size());
    std::memcpy(item.payload.data(), it->second.payload.data(), it->second.payload.size());
    if (pace_->damages) item.payload[0] ^= std::byte{1};
    Pace::run(pace_->on_read);
  }

  Executor& executor_;
  const std::shared_ptr<Pace> pace_;
  std::map<Identity, Record> records_;
  std::deque<std::shared_ptr<Get>> queue_;
};

}  // namespace kvbm::test
