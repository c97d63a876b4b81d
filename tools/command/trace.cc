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
#include "trace/read.h"

namespace kvbm::command {

namespace {

struct GenerateArguments {
  std::string workload = "chat";
  uint32_t requests = 12000;
  uint32_t duration_s = 3600;
  uint64_t seed = 1;
  std::string file;
};

// Writes to `path`, or to standard output if it is empty.
int write_trace(const std::string& text, const trace::Trace& trace, const std::string& path, const Output& output) {
  if (path.empty()) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size()
               ? kDone
               : fail(kFailed, "the trace could not be written");
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return fail(kFailed, "cannot write " + path, "check the directory and the space on it");
  if (output.json) {
    const nlohmann::ordered_json out{
        {"file", path}, {"requests", trace.requests.size()}, {"block_tokens", trace.tokens_per_block}};
    std::printf("%s\n", terminal::json_text(out).c_str());
  } else {
    std::printf("%zu requests in %s, blocks of %u tokens\n", trace.requests.size(), path.c_str(),
                trace.tokens_per_block);
  }
  return kDone;
}

int convert(const TraceArguments& arguments, const std::string& file, const Output& output) {
  trace::Trace trace;
  const int read = read_trace(arguments, trace);
  if (read != kDone) return read;
  const std::string text = trace::to_mooncake(trace);
  // A later reader of this trace may need --block-tokens.
  const auto again = trace::parse(text, {});
  if (!again.ok() || again.value().trace.tokens_per_block != trace.tokens_per_block) {
    std::fprintf(stderr, "kvbm: the block size does not follow from the lengths: replay it with --block-tokens %u\n",
                 trace.tokens_per_block);
  }
  return write_trace(text, trace, file, output);
}

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
  return write_trace(text, made.value(), arguments.file, output);
}

// Reports a trace with lengths alone, without blocks, which it does not have.
int stat_lengths(const trace::Parsed& parsed, uint64_t tokens, uint64_t answered, uint64_t span_ms,
                 const Output& output) {
  constexpr const char* kUnsaid = "it has no record of which prompts begin alike: no blocks, reuse or hit rates";
  if (output.json) {
    const nlohmann::ordered_json out{{"form", trace::name_of(parsed.form)},
                                     {"requests", parsed.trace.requests.size()},
                                     {"seconds", static_cast<double>(span_ms) / 1000},
                                     {"input_tokens", tokens},
                                     {"output_tokens", answered},
                                     {"bad_lines", parsed.bad_lines},
                                     {"note", kUnsaid}};
    std::printf("%s\n", out.dump(2).c_str());
    return kDone;
  }
  terminal::Table table({{"what"}, {"value", terminal::Align::right}});
  table.add_row({"form", std::string(trace::name_of(parsed.form))});
  table.add_row({"requests", terminal::format_count(parsed.trace.requests.size())});
  table.add_row({"time covered", terminal::format_duration(static_cast<double>(span_ms) / 1000)});
  table.add_row({"prompt tokens", terminal::format_count(tokens)});
  table.add_row({"answered tokens", terminal::format_count(answered)});
  table.add_row({"bad lines", terminal::format_count(parsed.bad_lines)});
  std::printf("%s%s\n", table.render().c_str(), kUnsaid);
  return kDone;
}

int stat(const TraceArguments& arguments, const Output& output) {
  trace::Parsed parsed;
  const int read = read_any_trace(arguments, parsed);
  if (read != kDone) return read;
  const trace::Trace& t = parsed.trace;
  uint64_t tokens = 0;
  uint64_t answered = 0;
  for (const trace::Request& request : t.requests) {
    tokens += request.input_length;
    answered += request.output_length;
  }
  // In concatenated traces the lines may not be in the order of their times.
  const auto [first, last] =
      std::minmax_element(t.requests.begin(), t.requests.end(),
                          [](const auto& a, const auto& b) { return a.timestamp_ms < b.timestamp_ms; });
  const uint64_t span_ms = last->timestamp_ms - first->timestamp_ms;
  if (t.lengths_alone) return stat_lengths(parsed, tokens, answered, span_ms, output);
  const replay::PathTrace paths = replay::make_paths(t);
  const replay::PolicyResult unlimited = replay::replay_unlimited(paths);
  if (output.json) {
    const nlohmann::ordered_json out{{"requests", t.requests.size()},
                                     {"seconds", static_cast<double>(span_ms) / 1000},
                                     {"block_refs", t.hash_ids.size()},
                                     {"distinct_blocks", paths.parent.size()},
                                     {"input_tokens", tokens},
                                     {"unlimited_hits", unlimited.hits},
                                     {"unlimited_hit_rate", unlimited.hit_rate},
                                     {"bad_lines", parsed.bad_lines},
                                     {"form", trace::name_of(parsed.form)},
                                     {"block_tokens", t.tokens_per_block}};
    std::printf("%s\n", out.dump(2).c_str());
    return kDone;
  }
  terminal::Table table({{"what"}, {"value", terminal::Align::right}});
  table.add_row({"requests", terminal::format_count(t.requests.size())});
  table.add_row({"time covered", terminal::format_duration(static_cast<double>(span_ms) / 1000)});
  table.add_row({"prompt tokens", terminal::format_count(tokens)});
  table.add_row({"tokens of a block", terminal::format_count(t.tokens_per_block)});
  table.add_row({"block references", terminal::format_count(t.hash_ids.size())});
  table.add_row({"distinct blocks", terminal::format_count(paths.parent.size())});
  char rate[32];
  std::snprintf(rate, sizeof rate, "%.2f %%", unlimited.hit_rate);
  table.add_row({"an unlimited cache hits", rate});
  table.add_row({"bad lines", terminal::format_count(parsed.bad_lines)});
  std::fputs(table.render().c_str(), stdout);
  return kDone;
}

}  // namespace

