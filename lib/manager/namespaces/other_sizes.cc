#include "manager/namespaces/other_sizes.h"

#include <algorithm>
#include <utility>

#include "base/family/family_table.h"
#include "layout/shard.h"

namespace kvbm::manager {

bool OtherSize::known() const noexcept {
  return std::find(families.begin(), families.end(), kNoFamily) == families.end();
}

namespace {

// Returns null if such records cannot be read and cut.
std::shared_ptr<OtherSize> other_size(const layout::Geometry& geometry, const Family& own,
                                      const layout::RecordShape& target, const std::vector<Shard>& shards) {
  auto out = std::make_shared<OtherSize>();
  std::vector<layout::PlacedRecord> sources;
  uint64_t bytes = 0;
  for (const Shard& shard : shards) {
    auto shape = layout::RecordShape::make(geometry, own.component, shard, target.units());
    if (!shape.ok()) return nullptr;
    bytes += shape.value().payload_bytes();
    sources.push_back({shape.value(), 0});
    out->shapes.push_back(std::move(shape).value());
    out->shards.push_back(own);
    out->shards.back().shard = shard;
  }
  if (bytes > OtherSize::kMostBytes) return nullptr;
  auto plan = layout::Reslice::make(sources, {target, 0});
  if (!plan.ok() || !plan.value().complete()) return nullptr;
  out->plan = std::make_shared<const layout::Reslice>(std::move(plan).value());
  out->families.assign(shards.size(), kNoFamily);
  return out;
}

}  // namespace

std::vector<std::shared_ptr<OtherSize>> other_sizes_of(const layout::Geometry& geometry, const Family& own,
                                                       const layout::RecordShape& target) {
  std::vector<std::shared_ptr<OtherSize>> out;
  const layout::ComponentGeometry* const component = geometry.component(own.component);
  if (component == nullptr) return out;
  for (const auto& shards : layout::shards_of_other_sizes(*component, own.shard)) {
    if (auto size = other_size(geometry, own, target, shards)) out.push_back(std::move(size));
  }
  return out;
}

}  // namespace kvbm::manager
