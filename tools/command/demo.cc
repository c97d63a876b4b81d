#include "command/demo.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "replay/child_replay.h"
#include "replay/policy_replay.h"
#include "terminal/json_text.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"
#include "terminal/temp_directory.h"
#include "trace/mooncake.h"

namespace kvbm::command {

namespace {

using nlohmann::json;
using terminal::format_binary_size;
using terminal::format_count;

constexpr uint64_t kBlockBytes = 64ULL << 10;
constexpr uint64_t kHostBytes = 512ULL << 20;
constexpr uint64_t kDiskBytes = 2ULL << 30;
constexpr uint64_t kLeastDiskBytes = 64ULL << 20;

struct Arguments {
  std::string trace;
  std::string directory;
  uint64_t seed = 0;
};

// A directory of our own that goes when the demo ends.
class Scratch {
 public:
  explicit Scratch(const std::string& parent) {
    std::string name = (std::filesystem::path(parent) / "kvbm-demo-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
    } else {
      why_ = std::strerror(errno);
    }
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& why() const { return why_; }  // there is none

 private:
  std::string path_;
  std::string why_;
};

// Ctrl-C ends the child as well; the demo then ends in order, so that its directory is removed.
volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int /*signal*/) { interrupted = 1; }

// Half of what is free, at most what the demo wants; 0 if that is too little.
uint64_t disk_for_demo(const std::string& directory) {
  struct statvfs space {};
  if (statvfs(directory.c_str(), &space) != 0) return 0;
  const uint64_t half = static_cast<uint64_t>(space.f_bavail) * space.f_frsize / 2;
  return half < kLeastDiskBytes ? 0 : std::min(half, kDiskBytes);
}

// It settles: an engine takes hours for what is replayed in seconds here, and its disk keeps up.
std::vector<std::string> replay_arguments(const Arguments& arguments, const std::string& tier, uint64_t disk_bytes,
                                          uint64_t first) {
  return {"replay",        arguments.trace, "--host",       std::to_string(kHostBytes),
          "--disk",        std::to_string(disk_bytes),      "--disk-path", tier,
          "--block-bytes", std::to_string(kBlockBytes),     "--verify",    "--json",
          "--first",       std::to_string(first),           "--report-every", "8",
          "--settle"};
}

struct Outcome {
  replay::ChildEnd killed;
  json resumed;
};

// Replays until `kill_at` requests, kills, and goes on in a new process on the same directory.
Result<Outcome> replay_with_a_kill(const Arguments& arguments, const std::string& tier, uint64_t disk_bytes,
                                   uint64_t requests, uint64_t kill_at, bool quiet) {
  Outcome outcome;
  terminal::Progress progress("replaying", requests, terminal::Unit::items, quiet);
  auto first = replay::run_child(replay_arguments(arguments, tier, disk_bytes, 0), [&](const replay::StoreProgress& p) {
    progress.set(p.requests);
    return p.requests < kill_at && interrupted == 0;
  });
  if (interrupted != 0) return Status(Code::cancelled, "interrupted");
  if (!first.ok()) return first.status();
  outcome.killed = std::move(first).value();
  if (!outcome.killed.killed) {
    return Status(Code::internal, "the replay ended before it could be killed", outcome.killed.complaints);
  }
  const uint64_t done = outcome.killed.last.requests;
  auto second = replay::run_child(replay_arguments(arguments, tier, disk_bytes, done), [&](const replay::StoreProgress& p) {
    progress.set(done + p.requests);
    return interrupted == 0;
  });
  progress.finish();
  if (interrupted != 0) return Status(Code::cancelled, "interrupted");
  if (!second.ok()) return second.status();
  if (second.value().exit_code != 0) {
    return Status(Code::internal, "the replay after the kill failed", second.value().complaints);
  }
  outcome.resumed = json::parse(second.value().output, nullptr, false);
  if (outcome.resumed.is_discarded()) return Status(Code::internal, "the replay after the kill gave no result");
  return outcome;
}

struct PolicyFigures {
  uint64_t blocks = 0;
  replay::PolicyResult ours, lru, optimal, unlimited;
};

PolicyFigures compare_policies(const replay::PathTrace& paths, uint64_t blocks) {
  PolicyFigures out;
  out.blocks = blocks;
  out.ours = replay::replay_policy(paths, policy::kDefaultPolicy, blocks).value();
  out.lru = replay::replay_policy(paths, "lru", blocks).value();
  out.optimal = replay::replay_optimal(paths, blocks);
  out.unlimited = replay::replay_unlimited(paths);
  return out;
}

uint64_t number(const json& object, const char* key) { return object.at(key).get<uint64_t>(); }

void print_screen(const Arguments& arguments, uint64_t requests, uint64_t disk_bytes, const Outcome& outcome,
                  const PolicyFigures& policies) {
  const replay::StoreProgress& before = outcome.killed.last;
  const json& after = outcome.resumed;
  const uint64_t refs = before.block_refs + number(after, "block_refs");
  const uint64_t hits = before.hits + number(after, "hits");
  const uint64_t tokens = before.tokens + number(after, "tokens");
  const uint64_t saved = before.tokens_saved + number(after, "tokens_saved");
  const uint64_t verified = before.verified_blocks + number(after, "verified_blocks");
  const uint64_t wrong = before.wrong_blocks + number(after, "wrong_blocks");
  const auto share = [](uint64_t part, uint64_t of) { return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of); };

