// The conformance check of stores (tools/plugin/store_check.h) for tests: of a URL, with time enough for any machine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "capi/plugin/store_module.h"
#include "plugin/store_check.h"

namespace kvbm::test {

// Limits for checks without a time limit: nothing here has to be fast.
inline plugin::CheckLimits patient() {
  plugin::CheckLimits limits;
  limits.operations = {60'000'000'000, 60'000'000'000};
  limits.strain_ns = 500'000'000;
  return limits;
}

// `folder`: where libkvbm_store_<scheme>.so is; "" for plugin:.
inline plugin::Checked check(const std::string& folder, const std::string& text, const plugin::CheckLimits& limits) {
  // A store that never finishes may look at its URL as long as the process lives.
  static auto* const kept = new std::vector<std::unique_ptr<capi::StoreUrl>>;
  auto parsed = capi::parse_store_url(text);
  if (!parsed.ok()) return {parsed.status().code(), parsed.status().message(), {}, {}};
  const capi::StoreUrl& url = *kept->emplace_back(std::make_unique<capi::StoreUrl>(std::move(parsed).value()));
  const auto table = capi::load_store_module(url, folder);
  if (!table.ok()) return {table.status().code(), table.status().message(), {}, {}};
  return plugin::check_store(*table.value(), url, limits);
}

// `broken`: a rule that the server is known to break; "": none.
inline void expect_kept(const std::string& folder, const std::string& url,
                        const plugin::CheckLimits& limits = patient(), std::string_view broken = "") {
  const plugin::Checked checked = check(folder, url, limits);
  EXPECT_FALSE(checked.findings.empty()) << url << ": " << checked.message;
  for (const plugin::Finding& finding : checked.findings) {
    if (finding.rule == broken) continue;
    EXPECT_NE(finding.verdict, plugin::Verdict::failed) << url << ": " << finding.rule << ": " << finding.seen;
  }
}

}  // namespace kvbm::test
