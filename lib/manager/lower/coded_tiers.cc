#include "manager/lower/coded_tiers.h"

#include <utility>

#include "manager/lower/coding_terms.h"
#include "tier/coded/coded_tier.h"

namespace kvbm::manager {

bool is_storage(const tier::Tier& tier) noexcept {
  return tier.kind() == "disk" || tier.kind() == "plugin" || tier.kind() == "store";
}

std::unique_ptr<tier::Tier> code_tier(const CodedTierParts& parts, const TierOptions& options,
                                      std::unique_ptr<tier::Tier> tier) {
  if (!is_storage(*tier)) return tier;
  tier::coded::CodedTierOptions coded;
  coded.automatic = options.codec == "auto";
  if (!coded.automatic) coded.mode = codec::mode_by_name(options.codec).value_or(codec::Mode::off);
  coded.goal = options.codec_for_space ? tier::coded::Goal::space : tier::coded::Goal::speed;
  coded.keys = parts.seal_keys;
  coded.most_payload_bytes = parts.block_bytes;
  coded.terms = [terms = parts.terms](FamilyId family) { return terms->of(family); };
  coded.log = parts.env.log;
  if (coded.automatic) {
    copy::SourceCost& link = parts.link_cost;
    coded.link = [&link](uint64_t now_ns) { return link.expect(now_ns).ns_per_byte; };
    coded.measure = [&link](uint64_t now_ns, uint64_t bytes) -> UniqueFunction<void(uint64_t, uint64_t)> {
      return [&link, ticket = link.asked(now_ns, bytes)](uint64_t then_ns, uint64_t got) {
        using Answer = copy::SourceCost::Answer;
        link.answered(then_ns, ticket, got != 0 ? Answer::arrived : Answer::nothing, got);
      };
    };
  }
  return std::make_unique<tier::coded::CodedTier>(std::move(coded), std::move(tier), *parts.env.executor,
                                                  *parts.env.random);
}

}  // namespace kvbm::manager
