#include "command/store_arguments.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "policy/eviction.h"
#include "replay/policies.h"
#include "terminal/quantity.h"
#include "terminal/temp_directory.h"
#include "tier/disk/disk_tier.h"
#include "trace/read.h"

namespace kvbm::command {

namespace {

constexpr uint32_t kMostThreads = 64;

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Status read_sizes(const StoreArguments& arguments, replay::StoreOptions& options) {
  const struct {
    const std::string& text;
    uint64_t& value;
    const char* name;
  } sizes[] = {{arguments.host, options.host_bytes, "--host"},
               {arguments.block_bytes, options.block_bytes, "--block-bytes"}};
  for (const auto& size : sizes) {
    if (size.text.empty()) continue;
    const auto parsed = terminal::parse_size(size.text);
    if (!parsed.ok()) return {Code::invalid_argument, size.name, parsed.status().message()};
    size.value = parsed.value();
  }
  for (const std::string& text : parts_of(arguments.disk)) {
    const auto parsed = terminal::parse_size(text);
    if (!parsed.ok()) return {Code::invalid_argument, "--disk", parsed.status().message()};
    if (parsed.value() != 0) options.disks.push_back(parsed.value());
  }
  return {};
}

Status read_admissions(const std::string& text, std::vector<uint32_t>& out) {
  // Names in the order of KVBM_ADMIT_*.
  constexpr std::string_view kNames[] = {"all", "on_eviction", "after_uses", "frequency", "on_request"};
  for (const std::string& name : parts_of(text)) {
    const auto at = std::find(std::begin(kNames), std::end(kNames), name);
    if (at == std::end(kNames)) {
      return {Code::invalid_argument, "--admission",
              name + " is none of all, on_eviction, after_uses, frequency, on_request"};
    }
    out.push_back(static_cast<uint32_t>(at - std::begin(kNames)));
  }
  return {};
}

std::string counted(size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Refuses requests that no tier can fulfil, so that no option is silently ignored.
int check_tiers(const StoreArguments& arguments, const replay::StoreOptions& options) {
  if (options.disks.empty() && !arguments.disk_path.empty()) {
    return fail(kBadInput, "--disk-path: there is no disk tier to keep in " + arguments.disk_path,
                "give the disk tier a size, as --disk 1GiB, or leave out --disk-path");
  }
  if (options.disks.empty() && arguments.codec != "off") {
    return fail(kBadInput, "--codec: there is no disk tier whose records could be coded",
                "give the disk tier a size, as --disk 1GiB, or leave out --codec");
  }
  const size_t below = options.disks.size() + arguments.stores.size() + (arguments.plugin.empty() ? 0 : 1);
  if (options.admissions.size() > below) {
    return fail(kBadInput,
                "--admission: " + counted(options.admissions.size(), "name") + " for " + counted(below, "tier") +
                    " below the host",
                "one for each size of --disk, in order, one for each --store and one for --plugin");
  }
  return kDone;
}

// Refuses sizes here that the library would refuse with the names of its own options.
int check_sizes(const StoreArguments& arguments, const replay::StoreOptions& options) {
  constexpr uint64_t kMostBlock = uint64_t{1} << 31;
  if (options.block_bytes == 0 || options.block_bytes > kMostBlock) {
    return fail(kBadInput, "--block-bytes " + arguments.block_bytes + ": a block has 1 byte to 2 GiB");
  }
  if (!arguments.host.empty() && options.host_bytes <= options.block_bytes) {
    return fail(kBadInput,
                "--host " + arguments.host + " is smaller than one block and its head: --block-bytes is " +
                    arguments.block_bytes,
                "give a larger --host, or smaller --block-bytes");
  }
  const uint64_t least = tier::disk::least_disk_bytes();
  const uint64_t most = tier::disk::most_disk_bytes();
  for (const uint64_t bytes : options.disks) {
    if (bytes > most) {
      return fail(kBadInput,
                  "--disk " + arguments.disk + ": a disk tier has at most " + std::to_string(most >> 40) + "TiB",
                  "make several: --disk 16TiB,8TiB");
    }
    if (bytes >= least) continue;
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    return fail(kBadInput, "--disk " + arguments.disk + ": a disk tier has at least " +
                               std::to_string((least + kMiB - 1) / kMiB) + "MiB");
  }
  return kDone;
}

int check_policy(const std::string& name) {
  const auto known = policy::eviction_policy_names();
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return kDone;
  std::string hint = "policies: ";
  for (const std::string_view each : known) hint += std::string(each) + " ";
  const auto compared = replay::policy_names();
  if (name == "optimal" || name == "all" || std::find(compared.begin(), compared.end(), name) != compared.end()) {
    hint = "one of " + hint.substr(hint.find(' ') + 1) + "here; `kvbm replay` takes `" + name +
           "` with --capacity-blocks or --capacity-tokens";
  }
  return fail(kBadInput, "no eviction policy has this name: " + name, hint);
}

}  // namespace

void add_trace_arguments(Command app, TraceArguments& arguments) {
  app.add_option("TRACE", arguments.path, "Trace file").required();
  app.add_option("--format", arguments.format, "Form of the trace: " + std::string(trace::kFormNames))
      .type_name("NAME")
      .show_default();
  app.add_option("--block-tokens", arguments.block_tokens,
                 "Tokens of a block of the trace; 0 finds it out from the lengths")
      .type_name("N")
      .not_negative()
      .range(uint32_t{0}, uint32_t{1} << 20)
      .show_default();
  app.add_flag("--skip-bad", arguments.skip_bad, "Go on after bad lines, and count them");
}

void add_store_arguments(Command app, StoreArguments& arguments) {
  app.add_option("--host", arguments.host, "Host tier (default 256MiB)").type_name("SIZE");
  app.add_option("--disk", arguments.disk, "Disk tier, or several in order").type_name("SIZE,...");
  app.add_option("--admission", arguments.admission,
                 "Admission policy of each tier below the host, in order; tiers without one use `all`")
      .type_name("NAME,...");
  app.add_option("--block-bytes", arguments.block_bytes, "Bytes of a block").type_name("SIZE").show_default();
  app.add_option("--disk-path", arguments.disk_path,
                 "Directory of the disk tier; kept, so that the next run finds its blocks (the second one's: DIR-2)")
      .type_name("DIR");
  app.add_option("--codec", arguments.codec, "How records of the disk tier are coded: off, auto or a mode")
      .type_name("MODE")
      .show_default();
  app.add_option("--store", arguments.stores,
                 "A store below the disks, or several in order: s3://, redis://, mooncake://, file:// or plugin: "
                 "(docs/stores.md)")
      .type_name("URL");
  app.add_option("--plugin", arguments.plugin, "A last tier: a shared library with the symbol kvbm_plugin_table")
      .type_name("FILE");
  app.add_option("--peer", arguments.peers, "Addresses of nodes, with commas: blocks go to them, and theirs are found")
      .type_name("HOST:PORT,...");
  app.add_option("--threads", arguments.threads, "Engines at a time").show_default();
  app.add_option("--load-blocks", arguments.load_blocks,
                 "Blocks of one load, as of an engine that loads in parts; 0: all that a lookup found")
      .type_name("N")
      .not_negative()
      .show_default();
  app.add_flag(
      "--settle", arguments.settle,
      "After each request, wait until its blocks are written to disk: hit rates then depend on the sizes alone");
  app.add_option("--first", arguments.first, "Requests to pass over").type_name("N").not_negative();
  app.add_option("--limit", arguments.limit, "Requests to replay").type_name("N").not_negative();
}

int fail_trace(const std::string& path, const Status& why) {
  // The message already names an unreadable file, and such a file has no lines to skip.
  if (why.code() == Code::io_error) return fail(kBadInput, why.message());
  return fail(kBadInput, path + ": " + why.message(), "--skip-bad goes on after bad lines");
}

int fail_lengths_alone(const std::string& path, trace::Form form) {
  return fail(kBadInput,
              path + ": a trace of the form " + std::string(trace::name_of(form)) +
                  " has the lengths of prompts, and not which of them begin alike: hits of a cache cannot be computed",
              "`kvbm trace stat` shows what is in it; `kvbm trace generate` makes a trace with shared beginnings");
}

int read_any_trace(const TraceArguments& arguments, trace::Parsed& out) {
  trace::ParseOptions options;
  if (!trace::form_named(arguments.format, &options.form)) {
    return fail(kBadInput, "unknown trace format " + arguments.format, "one of " + std::string(trace::kFormNames));
  }
  options.skip_bad = arguments.skip_bad;
  options.tokens_per_block = arguments.block_tokens;
  auto parsed = trace::read(arguments.path, options);
  if (!parsed.ok()) return fail_trace(arguments.path, parsed.status());
  const trace::Parsed& read = parsed.value();
  for (const trace::BadLine& bad : read.bad) {
    std::fprintf(stderr, "kvbm: skipped %s %llu: %s\n", read.unit(), static_cast<unsigned long long>(bad.line),
                 bad.what.c_str());
  }
  if (read.bad_lines != 0) {
    std::fprintf(stderr, "kvbm: %llu bad %ss skipped\n", static_cast<unsigned long long>(read.bad_lines), read.unit());
  }
  if (read.trace.requests.empty()) return fail(kBadInput, arguments.path + " has no requests");
  out = std::move(parsed).value();
  return kDone;
}

int read_trace(const TraceArguments& arguments, trace::Trace& out) {
  trace::Parsed parsed;
  const int read = read_any_trace(arguments, parsed);
  if (read != kDone) return read;
  if (parsed.trace.lengths_alone) return fail_lengths_alone(arguments.path, parsed.form);
  out = std::move(parsed.trace);
  return kDone;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Status ScratchDirectory::make() {
  std::string name = (std::filesystem::path(terminal::temp_directory()) / "kvbm-replay-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    return {Code::io_error, "no temporary directory could be made", name + ": " + std::strerror(errno)};
  }
  path_ = name;
  return {};
}

int read_store_arguments(const StoreArguments& arguments, replay::StoreOptions& out) {
  const Status sizes = read_sizes(arguments, out);
  if (!sizes.ok()) return fail(kBadInput, sizes.message());
  const Status admissions = read_admissions(arguments.admission, out.admissions);
  if (!admissions.ok()) return fail(kBadInput, admissions.message());
  const int possible = check_sizes(arguments, out);
  if (possible != kDone) return possible;
  const int tiers = check_tiers(arguments, out);
  if (tiers != kDone) return tiers;
  const int policy = check_policy(arguments.policy);
  if (policy != kDone) return policy;
  if (arguments.threads == 0 || arguments.threads > kMostThreads) return fail(kBadInput, "--threads is 1 to 64");
  return kDone;
}

int make_store_options(const StoreArguments& arguments, uint64_t requests, ScratchDirectory& scratch,
                       replay::StoreOptions& out) {
  const int good = read_store_arguments(arguments, out);
  if (good != kDone) return good;
  if (arguments.first >= requests) {
    return fail(kBadInput, "--first " + std::to_string(arguments.first) + " passes over the whole trace",
                "it has " + std::to_string(requests) + " requests");
  }
  out.policy = arguments.policy;
  out.codec = arguments.codec;
  out.stores = arguments.stores;
  out.plugin = arguments.plugin;
  out.peers = arguments.peers;
  out.threads = arguments.threads;
  out.load_blocks = arguments.load_blocks;
  out.settle = arguments.settle;
  out.first = arguments.first;
  out.limit = arguments.limit;
  out.disk_path = arguments.disk_path;
  if (out.disks.empty() || !out.disk_path.empty()) return kDone;
  const Status made = scratch.make();
  if (!made.ok()) return fail(made, "give a directory with --disk-path");
  out.disk_path = scratch.tier();
  return kDone;
}

uint64_t requests_to_replay(const replay::StoreOptions& options, uint64_t requests) {
  return std::min(options.limit, requests - std::min(options.first, requests));
}

}  // namespace kvbm::command
