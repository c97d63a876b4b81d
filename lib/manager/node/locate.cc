#include "manager/node/locate.h"

#include <algorithm>
#include <tuple>

#include "cluster/tier/peer_tier.h"
#include "manager/operation/lend.h"
#include "manager/operation/prefix.h"

namespace kvbm::manager {

namespace {

using cluster::wire::FoundItem;

// Adds the rows of one holder for one request. Its keys begin at `first`. `found` has all keys of the first part,
// then those of the next. `row` names the holder and the request.
void add_rows(const LocateRequest& request, std::span<const FoundItem> found, size_t first, LocatedRow row,
              std::vector<LocatedRow>& out) {
  const std::span<const PartPlan> parts = request.parts;
  const size_t keys = request.request_keys[row.request];
  const auto item = [&](size_t p, size_t i) -> const FoundItem& { return found[p * request.keys.size() + first + i]; };
  uint32_t slowest = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (size_t i = 0; i < keys; ++i) {
      if (item(p, i).present != 0) slowest = std::max<uint32_t>(slowest, item(p, i).tier);
    }
  }
  // Counts key i; of a window or a state part only the blocks that the prefix needs.
  const auto count = [&](size_t i) {
    bool here = false;
    for (size_t p = 0; p < parts.size(); ++p) {
      const size_t reach = tail_blocks(parts[p]);
      if (reach != 0 && i + reach < row.prefix) continue;
      row.bytes += item(p, i).payload_bytes;
      here = here || item(p, i).tier == row.tier;
    }
    row.in_tier += here ? 1 : 0;
  };
  for (uint32_t tier = 0; tier <= slowest; ++tier) {
    const size_t prefix = longest_prefix(
        parts.size(), keys, [&](size_t p) -> const PartPlan& { return parts[p]; },
        [&](size_t p, size_t i) { return item(p, i).present != 0 && item(p, i).tier <= tier; });
    if (prefix <= row.prefix) continue;
    row.tier = static_cast<TierIndex>(tier);
    row.prefix = prefix;
    row.in_tier = row.bytes = 0;
    for (size_t i = 0; i < prefix; ++i) count(i);
    out.push_back(row);
  }
}

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
      add_rows(request, answer.found, first, row, rows);
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
