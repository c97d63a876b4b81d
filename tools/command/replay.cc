#include "command/replay.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "command/store_arguments.h"
#include "replay/child_replay.h"
#include "replay/policies.h"
#include "replay/policy_replay.h"
#include "replay/store_replay.h"
#include "terminal/interrupt.h"
#include "terminal/json_text.h"
#include "terminal/plot.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

using nlohmann::ordered_json;

struct ReplayArguments {
  TraceArguments trace;
  // For a replay over policies alone.
  std::string capacity_blocks;
  std::string capacity_tokens;
  // For a replay through the tiers.
  StoreArguments store;
  bool verify = false;
  uint64_t report_every = 0;
  // Options of bytes and tiers, which have no meaning over policies alone.
  std::optional<Command> tier_options;
};

struct PolicyRow {
  replay::PolicyResult result;
  uint64_t capacity_blocks = 0;
  bool is_default = false;
};

std::vector<std::string> chosen_policies(const std::string& name) {
  if (name.empty()) return {std::string(policy::kDefaultPolicy)};
  if (name != "all") return {name};
  std::vector<std::string> all;
  for (const std::string_view each : replay::policy_names()) all.emplace_back(each);
  all.emplace_back("optimal");
  return all;
}

std::string percent(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

// `block`: tokens of a block if capacities are in tokens, else 0.
void print_policy_table(const std::vector<PolicyRow>& rows, double unlimited, uint64_t block) {
  const bool tokens = block != 0;
  std::vector<terminal::Table::Column> columns{{"policy"}};
  columns.push_back({tokens ? "tokens" : "blocks", terminal::Align::right});
  columns.push_back({"hits", terminal::Align::right});
  columns.push_back({"hit rate %", terminal::Align::right});
  columns.push_back({"of unlimited %", terminal::Align::right});
  columns.push_back({"ns a reference", terminal::Align::right});
  terminal::Table table(columns);
  std::vector<terminal::Series> series;
  for (const PolicyRow& row : rows) {
    const double share = unlimited > 0 ? 100 * row.result.hit_rate / unlimited : 0;
    const uint64_t capacity = tokens ? row.capacity_blocks * block : row.capacity_blocks;
    table.add_row(
        {row.result.policy + (row.is_default ? " (default)" : ""), terminal::format_count(capacity),
         terminal::format_count(row.result.hits), percent(row.result.hit_rate), percent(share),
         row.result.nanoseconds > 0 ? terminal::format_count(static_cast<uint64_t>(row.result.nanoseconds)) : ""});
    if (series.empty() || series.back().name != row.result.policy) series.push_back({row.result.policy, {}});
    series.back().points.push_back({static_cast<double>(capacity), row.result.hit_rate});
  }
  std::fputs(table.render().c_str(), stdout);
  if (series.empty() || series.front().points.size() < 2) return;
  terminal::PlotOptions plot;
  plot.log_x = true;
  plot.utf8 = terminal::locale_is_utf8();
  plot.x_label = tokens ? "capacity in tokens" : "capacity in blocks";
  plot.y_label = "hit rate %";
  std::printf("\n%s", terminal::render_plot(series, plot).c_str());
}

// Checks that every capacity has space for a block: of `block` tokens, or 0 if capacities are in blocks.
int check_capacities(const std::vector<uint64_t>& capacities, uint64_t block) {
  for (const uint64_t capacity : capacities) {
    if (capacity >= std::max<uint64_t>(block, 1)) continue;
    return fail(kBadInput, "a capacity of " + std::to_string(capacity) + " is less than one block",
                block != 0 ? "a block of this trace is " + std::to_string(block) + " tokens" : "");
  }
  return kDone;
}

// Checks that every policy has a known name, and every capacity space for a block. Reports an error.
int check_policies(const std::vector<std::string>& policies, const std::vector<uint64_t>& capacities) {
  const auto known = replay::policy_names();
  for (const std::string& name : policies) {
    if (name == "optimal" || std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string hint = "policies: ";
    for (const std::string_view each : known) hint += std::string(each) + " ";
    return fail(kBadInput, "unknown eviction policy " + name, hint + "optimal all");
  }
  return check_capacities(capacities, 0);
}

struct PolicyPlan {
  bool tokens = false;
  std::vector<uint64_t> capacities;
  std::vector<std::string> policies;
};

int plan_policies(const ReplayArguments& arguments, PolicyPlan& out) {
  const bool tokens = out.tokens = !arguments.capacity_tokens.empty();
  auto capacities = terminal::parse_counts(tokens ? arguments.capacity_tokens : arguments.capacity_blocks);
  if (!capacities.ok()) {
    return fail(kBadInput, (tokens ? "--capacity-tokens: " : "--capacity-blocks: ") + capacities.status().message(),
                tokens ? "whole numbers with commas between them: 3M,50M"
                       : "whole numbers with commas between them: 1k,3k,10k");
  }
  out.capacities = std::move(capacities).value();
  out.policies = chosen_policies(arguments.store.policy);
  return check_policies(out.policies, out.capacities);
}

int replay_policies(const PolicyPlan& plan, const trace::Trace& trace, const replay::PathTrace& paths,
                    const Output& output) {
  const bool tokens = plan.tokens;
  const uint64_t block = tokens ? trace.tokens_per_block : 0;
  const int roomy = check_capacities(plan.capacities, block);
  if (roomy != kDone) return roomy;
  const replay::PolicyResult unlimited = replay::replay_unlimited(paths);
  terminal::Progress progress("replaying", plan.policies.size() * plan.capacities.size(), terminal::Unit::items,
                              output.json);
  std::vector<PolicyRow> rows;
  for (const std::string& name : plan.policies) {
    for (const uint64_t capacity : plan.capacities) {
      const uint64_t blocks = tokens ? capacity / block : capacity;
      PolicyRow row;
      row.capacity_blocks = blocks;
      if (name == "optimal") {
        row.result = replay::replay_optimal(paths, blocks);
      } else {
        auto result = replay::replay_policy(paths, name, blocks);
        if (!result.ok()) {
          progress.finish();
          return fail(result.status());
        }
        row.result = result.value();
      }
      row.is_default = row.result.policy == policy::kDefaultPolicy;
      rows.push_back(std::move(row));
      progress.advance(1);
    }
  }
  progress.finish();
  if (!output.json) {
    print_policy_table(rows, unlimited.hit_rate, block);
    return kDone;
  }
  ordered_json list = ordered_json::array();
  for (const PolicyRow& row : rows) {
    ordered_json item{
        {"policy", row.result.policy},
        {"capacity_blocks", row.capacity_blocks},
        {"block_refs", row.result.block_refs},
        {"hits", row.result.hits},
        {"hit_rate", row.result.hit_rate},
        {"default", row.is_default},
        {"share_of_unlimited",
         unlimited.hits == 0 ? 0.0 : static_cast<double>(row.result.hits) / static_cast<double>(unlimited.hits)}};
    if (tokens) item["capacity_tokens"] = row.capacity_blocks * block;
    if (row.result.nanoseconds > 0) item["ns_per_ref"] = row.result.nanoseconds;
    list.push_back(std::move(item));
  }
  std::printf("%s\n", list.dump(2).c_str());
  return kDone;
}

double rate(uint64_t bytes, double seconds) { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }

ordered_json tiers_json(const replay::StoreResult& result) {
  ordered_json tiers = ordered_json::array();
  for (uint32_t t = 0; t < result.stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = result.stats.tiers[t];
    tiers.push_back({{"tier", t},
                     {"hits", s.hits},
                     {"stores", s.stores},
                     {"store_bytes", s.store_bytes},
                     {"loads", s.loads},
                     {"load_bytes", s.load_bytes},
                     {"gb_per_s", rate(s.store_bytes + s.load_bytes, result.seconds)},
                     {"blocks", s.blocks},
                     {"used_bytes", s.used_bytes},
                     {"capacity_bytes", s.capacity_bytes},
                     {"evictions", s.evictions},
                     {"damaged", s.damaged},
                     {"errors", s.errors},
                     {"disabled", s.disabled != 0}});
  }
  return tiers;
}

// Returns the bytes of store calls. The host's own count includes blocks loaded from tiers below.
uint64_t stored_bytes(const replay::StoreResult& r) { return r.stored_blocks * r.block_bytes; }

// Lists failed blocks by the name of their status.
ordered_json failed_json(const replay::StoreResult& r) {
  ordered_json out = ordered_json::object();
  for (const auto& [why, blocks] : r.failed_as) out[kvbm_status_name(why)] = blocks;
  return out;
}

void print_store_json(const replay::StoreResult& r) {
  const ordered_json out{{"requests", r.requests},
                         {"block_refs", r.block_refs},
                         {"hits", r.hits},
                         {"hit_rate", r.hit_rate()},
                         {"verified_blocks", r.verified_blocks},
                         {"wrong_blocks", r.wrong_blocks},
                         {"failed_blocks", r.failed_blocks},
                         {"failed_as", failed_json(r)},
                         {"found_again", r.found_again},
                         {"stored_blocks", r.stored_blocks},
                         {"offloads_skipped", r.stats.offloads_skipped},
                         {"tokens", r.tokens},
                         {"tokens_saved", r.tokens_saved},
                         {"seconds", r.seconds},
                         {"load_seconds", r.load_seconds},
                         {"load_gb_per_s", rate(r.stats.tiers[0].load_bytes, r.load_seconds)},
                         {"store_gb_per_s", rate(stored_bytes(r), r.store_seconds)},
                         {"warnings", r.warnings},
                         {"tiers", tiers_json(r)}};
  std::printf("%s\n", terminal::json_text(out).c_str());
}

// Explains a hit rate below the one that the sizes would give.
void print_skipped(const replay::StoreResult& r, bool settled) {
  const uint64_t skipped = r.stats.offloads_skipped;
  if (skipped == 0) return;
  std::printf(
      "%s blocks found the queue to the tier below full; those that were not written later could not be loaded\n  %s\n",
      terminal::format_count(skipped).c_str(),
      settled ? "a larger --host gives the queue more room"
              : "--settle waits for the tier after each request: the hit rate is then that of the sizes");
}

// Returns for the user what one status means, and the remedy.
const char* remedy(kvbm_status_t why) {
  switch (why) {
    case KVBM_ERR_NO_MEMORY:
      return "the system had no memory for one block; a smaller --host or --block-bytes leaves it some";
    case KVBM_ERR_NO_ROOM:
    case KVBM_ERR_QUOTA:
      return "a tier had no room to bring it up; a larger --host gives it some";
    case KVBM_ERR_MISS:
      return "it left its tier between lookup and load; a larger --disk keeps it";
    case KVBM_ERR_DAMAGED:
      return "its tier gave other bytes than were stored, nothing of them was used; look at the medium, or the plug-in";
    case KVBM_ERR_MISMATCH:
      return "it was stored in another shape; use a new --disk-path";
    case KVBM_ERR_DEADLINE:
      return "its tier did not answer in time; look at what is slow or hangs";
    case KVBM_ERR_TIER_DISABLED:
    case KVBM_ERR_IO:
      return "its tier fails; for a disk see kvbm doctor and the system's log";
    default:
      return kvbm_status_text(why);
  }
}

// Prints harmless failures: a block that did not load is computed again.
void print_failures(const replay::StoreResult& r) {
  if (r.failed_blocks != 0) {
    std::printf("%s blocks were found but could not be loaded: they are computed again\n",
                terminal::format_count(r.failed_blocks).c_str());
  }
  for (const auto& [why, blocks] : r.failed_as) {
    std::printf("  %s as %s: %s\n", terminal::format_count(blocks).c_str(), kvbm_status_name(why), remedy(why));
  }
  for (uint32_t t = 0; t < r.stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = r.stats.tiers[t];
    if (s.errors == 0 && s.damaged == 0 && s.disabled == 0) continue;
    std::printf("tier %u: %s operations failed, %s records were damaged%s\n", t,
                terminal::format_count(s.errors).c_str(), terminal::format_count(s.damaged).c_str(),
                s.disabled != 0 ? "; it was taken out of service" : "");
  }
}

void print_store_table(const replay::StoreResult& r, bool verified, bool settled) {
  const double saved = r.tokens == 0 ? 0 : 100.0 * static_cast<double>(r.tokens_saved) / static_cast<double>(r.tokens);
  std::printf("%s requests, %s block references in %s\n", terminal::format_count(r.requests).c_str(),
              terminal::format_count(r.block_refs).c_str(), terminal::format_duration(r.seconds).c_str());
  std::printf("%s blocks came back (%.2f %%): %s of %s prompt tokens (%.1f %%) need not be computed\n",
              terminal::format_count(r.hits).c_str(), r.hit_rate(), terminal::format_count(r.tokens_saved).c_str(),
              terminal::format_count(r.tokens).c_str(), saved);
  if (verified) {
    std::printf("%s blocks verified byte for byte, %s wrong\n", terminal::format_count(r.verified_blocks).c_str(),
                terminal::format_count(r.wrong_blocks).c_str());
  }
  if (r.found_again != 0) {
    std::printf("%s of the blocks that came back were stored by an earlier run\n",
                terminal::format_count(r.found_again).c_str());
  }
  print_skipped(r, settled);
  print_failures(r);
  std::printf("inside load calls %.2f GB/s, inside store calls %.2f GB/s\n\n",
              rate(r.stats.tiers[0].load_bytes, r.load_seconds), rate(stored_bytes(r), r.store_seconds));
  terminal::Table table({{"tier"},
                         {"hits", terminal::Align::right},
                         {"stored", terminal::Align::right},
                         {"loaded", terminal::Align::right},
                         {"blocks", terminal::Align::right},
                         {"used", terminal::Align::right},
                         {"of", terminal::Align::right},
                         {"evicted", terminal::Align::right},
                         {"damaged", terminal::Align::right}});
  for (uint32_t t = 0; t < r.stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = r.stats.tiers[t];
    table.add_row({t == 0 ? "host" : "tier " + std::to_string(t), terminal::format_count(s.hits),
                   terminal::format_binary_size(static_cast<double>(s.store_bytes)),
                   terminal::format_binary_size(static_cast<double>(s.load_bytes)), terminal::format_count(s.blocks),
                   terminal::format_binary_size(static_cast<double>(s.used_bytes)),
                   terminal::format_capacity(s.capacity_bytes), terminal::format_count(s.evictions),
                   terminal::format_count(s.damaged)});
  }
  std::fputs(table.render().c_str(), stdout);
}

int replay_bytes(const ReplayArguments& arguments, const trace::Trace& trace, const replay::PathTrace& paths,
                 const Output& output) {
  replay::StoreOptions options;
  ScratchDirectory scratch;
  const int ready = make_store_options(arguments.store, trace.requests.size(), scratch, options);
  if (ready != kDone) return ready;
  options.verify = arguments.verify;
  const uint64_t total = requests_to_replay(options, trace.requests.size());
  const terminal::Interrupt interrupt;
  options.stop = &terminal::Interrupt::asked();
  terminal::Progress progress("replaying", total, terminal::Unit::items, output.json || arguments.report_every != 0);
  options.progress = [&](const replay::StoreProgress& so_far) {
    if (arguments.report_every == 0) return progress.set(so_far.requests);
    if (so_far.requests % arguments.report_every == 0) replay::write_report(stderr, so_far);
  };
  const auto result = replay::replay_store(trace, paths, options);
  progress.finish();
  if (!result.ok()) return fail(result.status());
  if (output.json) {
    print_store_json(result.value());
  } else {
    print_store_table(result.value(), options.verify, options.settle);
    for (const std::string& warning : result.value().warnings)
      std::fprintf(stderr, "kvbm: warning: %s\n", warning.c_str());
  }
  if (result.value().wrong_blocks != 0)
    return fail(kFailed, "wrong blocks came back", "this is a fault in kvbm; please report it");
  if (result.value().requests == total) return kDone;
  std::fprintf(stderr, "kvbm: stopped after %s of %s requests\n",
               terminal::format_count(result.value().requests).c_str(), terminal::format_count(total).c_str());
  return kInterrupted;
}

// Refuses options that a replay over policies alone would ignore.
int check_policies_alone(const ReplayArguments& arguments) {
  std::string said;
  for (const std::string& name : arguments.tier_options->given()) said += (said.empty() ? "" : ", ") + name;
  if (!said.empty()) {
    return fail(kBadInput, said + ": for bytes through tiers alone; a capacity replays the whole trace over policies",
                "leave it out, or give --host and --disk instead of a capacity");
  }
  if (arguments.capacity_blocks.empty() || arguments.capacity_tokens.empty()) return kDone;
  return fail(kBadInput, "--capacity-blocks and --capacity-tokens are two ways to say one size",
              "leave out one of them");
}

int run(const ReplayArguments& arguments, const Output& output) {
  const bool by_policy = !arguments.capacity_blocks.empty() || !arguments.capacity_tokens.empty();
  const bool by_bytes = !arguments.store.host.empty() || !arguments.store.disk.empty();
  if (by_policy && by_bytes) {
    return fail(kBadInput,
                "two things to replay: a capacity is over policies alone, --host and --disk are bytes through tiers",
                "leave out --capacity-blocks and --capacity-tokens, or --host and --disk");
  }
  if (!by_policy && !by_bytes) {
    return fail(kBadInput, "choose what to replay: policies or bytes",
                "--capacity-blocks 10000 --policy all, or --host 256MiB --disk 1GiB --verify");
  }
  // Bad options are reported before the trace is read, which may take long and may fail too.
  PolicyPlan plan;
  replay::StoreOptions unread;
  int good = by_policy ? check_policies_alone(arguments) : read_store_arguments(arguments.store, unread);
  if (good == kDone && by_policy) good = plan_policies(arguments, plan);
  if (good != kDone) return good;
  trace::Trace trace;
  const int read = read_trace(arguments.trace, trace);
  if (read != kDone) return read;
  const replay::PathTrace paths = replay::make_paths(trace);
  return by_policy ? replay_policies(plan, trace, paths, output) : replay_bytes(arguments, trace, paths, output);
}

}  // namespace

void add_replay(Registry& registry) {
  auto arguments = std::make_shared<ReplayArguments>();
  Command app =
      registry.add("replay", "Replay a request trace over eviction policies, or through the tiers with real bytes",
                   [arguments](const Output& output) { return run(*arguments, output); });
  add_trace_arguments(app, arguments->trace);
  app.add_option("--policy", arguments->store.policy, "Eviction policy; `all` or `optimal` with a capacity");
  Command policies = app.add_option_group("over policies alone");
  policies.add_option("--capacity-blocks", arguments->capacity_blocks, "Capacities in blocks: 1k,3k,10k")
      .type_name("N,...");
  policies.add_option("--capacity-tokens", arguments->capacity_tokens, "Capacities in tokens: 3M,50M")
      .type_name("N,...");
  Command bytes = app.add_option_group("through the tiers");
  arguments->tier_options = bytes;
  add_store_arguments(bytes, arguments->store);
  bytes.add_flag("--verify", arguments->verify, "Check every byte that comes back");
  bytes.add_option("--report-every", arguments->report_every, "Report progress as lines on standard error")
      .not_negative()
      .hide();
  app.footer(
      "Examples:\n"
      "  kvbm replay trace.jsonl --capacity-blocks 1k,3k,10k,30k --policy all\n"
      "  kvbm replay trace.jsonl --host 256MiB --disk 1GiB --block-bytes 64KiB --verify");
}

}  // namespace kvbm::command
