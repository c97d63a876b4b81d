#include "capi/plugin_policy.h"

#include <string>
#include <vector>

namespace kvbm::capi {

namespace {

int may_evict(const void* asker, uint32_t slot);

class PluginPolicy final : public policy::EvictionPolicy {
 public:
  PluginPolicy(const kvbm_policy_table_t& table, void* user, std::span<policy::Facts> facts,
               const policy::Residents& residents)
      : table_(table),
        name_(table.name != nullptr ? table.name : "plugin"),
        residents_(residents),
        resident_(facts.size(), false),
        policy_(table.create(user, static_cast<uint32_t>(facts.size()))) {}
  ~PluginPolicy() override { table_.destroy(policy_); }

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] bool hears_uses() const noexcept override { return true; }

  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    names_.clear();
    for (const SlotId slot : slots) {
      names_.push_back(residents_.name(slot));
      resident_[slot] = true;
    }
    table_.inserted(policy_, slots.data(), names_.data(), slots.size(), tick);
  }
  void used(std::span<const SlotId> slots, uint32_t tick) override {
    table_.used(policy_, slots.data(), slots.size(), tick);
  }
  void available(SlotId /*slot*/, uint32_t /*tick*/) override {}

  SlotId evict(uint32_t tick) override {
    const uint32_t slot = table_.evict(policy_, &may_evict, this, tick);
    if (slot < resident_.size() && allowed(slot)) {
      resident_[slot] = false;
      return slot;
    }
    return help_out();
  }
  void erased(SlotId slot) override {
    resident_[slot] = false;
    table_.erased(policy_, slot);
  }
  [[nodiscard]] size_t bytes() const noexcept override { return resident_.size() / 8; }

  [[nodiscard]] bool allowed(SlotId slot) const noexcept {
    return slot < resident_.size() && resident_[slot] && residents_.evictable(slot);
  }

 private:
  // The caller's policy had no usable answer: go around the slots like a clock.
  SlotId help_out() {
    for (size_t n = 0; n < resident_.size(); ++n) {
      hand_ = (hand_ + 1) % resident_.size();
      const auto slot = static_cast<SlotId>(hand_);
      if (!allowed(slot)) continue;
      erased(slot);
      return slot;
    }
    return kNoSlot;
  }

  const kvbm_policy_table_t table_;
  const std::string name_;
  const policy::Residents& residents_;
  std::vector<bool> resident_;
  std::vector<uint64_t> names_;
  size_t hand_ = 0;
  void* const policy_;
};

int may_evict(const void* asker, uint32_t slot) {
  return static_cast<const PluginPolicy*>(asker)->allowed(slot) ? 1 : 0;
}

}  // namespace

bool policy_table_complete(const kvbm_policy_table_t& table) noexcept {
  return table.struct_size >= sizeof(kvbm_policy_table_t) && table.create != nullptr && table.destroy != nullptr &&
         table.inserted != nullptr && table.used != nullptr && table.evict != nullptr && table.erased != nullptr;
}

std::unique_ptr<policy::EvictionPolicy> make_plugin_policy(const kvbm_policy_table_t& table, void* user,
                                                           std::span<policy::Facts> facts,
                                                           const policy::Residents& residents) {
  return std::make_unique<PluginPolicy>(table, user, facts, residents);
}

}  // namespace kvbm::capi