void add_trace(Registry& registry) {
  Command group = registry.add_group("trace", "Make, describe and convert traces of requests");
  auto arguments = std::make_shared<GenerateArguments>();
  Command make = registry.add(group, "generate", "Write a generated trace; the same seed gives the same bytes",
                              [arguments](const Output& output) { return generate(*arguments, output); });
  make.add_option("--workload", arguments->workload, "chat, agent, retrieval or mixed").show_default();
  make.add_option("--requests", arguments->requests, "Requests").show_default();
  make.add_option("--duration", arguments->duration_s, "Seconds that the sessions start in").show_default();
  make.add_option("--seed", arguments->seed, "Seed").not_negative().show_default();
  make.add_option("-o,--output", arguments->file, "File to write; standard output if not given").type_name("FILE");
  make.footer("Example:\n  kvbm trace generate --workload agent --requests 5000 -o agent.jsonl");

  auto which = std::make_shared<TraceArguments>();
  Command describe = registry.add(group, "stat", "Requests, tokens, blocks and the reuse that a trace offers",
                                  [which](const Output& output) { return stat(*which, output); });
  add_trace_arguments(describe, *which);

  struct ConvertArguments {
    TraceArguments trace;
    std::string file;
  };
  auto what = std::make_shared<ConvertArguments>();
  Command rewrite = registry.add(group, "convert", "Write any trace that is read here as the JSON lines of Mooncake's",
                                 [what](const Output& output) { return convert(what->trace, what->file, output); });
  add_trace_arguments(rewrite, what->trace);
  rewrite.add_option("-o,--output", what->file, "File to write; standard output if not given").type_name("FILE");
  rewrite.footer(
      "A trace with lengths alone (azure, burstgpt) is refused: which prompts begin alike is not in it.\n"
      "Example:\n"
      "  kvbm trace convert qwen_traceA_blksz_16.jsonl.gz -o qwen.jsonl");
}

}  // namespace kvbm::command
