#include "policy/policies.h"
#include "policy/slot_list.h"

namespace kvbm::policy {
namespace {

class Fifo final : public EvictionPolicy {
 public:
  Fifo(std::span<Facts> facts, const Residents& residents) : residents_(residents), list_(facts, 1) {}

  std::string_view name() const noexcept override { return "fifo"; }
  void inserted(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) list_.push_back(slots[i - 1]);
  }
  // The slot was skipped at the front, so it is older than all listed ones.
  void available(SlotId slot, uint32_t) override { list_.push_front(slot); }
  SlotId evict(uint32_t) override {
    while (!list_.empty()) {
      const SlotId slot = list_.front();
      list_.remove(slot);
      if (residents_.evictable(slot)) return slot;
    }
    return kNoSlot;
  }
  void erased(SlotId slot) override {
    if (list_.has(slot)) list_.remove(slot);
  }
  size_t bytes() const noexcept override { return sizeof *this; }

 private:
  const Residents& residents_;
  SlotList list_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_fifo(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<Fifo>(facts, residents);
}

}  // namespace kvbm::policy
