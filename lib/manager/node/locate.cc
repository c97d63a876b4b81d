#include "manager/node/locate.h"

#include <algorithm>
#include <tuple>

#include "cluster/tier/peer_tier.h"
#include "manager/operation/lend.h"
#include "manager/operation/prefix.h"

namespace kvbm::manager {

namespace {

using cluster::wire::FoundItem;

// The answers of one holder to one request; a part's keys are `stride` apart.
class Holder {
 public:
  Holder(const LocateRequest& request, std::span<const FoundItem> found, size_t first, size_t keys)
      : parts_(request.parts), found_(found), stride_(request.keys.size()), first_(first), keys_(keys) {}

  void add_rows(LocatedRow row, std::vector<LocatedRow>& out) const {
    for (uint32_t tier = 0, slowest = slowest_tier(); tier <= slowest; ++tier) {
      const size_t prefix = longest_prefix(
          parts_.size(), keys_, [&](size_t p) -> const PartPlan& { return parts_[p]; },
          [&](size_t p, size_t i) { return item(p, i).present != 0 && item(p, i).tier <= tier; });
      if (prefix <= row.prefix) continue;
      row.tier = static_cast<TierIndex>(tier);
      row.prefix = prefix;
      row.in_tier = row.bytes = 0;
      for (size_t i = 0; i < prefix; ++i) count(i, row);
      out.push_back(row);
    }
  }

 private:
  [[nodiscard]] const FoundItem& item(size_t part, size_t i) const { return found_[part * stride_ + first_ + i]; }

  [[nodiscard]] uint32_t slowest_tier() const {
    uint32_t slowest = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      for (size_t i = 0; i < keys_; ++i) {
        const FoundItem& one = item(p, i);
        if (one.present != 0) slowest = std::max<uint32_t>(slowest, one.tier);
      }
    }
    return slowest;
  }

  // Counts key i; of a window or a state part only the blocks that the prefix needs.
  void count(size_t i, LocatedRow& row) const {
    bool here = false;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const FoundItem& one = item(p, i);
      const size_t reach = tail_blocks(parts_[p]);
      if (reach != 0 && i + reach < row.prefix) continue;
      row.bytes += one.payload_bytes;
      here = here || one.tier == row.tier;
    }
    row.in_tier += here ? 1 : 0;
  }

  std::span<const PartPlan> parts_;
  std::span<const FoundItem> found_;
  size_t stride_;
  size_t first_;
  size_t keys_;
};

}  // namespace

std::vector<Identity> identities_of(const LocateRequest& request) {
  std::vector<Identity> ids;
  ids.reserve(request.parts.size() * request.keys.size());
  for (const PartPlan& part : request.parts) {
    for (const Key& key : request.keys) ids.push_back({key, part.family});
  }
  return ids;
}

cluster::NodeAnswer own_answer(LowerTiers& lower, std::span<const Identity> ids) {
  std::vector<tier::Found> found(ids.size());
  std::vector<TierIndex> tiers(ids.size());
  find_to_lend(lower, ids, found, tiers);
  cluster::NodeAnswer out;
  out.whole = true;
  out.found.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (tiers[i] == kNoTier) continue;
    out.found[i].present = 1;
    out.found[i].tier = tiers[i];
    out.found[i].payload_bytes = found[i].payload_bytes;
  }
  return out;
}

std::vector<LocatedRow> locate(const LocateRequest& request, std::span<const cluster::NodeAnswer> answers) {
  std::vector<LocatedRow> rows;
  for (const cluster::NodeAnswer& answer : answers) {
    size_t first = 0;
    for (size_t r = 0; r < request.request_keys.size(); ++r) {
      LocatedRow row;
      row.node = answer.node;
      row.request = static_cast<uint32_t>(r);
      Holder(request, answer.found, first, request.request_keys[r]).add_rows(row, rows);
      first += request.request_keys[r];
    }
  }
  // A zero id, this manager's, sorts before all others.
  std::sort(rows.begin(), rows.end(), [](const LocatedRow& a, const LocatedRow& b) {
    return std::tie(a.request, b.prefix, a.node, a.tier) < std::tie(b.request, a.prefix, b.node, b.tier);
  });
  return rows;
}

}  // namespace kvbm::manager
