// Finds and loads a store: the table kvbm_store_table of a shared library (kvbm_plugin.h), for the URL of a store.
//
// scheme://... is libkvbm_store_<scheme>.so, searched in the places of base/process/module_places.h: the option,
// KVBM_STORE_PATH, and so on. Both name a directory. plugin:/path/of.so is that file. A library that all users may
// write is refused. The process's signal handling is the same afterwards (base/process/signal_keeper.h). A loaded
// library stays loaded until the process ends: a store may have threads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "capi/plugin/store_url.h"
#include "kvbm_plugin.h"

namespace kvbm::capi {

// Returns the table, which is static. Errors begin with "store unavailable: ", and name the scheme or the file and
// the remedy: unsupported (not found, does not load, is no store), newer_version (another KVBM_STORE_ABI), damaged
// (its table is not one), bad_config (`folder` is no directory), not_permitted (all users may write the library).
// Thread: any. Blocks: while the library is loaded.
Result<const kvbm_store_table_t*> load_store_module(const StoreUrl& url, const std::string& folder = "");

// Checks a table that is not from a file.
Status check_store_table(const kvbm_store_table_t* table);

// The options of a URL, split by receiver. A name that both know belongs to kvbm.
struct StoreOptions {
  std::vector<NamedText> own;                 // options in the caller's list of names
  std::vector<kvbm_store_option_t> of_store;  // point into the URL, which must live as long
};
// Splits the options of a URL. `own`: names that the caller takes for itself. bad_config, with the nearest known
// name: an option that neither the caller nor the table knows.
Result<StoreOptions> split_store_options(const StoreUrl& url, const kvbm_store_table_t& table,
                                         std::span<const std::string_view> own = {});

}  // namespace kvbm::capi
