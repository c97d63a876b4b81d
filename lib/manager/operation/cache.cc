#include "manager/operation/cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "device/context/device.h"
#include "device/transfer/landmark.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

Result<CachePart> CachePart::shaped(PartPlan plan, layout::Arrangement arrangement) {
  if (!plan.shape.has_value() || !arrangement.fits(*plan.shape)) {
    return Status(Code::invalid_argument, "the arrangement does not hold the part's layers, heads, tokens and rows");
  }
  CachePart part;
  part.units_ = plan.shape->units();
  part.leaf_count_ = plan.shape->leaf_count();
  part.payload_bytes_ = plan.shape->payload_bytes();
  part.plan_ = std::move(plan);
  part.arrangement_ = std::move(arrangement);
  return part;
}

Result<CachePart> CachePart::opaque(PartPlan plan, layout::PageArrangement pages, uint32_t units) {
  const Status fits = pages.check_units(units);
  if (!fits.ok()) return fits;
  CachePart part;
  part.plan_ = std::move(plan);
  part.units_ = units;
  part.leaf_count_ = pages.leaf_count(units);
  part.payload_bytes_ = pages.payload_bytes(units);
  part.pages_ = std::move(pages);
  return part;
}

uint32_t CachePart::layers() const noexcept {
  return pages_.has_value() ? static_cast<uint32_t>(pages_->tensors().size()) : plan_.shape->layers();
}

codec::Leaf CachePart::leaf(uint32_t index, uint32_t& unit, uint32_t& layer) const noexcept {
  codec::Leaf leaf;
  if (pages_.has_value()) {
    const layout::PageLeaf page = pages_->leaf(index, units_);
    leaf.offset = static_cast<uint32_t>(page.offset);
    leaf.raw_bytes = page.bytes;
    unit = page.unit;
    layer = page.tensor;
  } else {
    const layout::LeafExtent extent = plan_.shape->leaf(index);
    leaf.offset = static_cast<uint32_t>(extent.offset);
    leaf.raw_bytes = extent.bytes;
    unit = extent.unit;
    layer = extent.layer;
  }
  leaf.stored_bytes = leaf.raw_bytes;
  return leaf;
}

StridedRun CachePart::run(uint32_t index, uint32_t block) const noexcept {
  if (pages_.has_value()) return layout::plan_page(*pages_, pages_->leaf(index, units_), block);
  return layout::plan_leaf(*arrangement_, plan_.shape->leaf(index), block);
}

void CachePart::describe_leaves() {
  auto table = std::make_shared<device::LeafTable>();
  leaves_.reserve(leaf_count_);
  for (uint32_t i = 0; i < leaf_count_; ++i) {
    uint32_t unit = 0;
    uint32_t layer = 0;
    leaves_.push_back(leaf(i, unit, layer));
    // The table takes the distance between two blocks from the addresses of blocks 0 and 1. These are computed only, so
    // the cache may have a single block.
    table->add(run(i, 0), run(i, 1), leaves_.back().offset, layer, unit);
  }
  table->finish();
  table_ = std::move(table);
}

Status CachePart::check_blocks(std::span<const uint32_t> ids) const {
  return pages_.has_value() ? pages_->check_blocks(ids) : arrangement_->check_blocks(ids);
}