  std::printf("\nkvbm demo: %s\n", arguments.trace.c_str());
  std::printf("  %s requests, %s block references; host %s + disk %s, blocks of %s\n\n", format_count(requests).c_str(),
              format_count(refs).c_str(), format_binary_size(static_cast<double>(kHostBytes)).c_str(),
              format_binary_size(static_cast<double>(disk_bytes)).c_str(), format_binary_size(static_cast<double>(kBlockBytes)).c_str());
  std::printf("What the cache saved\n");
  std::printf("  %s of %s blocks came back (%.1f %%): %s of %s prompt tokens (%.1f %%) were not computed again\n\n",
              format_count(hits).c_str(), format_count(refs).c_str(), share(hits, refs), format_count(saved).c_str(),
              format_count(tokens).c_str(), share(saved, tokens));
  if (number(after, "offloads_skipped") != 0) {
    std::printf("  It would be more: %s blocks found the queue to the disk full\n\n",
                format_count(number(after, "offloads_skipped")).c_str());
  }
  std::printf("Every byte checked\n");
  std::printf("  %s blocks compared byte for byte with what was stored: %s wrong\n\n", format_count(verified).c_str(),
              format_count(wrong).c_str());
  std::printf("Killed in the middle\n");
  std::printf("  kill -9 after %s requests; a new process on the same directory went on and found\n",
              format_count(before.requests).c_str());
  std::printf("  %s blocks from before the kill when they were asked for\n\n", format_count(number(after, "found_again")).c_str());
  std::printf("What came from where (after the restart)\n");
  for (const json& tier : after.at("tiers")) {
    const uint64_t index = number(tier, "tier");
    std::printf("  %-5s %9s hits, %10s in, %10s out, %s of %s used\n", index == 0 ? "host" : "disk",
                format_count(number(tier, "hits")).c_str(),
                format_binary_size(static_cast<double>(number(tier, "store_bytes"))).c_str(),
                format_binary_size(static_cast<double>(number(tier, "load_bytes"))).c_str(),
                format_binary_size(static_cast<double>(number(tier, "used_bytes"))).c_str(),
                format_binary_size(static_cast<double>(number(tier, "capacity_bytes"))).c_str());
  }
  std::printf("\nHow good the eviction policy is (%s blocks, policies alone)\n", format_count(policies.blocks).c_str());
  std::printf("  %s %.2f %%, lru %.2f %%, best possible %.2f %%, unlimited cache %.2f %%\n",
              policies.ours.policy.c_str(), policies.ours.hit_rate, policies.lru.hit_rate, policies.optimal.hit_rate,
              policies.unlimited.hit_rate);
}

void print_json(const Outcome& outcome, const PolicyFigures& policies) {
  const replay::StoreProgress& p = outcome.killed.last;
  const nlohmann::ordered_json out{
      {"killed_after_requests", p.requests},
      {"before_kill", {{"block_refs", p.block_refs}, {"hits", p.hits}, {"verified_blocks", p.verified_blocks}, {"wrong_blocks", p.wrong_blocks}}},
      {"after_kill", nlohmann::ordered_json(outcome.resumed)},  // said aloud for nlohmann-json 3.10 (Ubuntu 22.04)
      {"policies", {{"capacity_blocks", policies.blocks}, {"default", policies.ours.hit_rate}, {"lru", policies.lru.hit_rate},
                    {"optimal", policies.optimal.hit_rate}, {"unlimited", policies.unlimited.hit_rate}}}};
  std::printf("%s\n", terminal::json_text(out).c_str());
}

int run(const Arguments& arguments, const Output& output) {
  const auto parsed = trace::read_mooncake(arguments.trace, {});
  if (!parsed.ok()) return fail(kBadInput, arguments.trace + ": " + parsed.status().message());
  const uint64_t requests = parsed.value().trace.requests.size();
  if (requests < 100) return fail(kBadInput, "the demo needs a trace of at least 100 requests");
  const Scratch scratch(arguments.directory);
  if (scratch.path().empty()) {
    return fail(kBadInput, "no directory can be made in " + arguments.directory + ": " + scratch.why(),
                "--dir takes a directory that is there and may be written to");
  }
  const uint64_t disk_bytes = disk_for_demo(scratch.path());
  if (disk_bytes == 0) return fail(kFailed, "less than 128 MiB are free in " + arguments.directory, "choose another directory with --dir");
  if (disk_bytes < kDiskBytes) {
    std::fprintf(stderr, "demo: little space is free: the disk tier is %s\n", format_binary_size(static_cast<double>(disk_bytes)).c_str());
  }
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::mt19937_64 random(arguments.seed != 0 ? arguments.seed : std::random_device{}());
  const uint64_t kill_at = requests * (35 + random() % 30) / 100;
  const auto outcome = replay_with_a_kill(arguments, scratch.path() + "/tier", disk_bytes, requests, kill_at, output.json);
  if (interrupted != 0) return fail(kInterrupted, "interrupted");
  if (!outcome.ok()) return fail(outcome.status());
  const PolicyFigures policies = compare_policies(replay::make_paths(parsed.value().trace), 10'000);
  if (output.json) {
    print_json(outcome.value(), policies);
  } else {
    print_screen(arguments, requests, disk_bytes, outcome.value(), policies);
  }
  const uint64_t wrong = outcome.value().killed.last.wrong_blocks + number(outcome.value().resumed, "wrong_blocks");
  return wrong == 0 ? kDone : fail(kFailed, "wrong blocks came back", "this is a fault in kvbm; please report it");
}

}  // namespace

void add_demo(Registry& registry) {
  auto arguments = std::make_shared<Arguments>();
  arguments->directory = terminal::temp_directory();
  CLI::App& app = registry.add("demo", "Replay a trace through host and disk, kill -9 it in the middle, go on, and tell what was saved",
                               [arguments](const Output& output) { return run(*arguments, output); });
  app.add_option("--trace", arguments->trace, "Trace file of the Mooncake format")->required()->type_name("FILE");
  app.add_option("--dir", arguments->directory, "Where to put the disk tier; removed at the end")->type_name("DIR");
  app.add_option("--seed", arguments->seed, "Seed of the moment of the kill; 0 = another one each time")
      ->check(not_negative());
  app.footer("Example:\n  kvbm trace generate -o chat.jsonl && kvbm demo --trace chat.jsonl");
}

}  // namespace kvbm::command
