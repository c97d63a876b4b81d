#include "top/render.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "node/coding_view.h"
#include "terminal/json_text.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::top {

namespace {

using nlohmann::ordered_json;
using terminal::Align;
using terminal::format_count;

constexpr size_t kRunCells = 24;
constexpr size_t kTierCells = 8;
constexpr size_t kKeyBytesShown = 8;

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string percent(double part, int digits) { return fixed(100 * part, digits) + " %"; }

std::string hex(const kvbm_key_t& key, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", key.bytes[i]);
    out += two;
  }
  return out;
}

std::string tier_name(const Run& run, uint32_t tier) {
  return tier < run.tiers.size() ? run.tiers[tier] : "tier " + std::to_string(tier);
}

std::string tier_names(const Run& run, uint32_t tiers) {
  std::string out;
  for (uint32_t t = 0; t < 8; ++t) {
    if ((tiers >> t & 1U) == 0) continue;
    if (!out.empty()) out += "+";
    out += tier_name(run, t);
  }
  return out;
}

std::string header(const Frame& frame, const Run& run, const Shape& shape) {
  const replay::StoreProgress& p = frame.progress;
  const kvbm_manager_stats_t& s = frame.stats;
  const double done = share(p.requests, run.requests);
  std::string out = "kvbm top  " + run.trace + "  " + terminal::format_duration(frame.seconds) + "\n";
  out += terminal::render_bar(done, kRunCells, shape.utf8) + " " + format_count(p.requests) + " of " +
         format_count(run.requests) + " requests";
  if (frame.last) out += run.stopped ? ", stopped" : ", done";
  out += "\n" + format_count(p.block_refs) + " references, " + format_count(p.hits) + " hits (" +
         percent(share(p.hits, p.block_refs), 2) + "); " + format_count(p.tokens_saved) + " of " +
         format_count(p.tokens) + " tokens saved (" + percent(share(p.tokens_saved, p.tokens), 1) + ")\n";
  out += format_count(s.operations_in_flight) + " operations in flight, " + format_count(s.matches) + " matches, " +
         format_count(s.holds) + " holds, " + format_count(s.pins) + " pins; " + format_count(s.offloads_skipped) +
         " offloads skipped, " + format_count(s.stores_refused_room + s.stores_refused_quota) + " stores refused\n";
  return out;
}

std::string tier_table(const Frame& frame, const Run& run, const Shape& shape) {
  terminal::Table table({{"tier"},
                         {"blocks", Align::right},
                         {"used"},
                         {"of", Align::right},
                         {"in GB/s", Align::right},
                         {"out GB/s", Align::right},
                         {"hits", Align::right},
                         {"stores", Align::right},
                         {"evicted", Align::right},
                         {"damaged", Align::right},
                         {"coding"},
                         {""}});
  for (uint32_t t = 0; t < frame.stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = frame.stats.tiers[t];
    const double used = share(s.used_bytes, s.capacity_bytes);
    table.add_row(
        {tier_name(run, t), format_count(s.blocks),
         s.capacity_bytes == 0 ? terminal::format_binary_size(static_cast<double>(s.used_bytes))
                               : terminal::render_bar(used, kTierCells, shape.utf8) + " " + fixed(100 * used, 0) + "%",
         terminal::format_capacity(s.capacity_bytes), fixed(frame.in_gb_per_s[t], 2), fixed(frame.out_gb_per_s[t], 2),
         format_count(s.hits), format_count(s.stores), format_count(s.evictions), format_count(s.damaged),
         t == 0 ? "" : node::coding_text(frame.stats.codec[t]), s.disabled != 0 ? "out of service" : ""});
  }
  return table.render();
}

std::string block_table(const std::vector<Block>& blocks, size_t rows, const Run& run) {
  terminal::Table table({{"key"},
                         {"tier"},
                         {"uses", Align::right},
                         {"idle", Align::right},
                         {"holds", Align::right},
                         {"pins", Align::right},
                         {"bytes", Align::right}});
  for (size_t i = 0; i < std::min(rows, blocks.size()); ++i) {
    const Block& b = blocks[i];
    table.add_row({hex(b.key, kKeyBytesShown), tier_names(run, b.tiers), format_count(b.uses),
                   b.age.has_value() ? format_count(*b.age) : "", format_count(b.holds), format_count(b.pins),
                   format_count(b.bytes)});
  }
  return table.render();
}

