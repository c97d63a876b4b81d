#include "node/node_stats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "node/coding_view.h"
#include "node/http_client.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::node {

namespace {

using Json = nlohmann::ordered_json;
using terminal::Align;
using terminal::format_binary_size;
using terminal::format_count;

Result<Json> read_rows(const std::string& address, const char* path, uint64_t timeout_ns) {
  const auto page = http_get(address, path, timeout_ns);
  if (!page.ok()) return page.status();
  Json rows = Json::parse(page.value(), nullptr, false);
  const auto is_row = [](const Json& row) { return row.is_object(); };
  if (!rows.is_array() || !std::all_of(rows.begin(), rows.end(), is_row)) {
    return Status(Code::damaged, "that is no page of kvbm node", address + path);
  }
  return rows;
}

uint64_t number(const Json& row, const char* name) {
  const auto at = row.find(name);
  return at != row.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

std::string size(const Json& row, const char* name) {
  return format_binary_size(static_cast<double>(number(row, name)));
}

std::string word(const Json& row, const char* name) {
  const auto at = row.find(name);
  return at != row.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::string coding(const Json& row) {
  const auto at = row.find("coding");
  return at != row.end() ? coding_text(*at) : std::string();
}

}  // namespace

Result<Json> read_node_stats(const std::string& http_address, uint64_t timeout_ns) {
  const SystemClock clock;
  const uint64_t deadline_ns = deadline_after(clock, timeout_ns);
  auto tiers = read_rows(http_address, "/tiers", timeout_ns);
  if (!tiers.ok()) return tiers.status();
  auto peers = read_rows(http_address, "/peers", deadline_ns - std::min(deadline_ns, clock.now_ns()));
  if (!peers.ok()) return peers.status();
  return Json{{"tiers", std::move(tiers).value()}, {"peers", std::move(peers).value()}};
}

std::string node_stats_text(const Json& stats) {
  terminal::Table tiers({{"tier", Align::right},
                         {"blocks", Align::right},
                         {"used", Align::right},
                         {"of", Align::right},
                         {"hits", Align::right},
                         {"stores", Align::right},
                         {"damaged", Align::right},
                         {"coding"},
                         {""}});
  for (const Json& row : stats.at("tiers")) {
    const auto disabled = row.find("disabled");
    // Host memory, which is tier 0, is never coded.
    tiers.add_row({std::to_string(number(row, "tier")), format_count(number(row, "blocks")), size(row, "used_bytes"),
                   terminal::format_capacity(number(row, "capacity_bytes")), format_count(number(row, "hits")),
                   format_count(number(row, "stores")), format_count(number(row, "damaged")),
                   number(row, "tier") == 0 ? "" : coding(row),
                   disabled != row.end() && *disabled == true ? "out of service" : ""});
  }
  if (stats.at("peers").empty()) return tiers.render();
  terminal::Table peers(
      {{"node"}, {"state"}, {"blocks", Align::right}, {"used", Align::right}, {"of", Align::right}, {"coding"}});
  for (const Json& row : stats.at("peers")) {
    peers.add_row({word(row, "address"), word(row, "state"), format_count(number(row, "records")),
                   size(row, "used_bytes"), size(row, "capacity_bytes"), coding(row)});
  }
  return tiers.render() + "\n" + peers.render();
}

}  // namespace kvbm::node
