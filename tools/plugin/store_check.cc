#include "plugin/store_check.h"

#include <algorithm>

#include "capi/plugin/store.h"
#include "plugin/store_bench.h"

namespace kvbm::plugin {

namespace {

struct WatchRule {
  const char* name;
  const char* text;
  std::string Misdeeds::*seen;
};
// Rules for all operations of the other rules; decided at the end.
constexpr WatchRule kWatched[] = {
    {"finished_once", "each operation is finished exactly once", &Misdeeds::finished},
    {"untouched", "nothing is written but what an operation gives to write, and nothing after it is finished",
     &Misdeeds::untouched},
    {"answers", "statuses, done, more and messages are as kvbm_store_op_t says", &Misdeeds::answers},
    {"start", "start() does not block, unless the facts say so", &Misdeeds::blocked},
};

bool is_asked(const CheckLimits& limits, const char* rule) {
  return limits.rules.empty() || std::find(limits.rules.begin(), limits.rules.end(), rule) != limits.rules.end();
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::passed ? "passed" : verdict == Verdict::failed ? "failed" : "skipped";
}

Checked check_store(const kvbm_store_table_t& table, const capi::StoreUrl& url, const CheckLimits& limits,
                    const std::function<void(const Finding&)>& each) {
  Checked out;
  auto options = capi::split_store_options(url, table, capi::store_option_names());
  if (!options.ok()) {
    out.code = options.status().code();
    out.message = options.status().message();
    return out;
  }
  StoreBench bench(table, url, std::move(options).value(), limits);
  if (const std::string wrong = bench.open(); !wrong.empty()) {
    out.code = static_cast<Code>(bench.first().status);
    out.message = bench.first().message.empty() ? "open() gave no message" : bench.first().message;
    return out;
  }
  out.description = bench.store().facts().description;
  const auto decide = [&](const char* rule, const char* text, Outcome outcome) {
    out.findings.push_back({rule, text, outcome.verdict, std::move(outcome.seen)});
    if (each) each(out.findings.back());
  };
  for (const auto& rules : {object_rules(), listing_rules(), strain_rules()}) {
    for (const Rule& rule : rules) {
      if (!is_asked(limits, rule.name)) continue;
      const std::string wrong = bench.open();
      decide(rule.name, rule.text, wrong.empty() ? rule.check(bench) : failed(wrong));
    }
  }
  bench.remove_all();
  bench.close();
  for (const WatchRule& rule : kWatched) {
    if (!is_asked(limits, rule.name)) continue;
    const std::string seen = bench.misdeeds().first(rule.seen);
    decide(rule.name, rule.text, seen.empty() ? passed() : failed(seen));
  }
  return out;
}

}  // namespace kvbm::plugin
