#include "manager/stack/scan.h"

#include <algorithm>
#include <vector>

#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// The cursor: tier in the top byte, then that tier's own cursor. The host's is slot + 1, so that 0 is the start.
constexpr unsigned kTierShift = 56;

uint64_t pack(size_t tier, uint64_t inner) { return static_cast<uint64_t>(tier) << kTierShift | inner; }

size_t scan_host(HostTier& host, uint64_t& inner, std::span<ScanEntry> out) {
  std::vector<block::SlotInfo> infos;
  const SlotId first = inner == 0 ? 0 : static_cast<SlotId>(inner - 1);
  const SlotId next = host.table().scan(first, infos, out.size());
  size_t n = 0;
  for (const block::SlotInfo& info : infos) {
    if (info.state != block::SlotState::registered || info.withdrawn) continue;
    ScanEntry& row = out[n++];
    row = {};
    row.id = info.identity;
    row.bytes = info.payload_bytes;
    row.uses = info.uses;
    row.holds = info.references;
    row.pins = info.pins;
    const uint32_t now = host.tick();
    row.age = now > info.last_use ? now - info.last_use : 0;
  }
  inner = next >= host.table().slots() ? 0 : static_cast<uint64_t>(next) + 1;
  return n;
}

size_t scan_below(LowerTiers& lower, TierIndex tier, uint64_t& inner, std::span<ScanEntry> out) {
  std::vector<tier::ScanRow> rows(std::min<size_t>(out.size(), 1024));
  const size_t n = lower.tier(tier).scan(inner, rows);
  for (size_t i = 0; i < n; ++i) {
    out[i] = {};
    out[i].id = rows[i].id;
    out[i].tier = tier;
    out[i].bytes = rows[i].payload_bytes;
    out[i].uses = rows[i].uses;
    out[i].age = rows[i].idle_seconds;
  }
  return n;
}

}  // namespace

size_t scan(TierStack& stack, uint64_t& cursor, std::span<ScanEntry> out) {
  size_t tier = cursor >> kTierShift;
  uint64_t inner = cursor & ((1ULL << kTierShift) - 1);
  size_t n = 0;
  while (n < out.size()) {
    const auto rest = out.subspan(n);
    n += tier == 0 ? scan_host(stack.host(), inner, rest)
                   : scan_below(stack.lower(), static_cast<TierIndex>(tier), inner, rest);
    if (inner != 0) {
      if (n != 0) break;
      continue;
    }
    if (++tier > stack.lower().count()) {
      cursor = 0;
      return n;
    }
  }
  cursor = pack(tier, inner);
  return n;
}

}  // namespace kvbm::manager