Result<std::shared_ptr<Cache>> Cache::create(std::shared_ptr<TierStack> stack, std::shared_ptr<Namespace> ns,
                                             std::vector<CachePart> parts, std::shared_ptr<AttachedDevice> device) {
  tier::HostArena& arena = stack->host().arena();
  const uint64_t block_bytes = arena.block_bytes();
  const size_t head_room = arena.head(0).size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].payload_bytes() > block_bytes) {
      return Status(Code::invalid_argument, "a stored block is larger than the manager's blocks",
                    "part " + std::to_string(i) + " needs " + std::to_string(parts[i].payload_bytes()) +
                        " bytes, host.block_bytes is " + std::to_string(block_bytes) + "; raise host.block_bytes");
    }
    if (codec::head_bytes(parts[i].leaf_count(), 0) > head_room) {
      return Status(Code::invalid_argument, "a stored block is cut into more leaves than its head has room for",
                    "part " + std::to_string(i) + " has " + std::to_string(parts[i].leaf_count()) +
                        " leaves; store more tokens in a block (units), or raise host.block_bytes");
    }
  }
  auto cache = std::shared_ptr<Cache>(new Cache());
  const layout::Geometry* geometry = ns->options().geometry.get();
  cache->units_ = geometry != nullptr ? geometry->units() : 1;
  cache->stack_ = std::move(stack);
  cache->ns_ = std::move(ns);
  cache->parts_ = std::move(parts);
  cache->device_ = std::move(device);
  if (cache->device_ != nullptr) {
    for (CachePart& part : cache->parts_) part.describe_leaves();
  }
  return cache;
}

Result<std::shared_ptr<LayerMarks>> Cache::mark_layers(uint32_t first, uint32_t n, bool issued) {
  if (!issued) {
    if (Status waits = device_->device().check_waits(); !waits.ok()) return waits;
  }
  auto marks = std::make_shared<LayerMarks>();
  uint32_t most = 0;
  for (const CachePart& part : parts_) most = std::max(most, part.layers());
  marks->first_layer = first;
  marks->end_layer = n == 0 ? most : std::min(most, first + n);
  marks->landmark =
      device_->transfers().landmark(issued ? device::LandmarkKind::issued : device::LandmarkKind::on_device);
  if (marks->landmark == nullptr) {
    if (device_->device().is_lost())
      return Status(Code::tier_disabled, "the device was lost", device_->device().lost_why());
    return Status(Code::no_memory, "there is no memory for a word that streams wait for");
  }
  return marks;
}

Status Cache::wait_layer(uint64_t operation, uint32_t layer, device::CuStream stream) {
  const auto marks = layer_waits_.find(operation);
  if (marks == nullptr) return {Code::stale_handle, "no load of this cache, with wait_layers, is known by that number"};
  if (layer < marks->first_layer || layer >= marks->end_layer) {
    return {Code::invalid_argument, "the load does not bring that layer",
            "layer " + std::to_string(layer) + "; it brings [" + std::to_string(marks->first_layer) + ", " +
                std::to_string(marks->end_layer) + ")"};
  }
  const bool ended = marks->ended.load(std::memory_order_acquire);
  const Status waits = device_->transfers().wait_on(marks->landmark, marks->value(layer), stream);
  // After the end of a load there is nothing to wait for, so other errors are ignored. A stream that the device cannot
  // use is refused even then: otherwise it would be refused or not depending on how quick the load was.
  return ended && waits.code() != Code::invalid_argument ? Status() : waits;
}

Result<std::vector<PartPlan>> Cache::plans() const {
  std::vector<PartPlan> plans;
  plans.reserve(parts_.size());
  for (const CachePart& part : parts_) {
    auto plan = ns_->plan(part.plan().part);
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(plan).value());
  }
  return plans;
}

Status Cache::check_blocks(std::span<const uint32_t> ids, size_t per_part) const {
  for (size_t p = 0; p < parts_.size(); ++p) {
    const auto list = ids.subspan(p * per_part, per_part);
    if (parts_[p].check_blocks(list).ok()) continue;
    // CachePart::check_blocks() also refuses kNoBlock, which is allowed here. So the ids are checked once more without
    // those.
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] == kNoBlock || list[i] < parts_[p].blocks()) continue;
      return Status(Code::invalid_argument, "a block id is out of range",
                    "block_ids[" + std::to_string(p * per_part + i) + "] is " + std::to_string(list[i]) +
                        ", the cache has " + std::to_string(parts_[p].blocks()) + " blocks");
    }
  }
  return {};
}

}  // namespace kvbm::manager