size_t line_count(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

ordered_json blocks_json(const std::vector<Block>& blocks) {
  ordered_json list = ordered_json::array();
  for (const Block& b : blocks) {
    ordered_json tiers = ordered_json::array();
    for (uint32_t t = 0; t < 8; ++t) {
      if ((b.tiers >> t & 1U) != 0) tiers.push_back(t);
    }
    list.push_back({{"key", hex(b.key, sizeof b.key.bytes)},
                    {"component", b.component},
                    {"tiers", std::move(tiers)},
                    {"bytes", b.bytes},
                    {"uses", b.uses},
                    {"age_requests", b.age.has_value() ? ordered_json(*b.age) : ordered_json(nullptr)},
                    {"holds", b.holds},
                    {"pins", b.pins}});
  }
  return list;
}

ordered_json tiers_json(const Frame& frame, const Run& run) {
  ordered_json tiers = ordered_json::array();
  for (uint32_t t = 0; t < frame.stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = frame.stats.tiers[t];
    tiers.push_back({{"tier", t},
                     {"name", tier_name(run, t)},
                     {"blocks", s.blocks},
                     {"scanned", frame.scanned_rows[t]},
                     {"used_bytes", s.used_bytes},
                     {"capacity_bytes", s.capacity_bytes},
                     {"hits", s.hits},
                     {"misses", s.misses},
                     {"stores", s.stores},
                     {"store_bytes", s.store_bytes},
                     {"loads", s.loads},
                     {"load_bytes", s.load_bytes},
                     {"in_gb_per_s", frame.in_gb_per_s[t]},
                     {"out_gb_per_s", frame.out_gb_per_s[t]},
                     {"evictions", s.evictions},
                     {"damaged", s.damaged},
                     {"errors", s.errors},
                     {"disabled", s.disabled != 0},
                     {"coding", node::coding_json(frame.stats.codec[t])}});
  }
  return tiers;
}

}  // namespace

const char* order_name(Order order) noexcept {
  switch (order) {
    case Order::uses:
      return "uses";
    case Order::age:
      return "age";
    case Order::holds:
      return "holds";
    case Order::pins:
      return "pins";
  }
  return "";
}

std::string render_text(const Frame& frame, const Run& run, const Shape& shape) {
  std::string out = header(frame, run, shape) + "\n" + tier_table(frame, run, shape) + "\n";
  size_t rows = std::max(frame.hottest.size(), frame.coldest.size());
  // The two lists each have a line that names them and two of titles, and there is an empty line between them.
  const size_t fixed_lines = line_count(out) + 7;
  if (shape.lines != 0) rows = std::min(rows, shape.lines > fixed_lines + 2 ? (shape.lines - fixed_lines) / 2 : 1);
  const std::string order = order_name(run.order);
  out += "hottest by " + order + ", of " + format_count(frame.scanned_blocks) +
         " blocks (idle: requests since the last use, as the host counts)\n" + block_table(frame.hottest, rows, run);
  out += "\ncoldest by " + order + "\n" + block_table(frame.coldest, rows, run);
  return out;
}

std::string render_json(const Frame& frame, const Run& run) {
  const replay::StoreProgress& p = frame.progress;
  const kvbm_manager_stats_t& s = frame.stats;
  const ordered_json out{{"frame", frame.number},
                         {"last", frame.last},
                         {"stopped", frame.last && run.stopped},
                         {"seconds", frame.seconds},
                         {"requests", p.requests},
                         {"requests_to_replay", run.requests},
                         {"block_refs", p.block_refs},
                         {"hits", p.hits},
                         {"hit_rate", 100 * share(p.hits, p.block_refs)},
                         {"tokens", p.tokens},
                         {"tokens_saved", p.tokens_saved},
                         {"lookups", s.lookups},
                         {"keys_looked_up", s.keys_looked_up},
                         {"keys_hit", s.keys_hit},
                         {"operations_in_flight", s.operations_in_flight},
                         {"matches", s.matches},
                         {"holds", s.holds},
                         {"pins", s.pins},
                         {"offloads_skipped", s.offloads_skipped},
                         {"stores_refused", s.stores_refused_room + s.stores_refused_quota},
                         {"rate_seconds", frame.rate_seconds},
                         {"tiers", tiers_json(frame, run)},
                         {"scanned_blocks", frame.scanned_blocks},
                         {"scan_seconds", frame.scan_seconds},
                         {"sort", order_name(run.order)},
                         {"hottest", blocks_json(frame.hottest)},
                         {"coldest", blocks_json(frame.coldest)}};
  return terminal::json_text(out, -1);
}

}  // namespace kvbm::top
