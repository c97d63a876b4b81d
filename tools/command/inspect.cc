#include "command/inspect.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "node/node_stats.h"
#include "terminal/json_text.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"
#include "tier/disk/inspect.h"

namespace kvbm::command {

namespace {

using Json = nlohmann::ordered_json;
using terminal::Align;
using terminal::format_count;
using terminal::format_size;
using tier::disk::InspectReport;
using tier::disk::SegmentReport;

// Heads that are read of each segment to show its coding, if the segment is not read completely: a page each, beside
// a table that names thousands of records.
constexpr uint64_t kStatsHeads = 16;
constexpr uint64_t kInspectHeads = 1024;

struct InspectOptions {
  std::string dir;
  bool verify = false;
  std::string node;  // address of a node's pages, instead of a directory
  double timeout = 5;
};

struct FamilyUse {
  uint64_t records = 0;
  uint64_t payload_bytes = 0;
  uint64_t damaged = 0;
};

// Uses of a record as its writer knew them, counted as none, one, two to three, four to seven, more.
constexpr std::array<const char*, 5> kHeatNames{"0", "1", "2-3", "4-7", "8+"};
using Heat = std::array<uint64_t, kHeatNames.size()>;
size_t heat_of(uint32_t uses) { return uses == 0 ? 0 : uses == 1 ? 1 : uses < 4 ? 2 : uses < 8 ? 3 : 4; }

struct Walk {
  InspectReport report;
  std::map<Family, FamilyUse> families;
  Heat heat{};
};

template <size_t kBytes>
std::string hex(const std::array<uint8_t, kBytes>& bytes) {
  std::string text;
  char two[3];
  for (const uint8_t byte : bytes) {
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

std::string shard_text(const Shard& shard) {
  if (shard == Shard{}) return "whole";
  return "layers " + std::to_string(shard.first_layer) + "+" + std::to_string(shard.layers) + ", heads " +
         std::to_string(shard.first_head) + "+" + std::to_string(shard.heads) +
         (shard.replicated != 0 ? ", replicated" : "");
}

Result<Walk> walk(const std::string& dir, bool verify, uint64_t heads, bool quiet) {
  auto threads = ThreadExecutor::create("inspect", 1);
  if (!threads.ok()) return threads.status();
  auto files = make_os_file_system(*threads.value());
  if (!files.ok()) return files.status();
  Walk out;
  terminal::Progress progress(verify ? "verifying" : "reading", 0, terminal::Unit::items, quiet);
  auto report = tier::disk::inspect(
      *files.value(), dir, verify, heads, [&progress](uint64_t done, uint64_t) { progress.set(done); },
      [&out](const SegmentReport&, const tier::disk::Row& row, bool damaged) {
        FamilyUse& family = out.families[row.family];
        ++family.records;
        family.payload_bytes += row.payload_bytes;
        family.damaged += damaged ? 1 : 0;
        ++out.heat[heat_of(row.uses)];
      });
  progress.finish();
  if (!report.ok()) return report.status();
  out.report = std::move(report).value();
  return out;
}

// Reports a path that is no tier directory, or has a newer format, as bad input.
int refuse_directory(const Status& status, const std::string& dir) {
  switch (status.code()) {
    case Code::newer_version:
      return fail(kBadInput, dir + ": " + status.message(), "inspect it with the version of kvbm that wrote it");
    case Code::damaged:
      return fail(kFailed, dir + ": " + status.message(),
                  "its superblock is lost; an owner refuses it too: use a new directory");
    case Code::not_permitted:
      return fail(kBadInput, dir + ": " + status.message(), "run as the user that owns the tier");
    default:
      return fail(kBadInput, dir + ": " + status.message(),
                  "give the directory of a disk tier (the `path` of a [[tier]])");
  }
}

// The names are those of /tiers.
Json coding_json(const tier::disk::CodingReport& coding) {
  Json ratio = nullptr;
  if (coding.stored_bytes != 0) {
    ratio = static_cast<double>(coding.plain_bytes) / static_cast<double>(coding.stored_bytes);
  }
  Json keys = Json::array();
  for (const auto& [id, records] : coding.keys) keys.push_back({{"id", id}, {"records", records}});
  return Json{{"heads_read", coding.heads},
              {"coded", coding.coded},
              {"left_plain", coding.heads - coding.coded},
              {"lossy", coding.lossy},
              {"ratio", std::move(ratio)},
              {"saved_bytes", static_cast<int64_t>(coding.plain_bytes) - static_cast<int64_t>(coding.stored_bytes)},
              {"sealed_records", coding.sealed},
              {"keys", std::move(keys)}};
}

// Returns "coding: 40 of 40 records, 1.48x, 2 lossy; 40 sealed (key 7)".
std::string coding_text(const tier::disk::CodingReport& coding, uint64_t records) {
  if (coding.coded == 0 && coding.sealed == 0) return "coding: none";
  std::string out = "coding: " + format_count(coding.coded) + " of " + format_count(coding.heads) + " records";
  if (coding.heads < records) out += " looked at";
  if (coding.plain_bytes > coding.stored_bytes) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, ", %.2fx",
                  static_cast<double>(coding.plain_bytes) / static_cast<double>(coding.stored_bytes));
    out += ratio;
  }
  if (coding.lossy != 0) out += ", " + format_count(coding.lossy) + " lossy";
  if (coding.sealed == 0) return out;
  out += "; " + format_count(coding.sealed) + " sealed (" + (coding.keys.size() == 1 ? "key" : "keys");
  for (const auto& [id, sealed] : coding.keys) out += " " + std::to_string(id);
  return out + ")";
}

bool is_free(const SegmentReport& segment) {
  return segment.records == 0 && segment.damaged == 0 && segment.state == "free";
}
size_t free_segments(const InspectReport& report) {
  return static_cast<size_t>(std::count_if(report.segments.begin(), report.segments.end(), is_free));
}

// Returns "capacity: 1.07 GB (1.00 GiB), as its owner was given it; files 21 % of it".
std::string capacity_text(const InspectReport& report) {
  const uint64_t capacity = report.superblock.capacity_bytes;
  if (capacity == 0) return "capacity: not written down; its next owner will";
  char share[64];
  std::snprintf(share, sizeof share, "; files %.0f %% of it",
                100 * static_cast<double>(report.file_bytes) / static_cast<double>(capacity));
  return "capacity: " + format_size(static_cast<double>(capacity)) + ", as its owner was given it" + share;
}

Json summary(const Walk& walk, bool verified) {
  const InspectReport& report = walk.report;
  const uint64_t capacity = report.superblock.capacity_bytes;
  return Json{{"records", report.records},
              {"damaged", report.damaged},
              {"verified", verified},
              {"payload_bytes", report.payload_bytes},
              {"file_bytes", report.file_bytes},
              {"segments", report.segments.size()},
              {"free_segments", free_segments(report)},
              {"capacity_bytes", capacity == 0 ? Json(nullptr) : Json(capacity)},
              {"in_use", report.in_use},
              {"opened", report.superblock.epoch},
              {"coding", coding_json(report.coding)}};
}

Json json_of(const Walk& walk, bool verified) {
  Json out = summary(walk, verified);
  out["foreign_files"] = walk.report.foreign;
  out["segments"] = Json::array();
  for (const SegmentReport& s : walk.report.segments) {
    out["segments"].push_back({{"number", s.number},
                               {"state", s.state},
                               {"generation", s.generation},
                               {"sequence", s.sequence},
                               {"records", s.records},
                               {"damaged", s.damaged},
                               {"record_bytes", s.record_bytes},
                               {"uses", s.uses}});
  }
  out["families"] = Json::array();
  for (const auto& [family, use] : walk.families) {
    out["families"].push_back({{"namespace", hex(family.ns.bytes)},
                               {"component", family.component},
                               {"shard", shard_text(family.shard)},
                               {"records", use.records},
                               {"damaged", use.damaged},
                               {"payload_bytes", use.payload_bytes}});
  }
  for (size_t i = 0; i < kHeatNames.size(); ++i) out["heat"][kHeatNames[i]] = walk.heat[i];
  return out;
}

void print_summary(const Walk& walk, bool verified) {
  const InspectReport& report = walk.report;
  std::printf("%s records, %s of payload in %zu segments of %s, %zu of them free; files %s\n",
              format_count(report.records).c_str(), format_size(static_cast<double>(report.payload_bytes)).c_str(),
              report.segments.size(), format_size(static_cast<double>(report.superblock.segment_bytes)).c_str(),
              free_segments(report), format_size(static_cast<double>(report.file_bytes)).c_str());
  std::printf("%s\n", capacity_text(report).c_str());
  std::printf(
      "damaged: %s (%s)\n", format_count(report.damaged).c_str(),
      verified ? "every byte of closed segments was checked" : "tables alone were checked; --verify reads every byte");
  std::printf("%s\n", coding_text(report.coding, report.records).c_str());
  if (report.in_use) std::printf("the directory is in use: data that is being written may show as damage\n");
  for (const std::string& name : report.foreign) std::printf("foreign file: %s\n", name.c_str());
}

void print_tables(const Walk& walk) {
  terminal::Table segments({{"segment", Align::right},
                            {"state"},
                            {"records", Align::right},
                            {"damaged", Align::right},
                            {"bytes", Align::right},
                            {"uses a record", Align::right}});
  for (const SegmentReport& s : walk.report.segments) {
    if (is_free(s)) continue;
    char uses[32];
    std::snprintf(uses, sizeof uses, "%.2f",
                  s.records == 0 ? 0.0 : static_cast<double>(s.uses) / static_cast<double>(s.records));
    segments.add_row({std::to_string(s.number), s.state, format_count(s.records), format_count(s.damaged),
                      format_size(static_cast<double>(s.record_bytes)), uses});
  }
  std::printf("\n%s", segments.render().c_str());
  const size_t unlisted = free_segments(walk.report);
  if (unlisted != 0) std::printf("and %zu free %s\n", unlisted, unlisted == 1 ? "segment" : "segments");
  terminal::Table families({{"namespace"},
                            {"component", Align::right},
                            {"shard"},
                            {"records", Align::right},
                            {"damaged", Align::right},
                            {"payload", Align::right}});
  for (const auto& [family, use] : walk.families) {
    families.add_row({hex(family.ns.bytes), std::to_string(family.component), shard_text(family.shard),
                      format_count(use.records), format_count(use.damaged),
                      format_size(static_cast<double>(use.payload_bytes))});
  }
  std::printf("\n%s", families.render().c_str());
  std::printf("\nrecords by uses when they were written:");
  for (size_t i = 0; i < kHeatNames.size(); ++i) {
    std::printf("  %s: %s", kHeatNames[i], format_count(walk.heat[i]).c_str());
  }
  std::printf("\n");
}

// Damage found by a verification is a failure, so that scripts see it.
int run_inspect(const InspectOptions& options, const Output& output) {
  const uint64_t heads = options.verify ? UINT64_MAX : kInspectHeads;
  const Result<Walk> found = walk(options.dir, options.verify, heads, output.json);
  if (!found.ok()) return refuse_directory(found.status(), options.dir);
  if (output.json) {
    std::printf("%s\n", terminal::json_text(json_of(found.value(), options.verify)).c_str());
  } else {
    print_summary(found.value(), options.verify);
    print_tables(found.value());
  }
  const InspectReport& report = found.value().report;
  return options.verify && report.damaged != 0 && !report.in_use ? kFailed : kDone;
}

// Only a running manager knows what it has decided and refused.
int run_node_stats(const InspectOptions& options, const Output& output) {
  const auto stats = node::read_node_stats(options.node, static_cast<uint64_t>(options.timeout * 1e9));
  if (!stats.ok()) return fail(stats.status(), "give the address that `kvbm node --http` prints when it starts");
  if (output.json) {
    std::printf("%s\n", terminal::json_text(stats.value()).c_str());
  } else {
    std::fputs(node::node_stats_text(stats.value()).c_str(), stdout);
  }
  return kDone;
}

int run_stats(const InspectOptions& options, const Output& output) {
  if (options.dir.empty() == options.node.empty()) {
    return fail(kBadInput, "give either a directory or --node", "kvbm stats /mnt/nvme/kvbm");
  }
  if (!options.node.empty()) return run_node_stats(options, output);
  const Result<Walk> found = walk(options.dir, false, kStatsHeads, output.json);
  if (!found.ok()) return refuse_directory(found.status(), options.dir);
  if (output.json) {
    std::printf("%s\n", terminal::json_text(summary(found.value(), false)).c_str());
  } else {
    print_summary(found.value(), false);
  }
  return kDone;
}

Option add_dir(Command app, InspectOptions& options) {
  return app.add_option("DIR", options.dir, "Directory of a disk tier").type_name("");
}

}  // namespace

void add_inspect(Registry& registry) {
  auto options = std::make_shared<InspectOptions>();
  Command app = registry.add("inspect", "What a tier directory holds: records, damage, heat",
                             [options](const Output& output) { return run_inspect(*options, output); });
  add_dir(app, *options).required();
  app.add_flag("--verify", options->verify, "Read every record and check every byte; exit code 1 if one is damaged");
  app.footer("Nothing is changed. Example:\n  kvbm inspect /mnt/nvme/kvbm --verify");
}

void add_stats(Registry& registry) {
  auto options = std::make_shared<InspectOptions>();
  Command app = registry.add("stats", "Show usage and compression of a tier directory, or of a running node",
                             [options](const Output& output) { return run_stats(*options, output); });
  add_dir(app, *options);
  app.add_option("--node", options->node, "In place of a directory: where a `kvbm node --http` has its pages")
      .type_name("HOST:PORT");
  app.add_option("--timeout", options->timeout, "Seconds to wait for the node")
      .type_name("SECONDS")
      .range(0.01, 3600.0)
      .show_default();
  app.footer(
      "How a directory is coded is read from up to 16 records of each segment (inspect: 1,024). Settings, what auto\n"
      "has decided and what was refused are known to a running manager alone: --node shows those of a node; other\n"
      "programs call kvbm_manager_stats and kvbm_manager_metrics.\n"
      "Examples:\n  kvbm stats /mnt/nvme/kvbm --json\n  kvbm stats --node 127.0.0.1:9400");
}

}  // namespace kvbm::command
