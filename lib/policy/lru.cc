#include "policy/policies.h"

#include "policy/recency.h"
#include "policy/slot_list.h"

namespace kvbm::policy {
namespace {

class Lru final : public EvictionPolicy {
 public:
  Lru(std::span<Facts> facts, const Residents& residents) : facts_(facts), residents_(residents), list_(facts, 1) {}

  std::string_view name() const noexcept override { return "lru"; }
  bool hears_uses() const noexcept override { return true; }

  void inserted(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) list_.push_back(slots[i - 1]);
  }
  void used(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) {
      if (list_.has(slots[i - 1])) list_.remove(slots[i - 1]);
      list_.push_back(slots[i - 1]);
    }
  }
  void available(SlotId slot, uint32_t) override { return_by_last_use(list_, facts_, slot); }

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
  std::span<Facts> facts_;
  const Residents& residents_;
  SlotList list_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<Lru>(facts, residents);
}

}  // namespace kvbm::policy
