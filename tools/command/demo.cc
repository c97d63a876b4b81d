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

#include "command/store_arguments.h"
#include "replay/child_replay.h"
#include "replay/policy_replay.h"
#include "terminal/json_text.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"
#include "terminal/temp_directory.h"
#include "trace/read.h"

namespace kvbm::command {

namespace {

using terminal::format_binary_size;
using terminal::format_count;

constexpr uint64_t kBlockBytes = 64ULL << 10;
constexpr uint64_t kHostBytes = 512ULL << 20;
constexpr uint64_t kDiskBytes = 2ULL << 30;
constexpr uint64_t kLeastDiskBytes = 64ULL << 20;

struct DemoArguments {
  std::string trace;
  std::string directory;
  uint64_t seed = 0;
};

// A temporary directory, removed when the demo ends.
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
  [[nodiscard]] const std::string& why() const { return why_; }  // the reason if there is none

 private:
  std::string path_;
  std::string why_;
};

// Ctrl-C ends the child as well. The demo then ends in order, so that its directory is removed.
volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int /*signal*/) { interrupted = 1; }

// Returns half of the free space, at most what the demo wants; 0 if that is too little.
uint64_t disk_for_demo(const std::string& directory) {
  struct statvfs space {};
  if (statvfs(directory.c_str(), &space) != 0) return 0;
  const uint64_t half = static_cast<uint64_t>(space.f_bavail) * space.f_frsize / 2;
  return half < kLeastDiskBytes ? 0 : std::min(half, kDiskBytes);
}

// Arguments of the replay. It uses --settle, because an engine takes hours for what is replayed in seconds here, and
// its disk keeps up.
std::vector<std::string> replay_arguments(const DemoArguments& arguments, const std::string& tier, uint64_t disk_bytes,
                                          uint64_t first) {
  return {"replay",         arguments.trace,
          "--host",         std::to_string(kHostBytes),
          "--disk",         std::to_string(disk_bytes),
          "--disk-path",    tier,
          "--block-bytes",  std::to_string(kBlockBytes),
          "--verify",       "--json",
          "--first",        std::to_string(first),
          "--report-every", "8",
          "--settle"};
}

struct Outcome {
  replay::ChildEnd killed;
  nlohmann::json resumed;
};

