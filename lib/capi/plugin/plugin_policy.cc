#include "capi/plugin/plugin_policy.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace kvbm::capi {

namespace {

int may_evict(const void* asker, uint32_t slot);

// Invariant: a slot is listed (here, and in its facts' `queue`) exactly while the caller's policy knows it. That is
// from `inserted` until the policy chooses the slot or gets `erased`. It gets no calls about other slots. A slot that
// was chosen and stays is inserted anew by `available`, which the block table calls once the slot can be evicted.
class PluginPolicy final : public policy::EvictionPolicy {
 public:
  PluginPolicy(const kvbm_policy_table_t& table, void* user, std::span<policy::Facts> facts,
               const policy::Residents& residents)
      : table_(table),
        name_(table.name != nullptr ? table.name : "plugin"),
        facts_(facts),
        residents_(residents),
        listed_(facts.size(), false),
        policy_(table.create(user, static_cast<uint32_t>(facts.size()))) {}
  ~PluginPolicy() override { table_.destroy(policy_); }

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] bool hears_uses() const noexcept override { return true; }

  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    std::array<uint64_t, kBatch> names;
    for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
      const auto batch = slots.subspan(begin, std::min(kBatch, slots.size() - begin));
      for (size_t i = 0; i < batch.size(); ++i) {
        names[i] = residents_.name(batch[i]);
        set_listed(batch[i], true);
      }
      table_.inserted(policy_, batch.data(), names.data(), batch.size(), tick);
    }
  }
  void used(std::span<const SlotId> slots, uint32_t tick) override {
    for (const SlotId& slot : slots) {
      if (listed_[slot]) table_.used(policy_, &slot, 1, tick);
    }
  }
  void available(SlotId slot, uint32_t tick) override { inserted({&slot, 1}, tick); }

  SlotId evict(uint32_t tick) override {
    const uint32_t slot = table_.evict(policy_, &may_evict, this, tick);
    const bool known = slot < listed_.size() && listed_[slot];
    const bool usable = known && residents_.evictable(slot);
    if (known) set_listed(slot, false);  // the policy has forgotten the slot, whatever happens to it
    if (usable) return slot;
    if (slot != UINT32_MAX) ++refused_;
    return help_out();
  }
  void erased(SlotId slot) override {
    if (!listed_[slot]) return;
    set_listed(slot, false);
    table_.erased(policy_, slot);
  }
  [[nodiscard]] uint64_t refused() const noexcept override { return refused_; }
  [[nodiscard]] size_t bytes() const noexcept override { return sizeof *this + listed_.size() / 8; }

  [[nodiscard]] bool allowed(SlotId slot) const noexcept {
    return slot < listed_.size() && listed_[slot] && residents_.evictable(slot);
  }

 private:
  static constexpr size_t kBatch = 64;

  void set_listed(SlotId slot, bool listed) noexcept {
    listed_[slot] = listed;
    facts_[slot].queue = listed ? 1 : 0;
  }

  // Chooses a slot like a clock if the caller's policy had no usable answer.
  SlotId help_out() {
    for (size_t n = 0; n < listed_.size(); ++n) {
      hand_ = (hand_ + 1) % listed_.size();
      const auto slot = static_cast<SlotId>(hand_);
      if (!allowed(slot)) continue;
      erased(slot);
      return slot;
    }
    return kNoSlot;
  }

  const kvbm_policy_table_t table_;
  const std::string name_;
  std::span<policy::Facts> facts_;
  const policy::Residents& residents_;
  std::vector<bool> listed_;
  size_t hand_ = 0;
  uint64_t refused_ = 0;
  void* const policy_;
};

int may_evict(const void* asker, uint32_t slot) {
  return static_cast<const PluginPolicy*>(asker)->allowed(slot) ? 1 : 0;
}

}  // namespace

Result<policy::MakePolicy> plugin_policy(const kvbm_policy_table_t& table, void* user) {
  if (table.struct_size < sizeof(kvbm_policy_table_t) || table.create == nullptr || table.destroy == nullptr ||
      table.inserted == nullptr || table.used == nullptr || table.evict == nullptr || table.erased == nullptr) {
    return Status(Code::unsupported, "policy_table needs struct_size and all of its functions");
  }
  return policy::MakePolicy(
      [table, user](std::string_view, std::span<policy::Facts> facts, const policy::Residents& residents) {
        return make_plugin_policy(table, user, facts, residents);
      });
}

std::unique_ptr<policy::EvictionPolicy> make_plugin_policy(const kvbm_policy_table_t& table, void* user,
                                                           std::span<policy::Facts> facts,
                                                           const policy::Residents& residents) {
  return std::make_unique<PluginPolicy>(table, user, facts, residents);
}

}  // namespace kvbm::capi
