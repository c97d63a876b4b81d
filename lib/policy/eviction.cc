#include "policy/eviction.h"

#include <array>

#include "policy/policies.h"

namespace kvbm::policy {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(std::span<Facts> facts, const Residents& residents);
};

constexpr std::array kPolicies = {
    Entry{"prefix", make_prefix}, Entry{"lru", make_lru},         Entry{"fifo", make_fifo},
    Entry{"lfu", make_lfu},       Entry{"tinylfu", make_tinylfu},
};

constexpr auto kEvictionNames = [] {
  std::array<std::string_view, kPolicies.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kPolicies[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> eviction_policy_names() noexcept { return kEvictionNames; }

std::unique_ptr<EvictionPolicy> make_eviction_policy(std::string_view name, std::span<Facts> facts,
                                                     const Residents& residents) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make(facts, residents);
  }
  return nullptr;
}

}  // namespace kvbm::policy
