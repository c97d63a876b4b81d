#include "manager/take.h"

#include <utility>

#include "base/memory_wait.h"
#include "manager/host_record.h"
#include "manager/manager.h"
#include "manager/onboard.h"

namespace kvbm::manager {

namespace {
// How long records that were offered may take to come.
constexpr uint64_t kTakeNs = 10'000'000'000;
}  // namespace

void take_offered(const std::shared_ptr<Manager>& manager, TierIndex index, cluster::PeerTier& tier,
                  cluster::PeerLink& link, std::span<const cluster::Offered> offered, uint64_t lease,
                  const NodeSource::Links& links, std::vector<uint32_t>& want, UniqueFunction<void()> done) {
  if (manager->closing()) {
    if (done) links.post(std::move(done));
    return;
  }
  const bool of_nodes = manager->tier_below(index).kind() == cluster::PeerTier::kKind;
  (void)manager->next_tick();  // policies tell what came by this request from what came before
  std::vector<OnboardItem> items;
  std::vector<cluster::Offered> taken;
  for (uint32_t i = 0; i < offered.size(); ++i) {
    const cluster::Offered& one = offered[i];
    const bool fits = one.item.payload_bytes <= manager->arena().block_bytes() &&
                      one.item.head_bytes <= manager->arena().head(0).size();
    if (!fits || taken.size() >= manager->arena().slots()) continue;
    want.push_back(i);
    const SlotId here = manager->acquire_one(one.id.family, one.id.key);
    if (here != kNoSlot) {
      // What lies lossy here gives way to what was not coded, if that is what is offered; what an earlier process left and
      // is not what it wrote is none: whoever offers would evict the only one that is right.
      const bool good = manager->trust(here);
      const bool lossy = good && manager->has_lossy() && lies_lossy(*manager, here);
      // Whoever offers it lets it go now; a copy that came from a node before will not be offered on either.
      const bool given = of_nodes && good && (manager->table().flags(here) & on_tier_flag(index)) != 0;
      if (given) manager->taken().given({&here, 1});
      manager->release({&here, 1});
      if (good && !lossy) continue;
    }
    tier::Found found;
    found.present = true;
    found.head_bytes = one.item.head_bytes;
    found.payload_bytes = one.item.payload_bytes;
    items.push_back({one.id, found});
    taken.push_back(one);
  }
  const auto ended = std::make_shared<UniqueFunction<void()>>(std::move(done));
  const auto release = [weak = link.weak_from_this(), lease, ended] {
    if (const auto alive = weak.lock()) alive->release({&lease, 1});
    if (*ended) (*ended)();
  };
  if (items.empty()) {
    if (!want.empty() || *ended) links.post(release);
    return;
  }
  tier.learn(link.peer(), taken);
  const uint64_t deadline_ns = manager->env().clock().now_ns() + kTakeNs;
  onboard(manager, index, block::kSharedAccount, std::move(items), deadline_ns, Landing::registered, {},
          [manager, release, links, of_nodes, index](std::vector<Landed> landed) {
            const MemoryWait nobody_to_tell;
            std::vector<SlotId> came;
            for (const Landed& one : landed) {
              if (one.code != Code::ok) continue;
              came.push_back(one.slot);
              // Not one that was stored here meanwhile: that will be offered on.
              const bool given = of_nodes && (manager->table().flags(one.slot) & on_tier_flag(index)) != 0;
              if (given) manager->taken().given({&one.slot, 1});
            }
            manager->keep_taken(came);
            links.post(release);
          });
}

}  // namespace kvbm::manager
