#include "replay/policies.h"

#include <vector>

namespace kvbm::replay {

std::span<const std::string_view> policy_names() {
  static const std::vector<std::string_view> kNames = [] {
    const auto library = policy::eviction_policy_names();
    std::vector<std::string_view> names(library.begin(), library.end());
    names.insert(names.end(), {"s3fifo", "arc", "sieve"});
    return names;
  }();
  return kNames;
}

std::unique_ptr<policy::EvictionPolicy> make_policy(std::string_view name, std::span<policy::Facts> facts,
                                                    const policy::Residents& residents) {
  if (name == "s3fifo") return make_s3fifo(facts, residents);
  if (name == "arc") return make_arc(facts, residents);
  if (name == "sieve") return make_sieve(facts, residents);
  return policy::make_eviction_policy(name, facts, residents);
}

}  // namespace kvbm::replay
