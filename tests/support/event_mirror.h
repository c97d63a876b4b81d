// The sum of a manager's events, compared with its scan.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "copy/queue.h"
#include "manager/manager.h"
#include "manager/stack/scan.h"

namespace kvbm::test {

class EventMirror {
 public:
  // Subscribes, and treats existing blocks as reported. Blocks of one key with different shards are one block here, as
  // in events.
  explicit EventMirror(manager::Manager& manager) : manager_(manager) {
    auto made = copy::Queue::create(1);
    EXPECT_TRUE(made.ok());
    queue_ = std::move(made).value();
    manager_.events().subscribe(queue_);
    reported_ = here();
  }
  ~EventMirror() { manager_.events().subscribe(nullptr); }
  EventMirror(const EventMirror&) = delete;
  EventMirror& operator=(const EventMirror&) = delete;

  // Compares the sum of the events with a scan. Only while no operation is in progress.
  void check() {
    read();
    const std::set<Place> now = here();
    for (const Place& place : now) {
      EXPECT_TRUE(reported_.contains(place)) << "there, and events say it is not: " << text(place);
    }
    for (const Place& place : reported_) {
      EXPECT_TRUE(now.contains(place)) << "gone, and no event said so: " << text(place);
    }
    reported_ = now;
  }
  [[nodiscard]] uint64_t stored() const { return stored_; }
  [[nodiscard]] uint64_t removed_below() const { return removed_below_; }
  [[nodiscard]] uint64_t cleared() const { return cleared_; }
  [[nodiscard]] uint64_t disabled() const { return disabled_; }

 private:
  using Place = std::tuple<uint32_t, NamespaceId, uint32_t, Key>;  // tier, namespace, component, key

  void read() {
    std::vector<copy::Event> events(256);
    while (const size_t n = queue_->poll_events(events)) {
      for (size_t i = 0; i < n; ++i) take(events[i]);
    }
  }
  void take(const copy::Event& e) {
    EXPECT_EQ(e.sequence, ++sequence_) << "events were lost";
    sequence_ = e.sequence;
    const Place place{e.tier, e.ns, e.component, e.key};
    switch (e.kind) {
      case copy::EventKind::stored:
        ++stored_;
        reported_.insert(place);
        break;
      case copy::EventKind::removed:
        removed_below_ += e.tier != 0 ? 1 : 0;
        reported_.erase(place);
        break;
      case copy::EventKind::cleared:
        ++cleared_;
        std::erase_if(reported_, [&](const Place& p) { return e.ns == NamespaceId{} || std::get<1>(p) == e.ns; });
        break;
      case copy::EventKind::disabled:
        ++disabled_;
        std::erase_if(reported_, [&](const Place& p) { return std::get<0>(p) == e.tier; });
        break;
    }
  }
  [[nodiscard]] std::set<Place> here() const {
    std::set<Place> out;
    std::vector<manager::ScanEntry> rows(256);
    uint64_t cursor = 0;
    do {
      const size_t n = manager::scan(manager_.stack(), cursor, rows);
      for (size_t i = 0; i < n; ++i) {
        if (rows[i].tier != 0 && manager_.lower().disabled(rows[i].tier)) continue;
        const Family& family = manager_.families().get(rows[i].id.family);
        out.emplace(rows[i].tier, family.ns, family.component, rows[i].id.key);
      }
    } while (cursor != 0);
    return out;
  }
  static std::string text(const Place& place) {
    std::string key;
    for (const auto b : std::get<3>(place).bytes) key += std::to_string(static_cast<unsigned>(b)) + ' ';
    return "tier " + std::to_string(std::get<0>(place)) + ", key " + key;
  }

  manager::Manager& manager_;
  std::shared_ptr<copy::Queue> queue_;
  std::set<Place> reported_;
  uint64_t sequence_ = 0;
  uint64_t stored_ = 0, removed_below_ = 0, cleared_ = 0, disabled_ = 0;
};

}  // namespace kvbm::test
