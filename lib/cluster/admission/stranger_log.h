// Log of refused connections: the address, the name that the peer (a stranger) gave, the reason and the remedy.
//
// Any process can connect, so nothing of a stranger is trusted: its name is logged as unproven, is cut, and only
// printable characters are shown. There are few lines, however many strangers connect. A stranger that repeats is
// logged once in kAgainNs (the last kRemembered logged ones are known, by the name they gave or their address, and
// the reason). Others are logged kBurst times, then once every kEveryNs, each line with the number of omitted ones. A
// peer that connects and leaves, or sends nothing, is not logged (it counts in the ends of links). Thread: one, that
// of the links.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/telemetry/log.h"
#include "cluster/node.h"

namespace kvbm::cluster {

class StrangerLog {
 public:
  static constexpr uint64_t kBurst = 8;
  static constexpr uint64_t kEveryNs = 10'000'000'000;
  static constexpr uint64_t kAgainNs = 600'000'000'000;
  static constexpr size_t kRemembered = 64;
  static constexpr size_t kMostShown = 160;  // bytes of an address

  // `log` null: nothing is logged.
  StrangerLog(const Log* log, std::string_view component) : log_(log), component_(component) {}

  // Logs a refusal. `from`: the address, as the transport names it. `node`, `pool`: as the stranger named them; zero
  // and empty if it did not. `why`: with the remedy.
  void refused(std::string_view from, const NodeId& node, std::string_view pool, const Status& why, uint64_t now_ns);

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
  uint64_t filled_ns_ = 0;  // time up to which lines_left_ has been filled
  uint64_t unsaid_ = 0;
  std::array<Said, kRemembered> said_{};  // a ring
  size_t next_said_ = 0;
};

// Returns true if the end of an unauthenticated connection was a refusal of what it sent.
bool is_refusal(Code why) noexcept;

}  // namespace kvbm::cluster
