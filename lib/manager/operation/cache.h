// An attached cache: where an engine's own paged KV cache lies, described once. All of it is host memory, or all of it
// is memory of one device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/record/record.h"
#include "device/driver/driver.h"
#include "device/transfer/leaf_table.h"
#include "layout/arrangement.h"
#include "layout/plan.h"
#include "manager/device/layer_waits.h"
#include "manager/namespaces/namespace.h"

namespace kvbm::manager {

class AttachedDevice;
class TierStack;

// In a list of block ids: the engine has no block of this part here.
inline constexpr uint32_t kNoBlock = UINT32_MAX;

// One part of the cache: either an arrangement of shaped records, or opaque pages.
class CachePart {
 public:
  static Result<CachePart> shaped(PartPlan plan, layout::Arrangement arrangement);
  static Result<CachePart> opaque(PartPlan plan, layout::PageArrangement pages, uint32_t units);

  // The family may change when the namespace's epoch does; the caller reads it again then.
  [[nodiscard]] const PartPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] bool is_opaque() const noexcept { return pages_.has_value(); }
  // Must not be called for an opaque part, which has no arrangement.
  [[nodiscard]] const layout::Arrangement& arrangement() const noexcept { return *arrangement_; }
  [[nodiscard]] uint64_t payload_bytes() const noexcept { return payload_bytes_; }
  [[nodiscard]] uint32_t leaf_count() const noexcept { return leaf_count_; }
  [[nodiscard]] uint32_t layers() const noexcept;
  // Returns leaf `index` of a stored block, without a hash. Sets the engine block (`unit`) and the layer that it
  // belongs to.
  [[nodiscard]] codec::Leaf leaf(uint32_t index, uint32_t& unit, uint32_t& layer) const noexcept;
  // Returns the memory of leaf `index` in the engine block with id `block`, which must be valid. For a cache on a
  // device the addresses are the device's.
  [[nodiscard]] StridedRun run(uint32_t index, uint32_t block) const noexcept;
  // Returns all leaves in the form in which transfers take many at once. Null if the tensors are in host memory.
  [[nodiscard]] const device::LeafTable* table() const noexcept { return table_.get(); }
  // Returns the results of leaf() for all indices, in order. Filled only for a part with a table().
  [[nodiscard]] std::span<const codec::Leaf> leaves() const noexcept { return leaves_; }
  void describe_leaves();
  [[nodiscard]] Status check_blocks(std::span<const uint32_t> ids) const;
  [[nodiscard]] uint64_t blocks() const noexcept {
    return pages_.has_value() ? pages_->blocks() : arrangement_->blocks();
  }

 private:
  PartPlan plan_;
  std::optional<layout::Arrangement> arrangement_;
  std::optional<layout::PageArrangement> pages_;
  uint32_t units_ = 1;
  uint32_t leaf_count_ = 0;
  uint64_t payload_bytes_ = 0;
  std::shared_ptr<const device::LeafTable> table_;
  std::vector<codec::Leaf> leaves_;
};

class Cache {
 public:
  // `device`: null for host memory. invalid_argument when a record would not fit a block of the manager.
  static Result<std::shared_ptr<Cache>> create(std::shared_ptr<TierStack> stack, std::shared_ptr<Namespace> ns,
                                               std::vector<CachePart> parts,
                                               std::shared_ptr<AttachedDevice> device = nullptr);

  [[nodiscard]] TierStack& stack() const noexcept { return *stack_; }
  [[nodiscard]] const std::shared_ptr<Namespace>& ns() const noexcept { return ns_; }
  [[nodiscard]] const std::vector<CachePart>& parts() const noexcept { return parts_; }
  // Returns the device that the tensors lie on; null if they are in host memory.
  [[nodiscard]] const std::shared_ptr<AttachedDevice>& device() const noexcept { return device_; }
  // Makes the marks with which streams wait for the layers [first, first + n) of a load (n = 0: all), and keeps them in
  // layer_waits(). Only for caches on a device. With `issued` a stream waits for an event instead of a word in memory,
  // so wait_layer() blocks until the driver has the layer's copies. Errors: unsupported (not with `issued`), no_memory,
  // tier_disabled.
  Result<std::shared_ptr<LayerMarks>> mark_layers(uint32_t first, uint32_t n, bool issued);
  [[nodiscard]] LayerWaits& layer_waits() noexcept { return layer_waits_; }
  // Makes work that is enqueued on `stream` from now on wait for a layer of that load. Blocks as Transfers::wait_on()
  // does. Errors: stale_handle, invalid_argument.
  Status wait_layer(uint64_t operation, uint32_t layer, device::CuStream stream);
  // Engine blocks in one stored block.
  [[nodiscard]] uint32_t units() const noexcept { return units_; }
  // The parts at the namespace's present epoch, for a lookup.
  Result<std::vector<PartPlan>> plans() const;
  // `per_part` ids for each part; kNoBlock is allowed. The refusal names the id's index in the whole list.
  [[nodiscard]] Status check_blocks(std::span<const uint32_t> ids, size_t per_part) const;

 private:
  Cache() = default;
  std::shared_ptr<TierStack> stack_;
  std::shared_ptr<Namespace> ns_;
  std::vector<CachePart> parts_;
  uint32_t units_ = 1;
  std::shared_ptr<AttachedDevice> device_;
  LayerWaits layer_waits_;  // its landmarks are the device's: it goes first
};

}  // namespace kvbm::manager
