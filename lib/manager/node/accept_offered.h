// Accepts records that another node offers into this manager's host tier, the counterpart of lending.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cluster/tier/peer_tier.h"
#include "manager/node/node_source.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

// Adds to `want` the items to accept: all that fit in a slot. An item that is here already is wanted too: it costs no
// fetch, and the other side learns that it is here. The rest is read through `tier`, which is tier number `index` of
// the manager, verified and registered; then the lease is released, and `done` (may be empty) runs. Thread: the
// links'.
void accept_offered(const std::shared_ptr<TierStack>& stack, TierIndex index, cluster::PeerTier& tier,
                    cluster::PeerLink& link, std::span<const cluster::Offered> offered, uint64_t lease,
                    const std::shared_ptr<WeakExecutor>& links, std::vector<uint32_t>& want,
                    UniqueFunction<void()> done = {});

}  // namespace kvbm::manager
