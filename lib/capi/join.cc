#include "capi/join.h"

#include <utility>

#include "manager/common/seal_keys.h"
#include "manager/node/local_node.h"
#include "manager/node/node.h"
#include "manager/share/share.h"

namespace kvbm::capi {

Status join(const manager::Environment& environment, manager::Options& options, Tenancy& out) {
  auto share = manager::Share::create(environment, options);
  if (!share.ok()) return share.status();
  out.share = std::move(share).value();
  if (!options.node.wanted()) return {};
  options.host.shared = manager::shares_host_memory(options);
  if (Status keys = manager::load_seal_keys(options); !keys.ok()) return keys;
  auto node = manager::Node::create(environment, options.node, options.seal_keys);
  if (!node.ok()) return node.status();
  out.node = std::move(node).value();
  manager::TierOptions tier;  // of the other nodes: the last one
  tier.admission = options.node.admission;
  tier.make = [made = out.node.get()](TierIndex index, FamilyTable& families, tier::TierListener*) {
    return made->make_tier(index, families);
  };
  options.tiers.push_back(std::move(tier));
  return {};
}

}  // namespace kvbm::capi
