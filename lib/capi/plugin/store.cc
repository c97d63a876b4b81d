#include "capi/plugin/store.h"

#include <array>
#include <utility>

#include "capi/plugin/store_module.h"
#include "capi/plugin/store_url.h"
#include "capi/plugin/table_store.h"
#include "tier/store/store_tier.h"

namespace kvbm::capi {

namespace {

using tier::store::StoreTier;
using tier::store::StoreTierOptions;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;
// Limit of a new manager's wait for a store.
constexpr uint64_t kOpenNs = 5 * kSecond;

struct OwnOption {
  std::string_view name;
  enum Type { bytes, bytes_or_off, duration, flag } type;
  uint64_t least, most;
  void (*set)(StoreTierOptions&, uint64_t);
};

constexpr OwnOption kOwn[] = {
    {"pack", OwnOption::bytes, 4096, uint64_t{1} << 30, [](StoreTierOptions& o, uint64_t v) { o.pack_bytes = v; }},
    {"linger", OwnOption::duration, 0, 10 * kSecond, [](StoreTierOptions& o, uint64_t v) { o.linger_ns = v; }},
    {"publish", OwnOption::duration, 10 * kMs, 60 * kSecond, [](StoreTierOptions& o, uint64_t v) { o.publish_ns = v; }},
    {"poll", OwnOption::duration, 10 * kMs, 600 * kSecond, [](StoreTierOptions& o, uint64_t v) { o.poll_ns = v; }},
    {"ttl", OwnOption::duration, kSecond, 365 * 86'400 * kSecond,
     [](StoreTierOptions& o, uint64_t v) { o.ttl_s = (v + kSecond - 1) / kSecond; }},
    {"inflight", OwnOption::bytes, 64 << 10, uint64_t{64} << 30,
     [](StoreTierOptions& o, uint64_t v) { o.staging_bytes = v; }},
    {"prefetch_ahead", OwnOption::bytes_or_off, 64 << 10, uint64_t{32} << 30,
     [](StoreTierOptions& o, uint64_t v) { o.ahead_bytes = v; }},
    {"index", OwnOption::bytes, 1 << 20, uint64_t{1} << 40, [](StoreTierOptions& o, uint64_t v) { o.index_bytes = v; }},
    {"timeout", OwnOption::duration, 10 * kMs, 600 * kSecond,
     [](StoreTierOptions& o, uint64_t v) { o.timeout_ns = v; }},
    {"write", OwnOption::flag, 0, 1, [](StoreTierOptions& o, uint64_t v) { o.write = v != 0; }},
};

Result<uint64_t> parse(const OwnOption& option, const std::string& value) {
  if (option.type == OwnOption::bytes_or_off) {
    auto bytes = value == "off" ? Result<uint64_t>(uint64_t{0}) : parse_bytes(value);
    return bytes.ok() ? std::move(bytes) : Status(Code::bad_config, "it is a size, or off");
  }
  if (option.type == OwnOption::bytes) return parse_bytes(value);
  if (option.type == OwnOption::duration) return parse_duration(value);
  if (value == "on" || value == "true") return uint64_t{1};
  if (value == "off" || value == "false") return uint64_t{0};
  return Status(Code::bad_config, "it is on or off");
}

Status read_own(const std::vector<NamedText>& given, StoreTierOptions& out) {
  for (const NamedText& each : given) {
    for (const OwnOption& option : kOwn) {
      if (option.name != each.name) continue;
      const auto value = parse(option, each.text);
      if (!value.ok()) {
        return {Code::bad_config, "a store's URL has a bad value",
                each.name + "=" + each.text + ": " + value.status().message()};
      }
      const bool is_off = option.type == OwnOption::bytes_or_off && value.value() == 0;
      if (!is_off && (value.value() < option.least || value.value() > option.most)) {
        const char* const unit = option.type == OwnOption::duration ? " ns" : " bytes";
        return {Code::bad_config, "a store's URL has a bad value",
                each.name + "=" + each.text + " is outside " + std::to_string(option.least) + " to " +
                    std::to_string(option.most) + unit};
      }
      option.set(out, value.value());
    }
  }
  return {};
}

}  // namespace

std::span<const std::string_view> store_option_names() noexcept {
  static constexpr auto kNames = [] {
    std::array<std::string_view, std::size(kOwn)> names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = kOwn[i].name;
    return names;
  }();
  return kNames;
}

Result<manager::MakeTier> store_tier(const std::string& text, const kvbm_store_table_t* own, uint64_t capacity_bytes,
                                     const manager::Environment& environment) {
  auto url = text.empty() && own != nullptr ? Result<StoreUrl>(StoreUrl{}) : parse_store_url(text);
  if (!url.ok()) return url.status();
  if (own != nullptr) {
    if (Status is_one = check_store_table(own); !is_one.ok()) return is_one;
  }
  const auto table = own != nullptr ? Result<const kvbm_store_table_t*>(own) : load_store_module(url.value());
  if (!table.ok()) return table.status();
  const auto split = split_store_options(url.value(), *table.value(), store_option_names());
  if (!split.ok()) return split.status();
  StoreTierOptions options;
  options.capacity_bytes = capacity_bytes;
  if (Status read = read_own(split.value().own, options); !read.ok()) return read;
  StoreUrl place = url.value();
  place.options.clear();
  for (const kvbm_store_option_t& option : split.value().of_store) place.options.push_back({option.name, option.value});
  return manager::MakeTier(
      [table = table.value(), place, options, environment](
          TierIndex index, FamilyTable& families, tier::TierListener* listener) -> Result<std::unique_ptr<tier::Tier>> {
        auto store = TableStore::open(*table, place, environment.log, kOpenNs);
        if (!store.ok()) return store.status();
        auto tier = StoreTier::open(std::move(store).value(), options, *environment.executor, families,
                                    *environment.random, environment.log, index, listener);
        if (!tier.ok()) return tier.status();
        return std::unique_ptr<tier::Tier>(std::move(tier).value());
      });
}

Status make_stores(std::vector<manager::TierOptions>& tiers, const manager::Environment& environment) {
  for (manager::TierOptions& tier : tiers) {
    if (tier.url.empty() || tier.make) continue;
    auto made = store_tier(tier.url, nullptr, tier.capacity_bytes, environment);
    if (!made.ok()) return made.status();
    tier.make = std::move(made).value();
  }
  return {};
}

}  // namespace kvbm::capi
