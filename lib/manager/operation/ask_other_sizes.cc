#include "manager/operation/ask_other_sizes.h"

#include <algorithm>

#include "manager/lower/lower_tiers.h"
#include "manager/operation/lend.h"

namespace kvbm::manager {

namespace {

void add_shards(const OtherSize& size, const Key& key, std::vector<Identity>& ids) {
  for (const FamilyId family : size.families) ids.push_back({key, family});
}

bool is_known(LowerTiers& lower, std::vector<Identity> ids) {
  keep_unknown(lower, ids);
  return ids.empty();
}

}  // namespace

std::vector<Identity> AskOtherSizes::first() {
  std::vector<Identity> out;
  if (ns_.are_other_sizes_quiet(lower_.host().env().clock().now_ns())) return out;
  for (const PartPlan& part : parts_) {
    std::vector<Identity> ids;
    for (const Key& key : keys_) ids.push_back({key, part.family});
    keep_unknown(lower_, ids);
    if (ids.empty()) continue;
    Lacking one;
    one.sizes = ns_.all_other_sizes(part);
    std::erase_if(one.sizes, [](const auto& size) { return !size->known(); });
    for (const Identity& id : ids) one.keys.push_back(id.key);
    for (size_t i = 0; i < std::min(one.keys.size(), kFirstKeys); ++i) {
      for (const auto& size : one.sizes) add_shards(*size, one.keys[i], out);
    }
    lacking_.push_back(std::move(one));
  }
  keep_unknown(lower_, out);
  return out;
}

std::vector<Identity> AskOtherSizes::rest() {
  std::vector<Identity> out;
  bool any = false;
  for (const Lacking& one : lacking_) {
    const size_t first = std::min(one.keys.size(), kFirstKeys);
    for (const auto& size : one.sizes) {
      const auto whole = [&](const Key& key) {
        std::vector<Identity> shards;
        add_shards(*size, key, shards);
        return is_known(lower_, std::move(shards));
      };
      const auto firsts = std::span(one.keys).first(first);
      if (std::none_of(firsts.begin(), firsts.end(), whole)) continue;
      any = true;
      for (const Key& key : std::span(one.keys).subspan(first)) add_shards(*size, key, out);
      break;
    }
  }
  ns_.quiet_other_sizes(any ? UINT64_MAX : lower_.host().env().clock().now_ns() + kQuietNs);
  keep_unknown(lower_, out);
  return out;
}

}  // namespace kvbm::manager
