// What is said of connections that were not let in: from where, what the stranger called itself, why, and what to do.
//
// Anybody can connect, so nothing of a stranger is believed: what it calls itself is said to be unproven, is cut, and
// shows printable characters alone. And lines are few, however many come: who tries again and again is said once in
// kAgainNs (the last kRemembered that were said are known, by what they call themselves or where they come from, and
// why), others kBurst times, then once every kEveryNs, each line with how many were left out before it. Who connects
// and leaves, or says nothing, is no line (counted by how links end). Thread: one, that of the links.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "cluster/node.h"

namespace kvbm::cluster {

class StrangerLog {
 public:
  static constexpr uint64_t kBurst = 8;
  static constexpr uint64_t kEveryNs = 10'000'000'000;
  static constexpr uint64_t kAgainNs = 600'000'000'000;
  static constexpr size_t kRemembered = 64;
  static constexpr size_t kMostShown = 160;  // bytes of an address

  // log: null: nothing is said.
  StrangerLog(const Log* log, std::string_view component) : log_(log), component_(component) {}

  // What a stranger said of itself; a zero node and an empty pool where it came to nothing.
  struct Claim {
    NodeId node;
    std::string_view pool;
  };
  // from: its address, as the transport calls it. why: with the remedy.
  void refused(std::string_view from, const Claim& claim, const Status& why, uint64_t now_ns);

 private:
  struct Said {
    size_t stranger = 0;  // hash
    uint64_t until_ns = 0;
  };
  bool was_said(size_t stranger, uint64_t now_ns) const noexcept;
  bool may_speak(uint64_t now_ns) noexcept;

  const Log* const log_;
  const std::string_view component_;
  uint64_t lines_left_ = kBurst;
  uint64_t filled_ns_ = 0;  // up to when lines_left_ has been filled
  uint64_t unsaid_ = 0;
  std::array<Said, kRemembered> said_{};  // a ring
  size_t next_said_ = 0;
};

// The end of a connection of which nobody knows who it was: whether it was refused for what it said.
bool is_refusal(Code why) noexcept;

}  // namespace kvbm::cluster
