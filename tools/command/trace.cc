#include "command/trace.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "command/store_arguments.h"
#include "replay/policy_replay.h"
#include "terminal/json_text.h"
#include "terminal/quantity.h"
#include "terminal/table.h"
#include "trace/generate.h"
#include "trace/mooncake.h"

namespace kvbm::command {

namespace {

struct GenerateArguments {
  std::string workload = "chat";
  uint32_t requests = 12000;
  uint32_t duration_s = 3600;
  uint64_t seed = 1;
  std::string file;
};

int generate(const GenerateArguments& arguments, const Output& output) {
  trace::GenerateOptions options;
  const auto workload = trace::workload_named(arguments.workload);
  if (!workload.has_value()) {
    return fail(kBadInput, "unknown workload " + arguments.workload, "one of chat, agent, retrieval, mixed");
  }
  options.workload = *workload;
  options.requests = arguments.requests;
  options.duration_s = arguments.duration_s;
  options.seed = arguments.seed;
  const auto made = trace::generate(options);
  if (!made.ok()) return fail(made.status());
  const std::string text = trace::to_mooncake(made.value());
  if (arguments.file.empty()) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? kDone
                                                                            : fail(kFailed, "the trace could not be written");
  }
  std::ofstream file(arguments.file, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return fail(kFailed, "cannot write " + arguments.file, "check the directory and the space on it");
  if (output.json) {
    std::printf("%s\n", terminal::json_text(nlohmann::ordered_json{{"file", arguments.file}, {"requests", made.value().requests.size()}}).c_str());
  } else {
    std::printf("%zu requests in %s\n", made.value().requests.size(), arguments.file.c_str());
  }
  return kDone;
}

int stat(const std::string& file, bool skip_bad, const Output& output) {
  trace::ParseOptions options;
  options.skip_bad = skip_bad;
  const auto parsed = trace::read_mooncake(file, options);
  if (!parsed.ok()) return fail_trace(file, parsed.status());
  const trace::Trace& t = parsed.value().trace;
  const replay::PathTrace paths = replay::make_paths(t);
  const replay::PolicyResult unlimited = replay::replay_unlimited(paths);
  uint64_t tokens = 0;
  for (const trace::Request& request : t.requests) tokens += request.input_length;
  // Of traces that were put together the lines may not be in the order of their times.
  const auto [first, last] = std::minmax_element(t.requests.begin(), t.requests.end(), [](const auto& a, const auto& b) {
    return a.timestamp_ms < b.timestamp_ms;
  });
  const uint64_t span_ms = t.requests.empty() ? 0 : last->timestamp_ms - first->timestamp_ms;
  if (output.json) {
    const nlohmann::ordered_json out{{"requests", t.requests.size()},   {"seconds", static_cast<double>(span_ms) / 1000},
                                     {"block_refs", t.hash_ids.size()}, {"distinct_blocks", paths.parent.size()},
                                     {"input_tokens", tokens},          {"unlimited_hits", unlimited.hits},
                                     {"unlimited_hit_rate", unlimited.hit_rate}, {"bad_lines", parsed.value().bad_lines}};
    std::printf("%s\n", out.dump(2).c_str());
    return kDone;
  }
  terminal::Table table({{"what"}, {"value", terminal::Align::right}});
  table.add_row({"requests", terminal::format_count(t.requests.size())});
  table.add_row({"time covered", terminal::format_duration(static_cast<double>(span_ms) / 1000)});
  table.add_row({"prompt tokens", terminal::format_count(tokens)});
  table.add_row({"block references", terminal::format_count(t.hash_ids.size())});
  table.add_row({"distinct blocks", terminal::format_count(paths.parent.size())});
  char rate[32];
  std::snprintf(rate, sizeof rate, "%.2f %%", unlimited.hit_rate);
  table.add_row({"an unlimited cache hits", rate});
  table.add_row({"bad lines", terminal::format_count(parsed.value().bad_lines)});
  std::fputs(table.render().c_str(), stdout);
  return kDone;
}

}  // namespace

void add_trace(Registry& registry) {
  Command group = registry.add_group("trace", "Make and describe request traces of the Mooncake format");
  auto arguments = std::make_shared<GenerateArguments>();
  Command make = registry.add(group, "generate", "Write a generated trace; the same seed gives the same bytes",
                              [arguments](const Output& output) { return generate(*arguments, output); });
  make.add_option("--workload", arguments->workload, "chat, agent, retrieval or mixed").show_default();
  make.add_option("--requests", arguments->requests, "Requests").show_default();
  make.add_option("--duration", arguments->duration_s, "Seconds that the sessions start in").show_default();
  make.add_option("--seed", arguments->seed, "Seed").not_negative().show_default();
  make.add_option("-o,--output", arguments->file, "File to write; standard output if not given").type_name("FILE");
  make.footer("Example:\n  kvbm trace generate --workload agent --requests 5000 -o agent.jsonl");

  struct StatArguments {
    std::string file;
    bool skip_bad = false;
  };
  auto which = std::make_shared<StatArguments>();
  Command describe = registry.add(group, "stat", "Requests, tokens, blocks and the reuse that a trace offers",
                                  [which](const Output& output) { return stat(which->file, which->skip_bad, output); });
  describe.add_option("TRACE", which->file, "Trace file").required();
  describe.add_flag("--skip-bad", which->skip_bad, "Go on after bad lines, and count them");
}

}  // namespace kvbm::command
