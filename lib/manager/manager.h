// The manager: one set of tiers, composed of its parts. Callers take the parts that they use.
//
// Everything here is step-driven: calls either finish at once or start an Operation on the environment's executor.
// Thread: any. Lock order: lib/README.md.
#pragma once

#include <memory>

#include "base/family/family_table.h"
#include "manager/common/counters.h"
#include "manager/common/environment.h"
#include "manager/common/events.h"
#include "manager/common/lifetime.h"
#include "manager/common/options.h"
#include "manager/host/host_tier.h"
#include "manager/lower/lower_tiers.h"
#include "manager/namespaces/namespaces.h"
#include "manager/share/share_state.h"
#include "manager/stack/pins.h"
#include "manager/stack/stats.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

class CodingTerms;
class DeviceCaches;

class Manager {
 public:
  static Result<std::shared_ptr<Manager>> create(const Environment& environment, Options options);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Stops accepting work, finishes what is in flight and closes the tiers; `done` runs once.
  void shutdown(UniqueFunction<void()> done);

  [[nodiscard]] const Environment& env() const noexcept { return env_; }
  [[nodiscard]] HostTier& host() noexcept { return host_; }
  [[nodiscard]] LowerTiers& lower() noexcept { return lower_; }
  [[nodiscard]] TierStack& stack() noexcept { return stack_; }
  [[nodiscard]] Namespaces& namespaces() noexcept { return namespaces_; }
  [[nodiscard]] Pins& pins() noexcept { return *pins_; }
  [[nodiscard]] DeviceCaches& devices() noexcept { return *devices_; }
  [[nodiscard]] FamilyTable& families() noexcept { return families_; }
  [[nodiscard]] Events& events() noexcept { return events_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  // Coding parameters of families (coding_terms.h).
  [[nodiscard]] const std::shared_ptr<CodingTerms>& coding_terms() const noexcept { return coding_terms_; }
  // State in a shared tier set (share.h).
  [[nodiscard]] ShareState& share() noexcept { return share_; }
  // Returns the parts that statistics and metrics report on.
  [[nodiscard]] Observed observed() noexcept { return {stack_, *pins_, namespaces_, share_, *devices_}; }

 private:
  Manager(const Environment& environment, Options options);
  Status open();

  // A part refers to parts above it, which outlive it.
  const Environment env_;
  const Options options_;
  Lifetime lifetime_;
  FamilyTable families_;
  Events events_;
  Counters counters_;
  const std::shared_ptr<CodingTerms> coding_terms_;
  HostTier host_;
  std::unique_ptr<DeviceCaches> devices_;  // registers memory of host_
  std::unique_ptr<Pins> pins_;
  LowerTiers lower_;
  TierStack stack_;
  ShareState share_;
  Namespaces namespaces_;
};

}  // namespace kvbm::manager