// Replays until `kill_at` requests, kills the process, and continues in a new process on the same directory.
Result<Outcome> replay_with_a_kill(const DemoArguments& arguments, const std::string& tier, uint64_t disk_bytes,
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
  auto second =
      replay::run_child(replay_arguments(arguments, tier, disk_bytes, done), [&](const replay::StoreProgress& p) {
        progress.set(done + p.requests);
        return interrupted == 0;
      });
  progress.finish();
  if (interrupted != 0) return Status(Code::cancelled, "interrupted");
  if (!second.ok()) return second.status();
  if (second.value().exit_code != 0) {
    return Status(Code::internal, "the replay after the kill failed", second.value().complaints);
  }
  outcome.resumed = nlohmann::json::parse(second.value().output, nullptr, false);
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

uint64_t number(const nlohmann::json& object, const char* key) { return object.at(key).get<uint64_t>(); }

std::string percent_of(uint64_t part, uint64_t whole) {
  char text[32];
  const double share = whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}
// Formats 512 MiB, not 512.00 MiB.
std::string short_size(uint64_t bytes) {
  std::string text = format_binary_size(static_cast<double>(bytes));
  const size_t at = text.find(".00 ");
  if (at != std::string::npos) text.erase(at, 3);
  return text;
}

// Prints a number and its meaning.
void print_count(uint64_t count, const std::string& meaning) {
  std::printf("%12s  %s\n", format_count(count).c_str(), meaning.c_str());
}
void print_percent(double percent, const std::string& meaning) {
  std::printf("%10.2f %%  %s\n", percent, meaning.c_str());
}

void print_tiers(const nlohmann::json& tiers) {
  std::printf("\nWhere they came from, after the kill\n");
  for (const nlohmann::json& tier : tiers) {
    print_count(number(tier, "hits"), (number(tier, "tier") == 0 ? "from host memory: " : "from disk: ") +
                                          short_size(number(tier, "load_bytes")) + " read, " +
                                          short_size(number(tier, "store_bytes")) + " written, " +
                                          short_size(number(tier, "used_bytes")) + " of " +
                                          short_size(number(tier, "capacity_bytes")) + " in use at the end");
  }
}

void print_policies(const PolicyFigures& policies) {
  std::printf("\nShare of all blocks that a cache of %s blocks returns, by eviction policy (no bytes moved)\n",
              format_count(policies.blocks).c_str());
  print_percent(policies.ours.hit_rate, policies.ours.policy + ": the policy of kvbm if no other is chosen");
  print_percent(policies.lru.hit_rate, "lru: what was not used for longest goes first");
  print_percent(policies.optimal.hit_rate, "the best possible, which would have to know the requests to come");
  print_percent(policies.unlimited.hit_rate, "a cache without limit, which lets nothing go");
}

void print_screen(const DemoArguments& arguments, const trace::Trace& trace, uint64_t disk_bytes,
                  const Outcome& outcome, const PolicyFigures& policies) {
  const replay::StoreProgress& before = outcome.killed.last;
  const nlohmann::json& after = outcome.resumed;
  const uint64_t refs = before.block_refs + number(after, "block_refs");
  const uint64_t hits = before.hits + number(after, "hits");
  const uint64_t tokens = before.tokens + number(after, "tokens");
  const uint64_t saved = before.tokens_saved + number(after, "tokens_saved");
  const uint64_t verified = before.verified_blocks + number(after, "verified_blocks");
  const uint64_t wrong = before.wrong_blocks + number(after, "wrong_blocks");
  const uint64_t skipped = number(after, "offloads_skipped");

  std::printf("\nkvbm demo: %s\n", arguments.trace.c_str());
  std::printf("\nThrough host memory of %s and a disk of %s, killed in the middle\n", short_size(kHostBytes).c_str(),
              short_size(disk_bytes).c_str());
  print_count(trace.requests.size(), "requests");
  print_count(refs, "blocks in their prompts, of " + format_count(trace.tokens_per_block) + " tokens each; one is " +
                        short_size(kBlockBytes) + " here");
  print_count(policies.unlimited.hits,
              "of these repeat an earlier block: a cache that lets nothing go would return them all");
  print_count(hits, "came back (" + percent_of(hits, policies.unlimited.hits) + " of the repeated ones): " +
                        percent_of(saved, tokens) + " of the prompt tokens are not computed again");
  print_count(verified, "compared byte for byte with what was stored: " + format_count(wrong) + " wrong");
  print_count(before.requests, "requests were done at the kill -9; a new process went on in the same directory");
  print_count(number(after, "found_again"), "blocks from before the kill came back to the new process");
  if (skipped != 0) print_count(skipped, "blocks found the queue to the disk full and could not come back later");
  print_tiers(after.at("tiers"));
  print_policies(policies);
}

void print_json(const Outcome& outcome, const PolicyFigures& policies) {
  const replay::StoreProgress& p = outcome.killed.last;
  const nlohmann::ordered_json out{
      {"killed_after_requests", p.requests},
      {"before_kill",
       {{"block_refs", p.block_refs},
        {"hits", p.hits},
        {"verified_blocks", p.verified_blocks},
        {"wrong_blocks", p.wrong_blocks}}},
      {"after_kill", nlohmann::ordered_json(outcome.resumed)},  // explicit type for nlohmann-json 3.10 (Ubuntu 22.04)
      {"policies",
       {{"capacity_blocks", policies.blocks},
        {"default", policies.ours.hit_rate},
        {"lru", policies.lru.hit_rate},
        {"optimal", policies.optimal.hit_rate},
        {"unlimited", policies.unlimited.hit_rate}}}};
  std::printf("%s\n", terminal::json_text(out).c_str());
}

int run(const DemoArguments& arguments, const Output& output) {
  TraceArguments which;
  which.path = arguments.trace;
  trace::Trace trace;
  const int read = read_trace(which, trace);
  if (read != kDone) return read;
  const uint64_t requests = trace.requests.size();
  if (requests < 100) return fail(kBadInput, "the demo needs a trace of at least 100 requests");
  const Scratch scratch(arguments.directory);
  if (scratch.path().empty()) {
    return fail(kBadInput, "no directory can be made in " + arguments.directory + ": " + scratch.why(),
                "--dir takes a directory that is there and may be written to");
  }
  const uint64_t disk_bytes = disk_for_demo(scratch.path());
  if (disk_bytes == 0)
    return fail(kFailed, "less than 128 MiB are free in " + arguments.directory, "choose another directory with --dir");
  if (disk_bytes < kDiskBytes) {
    std::fprintf(stderr, "demo: little space is free: the disk tier is %s\n",
                 format_binary_size(static_cast<double>(disk_bytes)).c_str());
  }
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::mt19937_64 random(arguments.seed != 0 ? arguments.seed : std::random_device{}());
  const uint64_t kill_at = requests * (35 + random() % 30) / 100;
  const auto outcome =
      replay_with_a_kill(arguments, scratch.path() + "/tier", disk_bytes, requests, kill_at, output.json);
  if (interrupted != 0) return fail(kInterrupted, "interrupted");
  if (!outcome.ok()) return fail(outcome.status());
  const PolicyFigures policies = compare_policies(replay::make_paths(trace), 10'000);
  if (output.json) {
    print_json(outcome.value(), policies);
  } else {
    print_screen(arguments, trace, disk_bytes, outcome.value(), policies);
  }
  const uint64_t wrong = outcome.value().killed.last.wrong_blocks + number(outcome.value().resumed, "wrong_blocks");
  return wrong == 0 ? kDone : fail(kFailed, "wrong blocks came back", "this is a fault in kvbm; please report it");
}

}  // namespace

void add_demo(Registry& registry) {
  auto arguments = std::make_shared<DemoArguments>();
  arguments->directory = terminal::temp_directory();
  Command app = registry.add(
      "demo", "Replay a trace through host and disk, kill -9 it in the middle, go on, and report what was saved",
      [arguments](const Output& output) { return run(*arguments, output); });
  app.add_option("--trace", arguments->trace, "Trace file, of any form that `kvbm replay` reads")
      .required()
      .type_name("FILE");
  app.add_option("--dir", arguments->directory, "Where to put the disk tier; removed at the end").type_name("DIR");
  app.add_option("--seed", arguments->seed, "Seed of the moment of the kill; 0 = another one each time").not_negative();
  app.footer("Example:\n  kvbm trace generate -o chat.jsonl && kvbm demo --trace chat.jsonl");
}

}  // namespace kvbm::command
