// The rules of kvbm_plugin.h for a store, each as a check that reports its observation. `kvbm plugin check` and the
// tests of kvbm's own stores run them. They use the unique prefix kvbm-check-<number>, and remove their objects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "capi/plugin/store_url.h"
#include "kvbm_plugin.h"
#include "plugin/store_runner.h"

namespace kvbm::plugin {

enum class Verdict : uint8_t { passed, failed, skipped };
const char* verdict_name(Verdict verdict);

struct Finding {
  std::string rule;  // "ranges"
  std::string text;  // text of the rule
  Verdict verdict = Verdict::passed;
  std::string seen;
};

struct CheckLimits {
  RunnerLimits operations;
  uint64_t strain_ns = 2'000'000'000;  // how long writers and readers of one name run
  uint32_t listed_objects = 1100;
  std::vector<std::string> rules = {};  // empty: all
};

struct Checked {
  Code code = Code::ok;     // result of opening the store; the rest is empty if that failed
  std::string message;      // why it could not be opened
  std::string description;  // the store's own description
  std::vector<Finding> findings;
};

// Checks a store. `table` and `url` must live as long as the process, because a store that never finishes is left
// behind. `each` is called as soon as a rule is decided. Thread: one at a time, because threads and descriptors of
// the process are counted. Blocks.
Checked check_store(const kvbm_store_table_t& table, const capi::StoreUrl& url, const CheckLimits& limits,
                    const std::function<void(const Finding&)>& each = {});

}  // namespace kvbm::plugin
