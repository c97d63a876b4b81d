#include "command/replay.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "replay/child_replay.h"
#include "replay/policy_replay.h"
#include "replay/store_replay.h"
#include "terminal/plot.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"
#include "trace/mooncake.h"

namespace kvbm::command {

namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string trace;
  std::string format = "mooncake";
  bool skip_bad = false;
  std::string policy;
  // Policy mode.
  std::string capacity_blocks;
  std::string capacity_tokens;
  // Store mode.
  std::string host;
  std::string disk;
  std::string block_bytes = "64KiB";
  std::string disk_path;
  std::string plugin;
  bool verify = false;
  uint32_t threads = 1;
  uint64_t first = 0;
  uint64_t limit = UINT64_MAX;
  uint64_t report_every = 0;
};

struct Row {
  replay::PolicyResult result;
  uint64_t capacity_blocks = 0;
  bool is_default = false;
};

std::vector<std::string> chosen_policies(const std::string& name) {
  if (name.empty()) return {std::string(policy::kDefaultPolicy)};
  if (name != "all") return {name};
  std::vector<std::string> all;
  for (const std::string_view each : policy::eviction_policy_names()) all.emplace_back(each);
  all.emplace_back("optimal");
  return all;
}

std::string percent(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

void print_policy_table(const std::vector<Row>& rows, double unlimited, bool tokens) {
  std::vector<terminal::Table::Column> columns{{"policy"}};
  columns.push_back({tokens ? "tokens" : "blocks", terminal::Align::right});
  columns.push_back({"hits", terminal::Align::right});
  columns.push_back({"hit rate %", terminal::Align::right});
  columns.push_back({"of unlimited %", terminal::Align::right});
  columns.push_back({"ns a reference", terminal::Align::right});
  terminal::Table table(columns);
  std::vector<terminal::Series> series;
  for (const Row& row : rows) {
    const double share = unlimited > 0 ? 100 * row.result.hit_rate / unlimited : 0;
    const uint64_t capacity = tokens ? row.capacity_blocks * trace::kTokensPerBlock : row.capacity_blocks;
    table.add_row({row.result.policy + (row.is_default ? " (default)" : ""), terminal::format_count(capacity),
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

int replay_policies(const Arguments& arguments, const replay::PathTrace& paths, const Output& output) {
  const bool tokens = !arguments.capacity_tokens.empty();
  auto capacities = terminal::parse_counts(tokens ? arguments.capacity_tokens : arguments.capacity_blocks);
  if (!capacities.ok()) return fail(kBadInput, capacities.status().message());
  const replay::PolicyResult unlimited = replay::replay_unlimited(paths);
  const std::vector<std::string> policies = chosen_policies(arguments.policy);
  terminal::Progress progress("replaying", policies.size() * capacities.value().size(), terminal::Unit::items, output.json);
  std::vector<Row> rows;
  for (const std::string& name : policies) {
    for (const uint64_t capacity : capacities.value()) {
      const uint64_t blocks = tokens ? capacity / trace::kTokensPerBlock : capacity;
      Row row;
      row.capacity_blocks = blocks;
      if (name == "optimal") {
        row.result = replay::replay_optimal(paths, blocks);
      } else {
        auto result = replay::replay_policy(paths, name, blocks);
        if (!result.ok()) {
          progress.finish();
          return fail(kBadInput, result.status().message(), "policies: prefix lru fifo lfu s3fifo arc sieve tinylfu optimal all");
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
    print_policy_table(rows, unlimited.hit_rate, tokens);
    return kDone;
  }
  ordered_json list = ordered_json::array();
  for (const Row& row : rows) {
    ordered_json item{{"policy", row.result.policy},
                      {"capacity_blocks", row.capacity_blocks},
                      {"block_refs", row.result.block_refs},
                      {"hits", row.result.hits},
                      {"hit_rate", row.result.hit_rate},
                      {"default", row.is_default},
                      {"share_of_unlimited", unlimited.hits == 0 ? 0.0
                                                                 : static_cast<double>(row.result.hits) /
                                                                       static_cast<double>(unlimited.hits)}};
    if (tokens) item["capacity_tokens"] = row.capacity_blocks * trace::kTokensPerBlock;
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
                     {"errors", s.errors}});
  }
  return tiers;
}

void print_store_json(const replay::StoreResult& r) {
  const ordered_json out{{"requests", r.requests},
                         {"block_refs", r.block_refs},
                         {"hits", r.hits},
                         {"hit_rate", r.hit_rate()},
                         {"verified_blocks", r.verified_blocks},
                         {"wrong_blocks", r.wrong_blocks},
                         {"failed_blocks", r.failed_blocks},
                         {"found_again", r.found_again},
                         {"stored_blocks", r.stored_blocks},
                         {"tokens", r.tokens},
                         {"tokens_saved", r.tokens_saved},
                         {"seconds", r.seconds},
                         {"load_gb_per_s", rate(r.stats.tiers[0].load_bytes, r.load_seconds)},
                         {"store_gb_per_s", rate(r.stats.tiers[0].store_bytes, r.store_seconds)},
                         {"tiers", tiers_json(r)}};
  std::printf("%s\n", out.dump(2).c_str());
}

void print_store_table(const replay::StoreResult& r, bool verified) {
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
  std::printf("inside load calls %.2f GB/s, inside store calls %.2f GB/s\n\n",
              rate(r.stats.tiers[0].load_bytes, r.load_seconds), rate(r.stats.tiers[0].store_bytes, r.store_seconds));
  terminal::Table table({{"tier"}, {"hits", terminal::Align::right}, {"came in", terminal::Align::right},
                         {"went out", terminal::Align::right}, {"blocks", terminal::Align::right},
                         {"used", terminal::Align::right}, {"of", terminal::Align::right},
                         {"let go", terminal::Align::right}, {"damaged", terminal::Align::right}});
  for (uint32_t t = 0; t < r.stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = r.stats.tiers[t];
    table.add_row({t == 0 ? "host" : "tier " + std::to_string(t), terminal::format_count(s.hits),
                   terminal::format_binary_size(static_cast<double>(s.store_bytes)),
                   terminal::format_binary_size(static_cast<double>(s.load_bytes)), terminal::format_count(s.blocks),
                   terminal::format_binary_size(static_cast<double>(s.used_bytes)),
                   terminal::format_binary_size(static_cast<double>(s.capacity_bytes)),
                   terminal::format_count(s.evictions), terminal::format_count(s.damaged)});
  }
  std::fputs(table.render().c_str(), stdout);
}

// A directory of our own that goes when the replay ends.
class ScratchDirectory {
 public:
  Status make() {
    std::string name = (std::filesystem::temp_directory_path() / "kvbm-replay-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return {Code::io_error, "no temporary directory could be made", name};
    path_ = name;
    return {};
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string tier() const { return path_ + "/tier"; }

 private:
  std::string path_;
};

Status read_sizes(const Arguments& arguments, replay::StoreOptions& options) {
  const struct {
    const std::string& text;
    uint64_t& value;
    const char* name;
  } sizes[] = {{arguments.host, options.host_bytes, "--host"},
               {arguments.disk, options.disk_bytes, "--disk"},
               {arguments.block_bytes, options.block_bytes, "--block-bytes"}};
  for (const auto& size : sizes) {
    if (size.text.empty()) continue;
    const auto parsed = terminal::parse_size(size.text);
    if (!parsed.ok()) return {Code::invalid_argument, size.name, parsed.status().message()};
    size.value = parsed.value();
  }
  return {};
}

int replay_bytes(const Arguments& arguments, const trace::Trace& trace, const replay::PathTrace& paths,
                 const Output& output) {
  replay::StoreOptions options;
  const Status sizes = read_sizes(arguments, options);
  if (!sizes.ok()) return fail(kBadInput, sizes.message());
  if (arguments.threads == 0 || arguments.threads > 64) return fail(kBadInput, "--threads is 1 to 64");
  options.policy = arguments.policy;
  options.plugin = arguments.plugin;
  options.verify = arguments.verify;
  options.threads = arguments.threads;
  options.first = arguments.first;
  options.limit = arguments.limit;
  ScratchDirectory scratch;
  options.disk_path = arguments.disk_path;
  if (options.disk_bytes != 0 && options.disk_path.empty()) {
    const Status made = scratch.make();
    if (!made.ok()) return fail(made, "give a directory with --disk-path");
    options.disk_path = scratch.tier();
  }
  const uint64_t total = std::min<uint64_t>(arguments.limit, trace.requests.size());
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
    print_store_table(result.value(), options.verify);
  }
  if (result.value().wrong_blocks != 0) return fail(kFailed, "wrong blocks came back", "this is a fault in kvbm; please report it");
  return kDone;
}

int run(const Arguments& arguments, const Output& output) {
  if (arguments.format != "mooncake") return fail(kBadInput, "unknown trace format " + arguments.format, "the format is mooncake");
  const bool by_policy = !arguments.capacity_blocks.empty() || !arguments.capacity_tokens.empty();
  const bool by_bytes = !arguments.host.empty() || !arguments.disk.empty();
  if (by_policy == by_bytes) {
    return fail(kBadInput, "say what to replay: policies or bytes",
                "--capacity-blocks 10000 --policy all, or --host 256MiB --disk 1GiB --verify");
  }
  trace::ParseOptions options;
  options.skip_bad = arguments.skip_bad;
  const auto parsed = trace::read_mooncake(arguments.trace, options);
  if (!parsed.ok()) {
    return fail(kBadInput, arguments.trace + ": " + parsed.status().message(), "--skip-bad goes on after bad lines");
  }
  for (const trace::BadLine& bad : parsed.value().bad) {
    std::fprintf(stderr, "kvbm: skipped line %llu: %s\n", static_cast<unsigned long long>(bad.line), bad.what.c_str());
  }
  if (parsed.value().bad_lines != 0) {
    std::fprintf(stderr, "kvbm: %llu bad lines skipped\n", static_cast<unsigned long long>(parsed.value().bad_lines));
  }
  if (parsed.value().trace.requests.empty()) return fail(kBadInput, arguments.trace + " has no requests");
  const replay::PathTrace paths = replay::make_paths(parsed.value().trace);
  return by_policy ? replay_policies(arguments, paths, output)
                   : replay_bytes(arguments, parsed.value().trace, paths, output);
}

}  // namespace

void add_replay(Registry& registry) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = registry.add("replay", "Replay a request trace over eviction policies, or through the tiers with real bytes",
                               [arguments](const Output& output) { return run(*arguments, output); });
  app.add_option("TRACE", arguments->trace, "Trace file")->required();
  app.add_option("--format", arguments->format, "Format of the trace")->capture_default_str();
  app.add_flag("--skip-bad", arguments->skip_bad, "Go on after bad lines, and count them");
  app.add_option("--policy", arguments->policy, "Eviction policy; `all` or `optimal` with a capacity");
  auto* policies = app.add_option_group("over policies alone");
  policies->add_option("--capacity-blocks", arguments->capacity_blocks, "Capacities in blocks: 1k,3k,10k")->type_name("N,...");
  policies->add_option("--capacity-tokens", arguments->capacity_tokens, "Capacities in tokens (512 a block): 3M,50M")->type_name("N,...");
  auto* bytes = app.add_option_group("through the tiers");
  bytes->add_option("--host", arguments->host, "Host tier (default 256MiB)")->type_name("SIZE");
  bytes->add_option("--disk", arguments->disk, "Disk tier")->type_name("SIZE");
  bytes->add_option("--block-bytes", arguments->block_bytes, "Bytes of a block")->type_name("SIZE")->capture_default_str();
  bytes->add_option("--disk-path", arguments->disk_path, "Directory of the disk tier; kept, so that the next run finds its blocks")->type_name("DIR");
  bytes->add_option("--plugin", arguments->plugin, "A last tier: a shared library with the symbol kvbm_plugin_table")->type_name("FILE");
  bytes->add_flag("--verify", arguments->verify, "Check every byte that comes back");
  bytes->add_option("--threads", arguments->threads, "Engines at a time")->capture_default_str();
  bytes->add_option("--first", arguments->first, "Requests to pass over")->type_name("N");
  bytes->add_option("--limit", arguments->limit, "Requests to replay")->type_name("N");
  bytes->add_option("--report-every", arguments->report_every, "Report progress as lines on standard error")->group("");
  app.footer(
      "Examples:\n"
      "  kvbm replay trace.jsonl --capacity-blocks 1k,3k,10k,30k --policy all\n"
      "  kvbm replay trace.jsonl --host 256MiB --disk 1GiB --block-bytes 64KiB --verify");
}

}  // namespace kvbm::command
