// Makes a manager's tier from a store's URL.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kvbm_plugin.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"

namespace kvbm::capi {

// Loads the store's library and checks the URL; the store itself is opened when the manager makes its tiers. Options
// that kvbm takes for itself: docs/stores.md, Options. Errors: those of parse_store_url and load_store_module, and
// bad_config for an option's value. `table`: the caller's own store instead of a library; the URL may be empty then.
Result<manager::MakeTier> store_tier(const std::string& url, const kvbm_store_table_t* table, uint64_t capacity_bytes,
                                     const manager::Environment& environment);

// Returns the options of a store's URL that kvbm takes for itself.
[[nodiscard]] std::span<const std::string_view> store_option_names() noexcept;

// Sets the maker of each tier that has a URL and no maker.
Status make_stores(std::vector<manager::TierOptions>& tiers, const manager::Environment& environment);

}  // namespace kvbm::capi
