#include "command/size.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "size/model.h"
#include "terminal/json_text.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

using Json = nlohmann::ordered_json;
using terminal::Align;
using terminal::format_count;
using terminal::format_size;

struct SizeOptions {
  std::string preset;
  std::string config;
  std::string tokens = "1";
  std::string batch = "1";
  uint64_t bits = 16;
  std::string host;
  std::string disk;
  bool list_presets = false;
  bool table = false;
  std::string contexts = "4k,32k,128k,1M";
  std::string sessions = "1,8,64,512";
};

struct Question {
  std::string name;
  std::string source;
  size::Model model;
  uint64_t tokens = 1;
  uint64_t batch = 1;
  uint64_t bits = 16;
  size::Usage usage;
};

// "1 session", "8 sessions"
std::string count_of(uint64_t count, const char* what) {
  return format_count(count) + " " + what + (count == 1 ? "" : "s");
}

int list_presets(const Output& output) {
  Json list = Json::array();
  terminal::Table table({{"preset"}, {"bytes/token", Align::right}, {"source (config.json of)"}});
  for (const size::Preset& preset : size::presets()) {
    const auto model = size::parse_model(preset.config);
    if (!model.ok()) return fail(model.status());
    const auto usage = size::usage_of(model.value(), 1, 1, 16);
    if (!usage.ok()) return fail(usage.status());
    list.push_back(
        {{"name", preset.name}, {"source", preset.source}, {"bytes_per_token", usage.value().bytes_per_token}});
    table.add_row({std::string(preset.name), format_count(usage.value().bytes_per_token), std::string(preset.source)});
  }
  std::fputs(output.json ? (list.dump(2) + "\n").c_str() : table.render().c_str(), stdout);
  return kDone;
}

Result<std::string> read_text(const std::string& path) {
  constexpr size_t kMost = size_t{16} << 20;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Status(Code::invalid_argument, "the config file is a directory", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(Code::invalid_argument, "cannot open the config file", path);
  std::string text;
  std::string chunk(size_t{64} << 10, '\0');
  while (text.size() <= kMost && file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())).gcount() > 0) {
    text.append(chunk.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad() || text.empty()) return Status(Code::invalid_argument, "cannot read the config file", path);
  if (text.size() > kMost) return Status(Code::invalid_argument, "the config file is larger than 16 MiB", path);
  return text;
}

struct Counts {
  uint64_t tokens = 0;
  uint64_t batch = 0;
};

Result<Counts> counts_of(const SizeOptions& options) {
  Counts counts;
  for (const auto& [name, text, value] : {std::tuple{"--tokens", &options.tokens, &counts.tokens},
                                          std::tuple{"--batch", &options.batch, &counts.batch}}) {
    const Result<uint64_t> parsed = terminal::parse_count(*text);
    if (!parsed.ok()) return Status(Code::invalid_argument, name, parsed.status().message());
    if (parsed.value() == 0) return Status(Code::invalid_argument, name, "must be above zero");
    *value = parsed.value();
  }
  return counts;
}

Result<Question> question_of(const SizeOptions& options, const Counts& counts) {
  Question question;
  std::string text;
  if (!options.preset.empty()) {
    const size::Preset* preset = size::find_preset(options.preset);
    if (preset == nullptr) return Status(Code::invalid_argument, "no such preset", options.preset);
    question.name = preset->name;
    question.source = "preset, from config.json of " + std::string(preset->source);
    text = preset->config;
  } else {
    Result<std::string> file = read_text(options.config);
    if (!file.ok()) return file.status();
    question.name = question.source = options.config;
    text = std::move(file).value();
  }
  Result<size::Model> model = size::parse_model(text);
  if (!model.ok())
    return Status(model.status().code(), "cannot use this model", question.name + ": " + model.status().message());
  question.model = std::move(model).value();
  question.tokens = counts.tokens;
  question.batch = counts.batch;
  question.bits = options.bits;
  Result<size::Usage> usage = size::usage_of(question.model, question.tokens, question.batch, question.bits);
  if (!usage.ok()) return usage.status();
  question.usage = usage.value();
  return question;
}

struct Room {
  const char* tier;
  uint64_t capacity;
  uint64_t tokens;    // each with all its layers, as in a cache of blocks
  uint64_t sessions;  // whole sequences of --tokens
  uint64_t longest;   // tokens of one sequence alone
  bool any_length;    // the layers do not grow past their windows, and these fit
};

Result<std::vector<Room>> rooms_of(const SizeOptions& options, const Question& question) {
  std::vector<Room> rooms;
  for (const auto& [tier, text] : {std::pair{"host", options.host}, std::pair{"disk", options.disk}}) {
    if (text.empty()) continue;
    const Result<uint64_t> capacity = terminal::parse_size(text);
    if (!capacity.ok()) return capacity.status();
    const Result<uint64_t> longest = size::longest_sequence(question.model, capacity.value(), question.bits);
    if (!longest.ok()) return longest.status();
    const size::Usage& usage = question.usage;
    const uint64_t per_token = usage.bytes_per_token;
    rooms.push_back({tier, capacity.value(), per_token == 0 ? 0 : capacity.value() / per_token,
                     usage.bytes_per_sequence == 0 ? 0 : capacity.value() / usage.bytes_per_sequence, longest.value(),
                     longest.value() == size::kAnyLength});
  }
  return rooms;
}

struct Grid {
  std::vector<uint64_t> contexts;
  std::vector<uint64_t> sessions;
  std::vector<std::vector<uint64_t>> bytes;  // [context][sessions]
};

Result<Grid> grid_of(const SizeOptions& options, const Question& question) {
  Result<std::vector<uint64_t>> contexts = terminal::parse_counts(options.contexts);
  if (!contexts.ok()) return contexts.status();
  Result<std::vector<uint64_t>> sessions = terminal::parse_counts(options.sessions);
  if (!sessions.ok()) return sessions.status();
  Grid grid{contexts.value(), sessions.value(), {}};
  for (const uint64_t context : grid.contexts) {
    grid.bytes.emplace_back();
    for (const uint64_t count : grid.sessions) {
      const Result<size::Usage> usage = size::usage_of(question.model, context, count, question.bits);
      if (!usage.ok()) return usage.status();
      grid.bytes.back().push_back(usage.value().total_bytes);
    }
  }
  return grid;
}

Json json_of(const Question& q, const std::vector<Room>& rooms, const Grid* grid) {
  Json out{{"model", q.name},
           {"source", q.source},
           {"tokens", q.tokens},
           {"batch", q.batch},
           {"bits", q.bits},
           {"bytes_per_token", q.usage.bytes_per_token},
           {"bytes_per_token_past_window", q.usage.bytes_per_token_past_window},
           {"state_bytes_per_sequence", q.usage.state_bytes_per_sequence},
           {"bytes_per_sequence", q.usage.bytes_per_sequence},
           {"total_bytes", q.usage.total_bytes},
           {"total_gb", static_cast<double>(q.usage.total_bytes) / 1e9},
           {"total_gib", static_cast<double>(q.usage.total_bytes) / 1073741824.0}};
  out["layers"] = Json::array();
  for (const auto& group : q.model.groups) {
    out["layers"].push_back({{"kind", group.kind},
                             {"layers", group.layers},
                             {"values_per_token", group.values_per_token},
                             {"window", group.window},
                             {"formula", group.formula}});
  }
  out["factors"] = Json::array();
  for (const auto& f : q.model.factors) {
    out["factors"].push_back({{"name", f.name}, {"value", f.value}, {"origin", f.origin}});
  }
  out["notes"] = q.model.notes;
  for (const Room& room : rooms) {
    out["holds"][room.tier] = {{"bytes", room.capacity},
                               {"tokens", q.usage.bytes_per_token == 0 ? Json(nullptr) : Json(room.tokens)},
                               {"sessions", room.sessions},
                               {"longest_sequence_tokens", room.any_length ? Json(nullptr) : Json(room.longest)}};
  }
  if (grid != nullptr) {
    out["table"] = Json::array();
    for (size_t c = 0; c < grid->contexts.size(); ++c) {
      for (size_t s = 0; s < grid->sessions.size(); ++s) {
        out["table"].push_back(
            {{"context", grid->contexts[c]}, {"sessions", grid->sessions[s]}, {"bytes", grid->bytes[c][s]}});
      }
    }
  }
  return out;
}

void print_formula(const Question& q) {
  std::printf("%s (%s)\n\nBytes per token\n", q.name.c_str(), q.source.c_str());
  for (const auto& group : q.model.groups) {
    const std::string layers = format_count(group.layers) + " layers of " + group.kind;
    if (group.values_per_token == 0) {
      std::printf("  %s: no growth; per sequence %s values\n", layers.c_str(), group.formula.c_str());
      continue;
    }
    std::printf("  %s: %s values * %llu bits / 8 each", layers.c_str(), group.formula.c_str(),
                static_cast<unsigned long long>(q.bits));
    if (group.window != 0) std::printf(", at most %s tokens", format_count(group.window).c_str());
    std::printf("\n");
  }
  std::printf("  = %s bytes a token", format_count(q.usage.bytes_per_token).c_str());
  if (q.usage.bytes_per_token_past_window != q.usage.bytes_per_token) {
    std::printf("; past the window %s", format_count(q.usage.bytes_per_token_past_window).c_str());
  }
  std::printf("\n\n");
  terminal::Table factors({{"factor"}, {"value", Align::right}, {"from"}});
  for (const auto& f : q.model.factors) factors.add_row({f.name, format_count(f.value), f.origin});
  std::fputs(factors.render().c_str(), stdout);
}

void print_grid(const Grid& grid) {
  std::vector<terminal::Table::Column> columns{{"context tokens", Align::right}};
  for (const uint64_t count : grid.sessions) columns.push_back({count_of(count, "session"), Align::right});
  terminal::Table table(columns);
  for (size_t c = 0; c < grid.contexts.size(); ++c) {
    std::vector<std::string> row{format_count(grid.contexts[c])};
    for (const uint64_t bytes : grid.bytes[c]) row.push_back(format_size(static_cast<double>(bytes)));
    table.add_row(row);
  }
  std::printf("\n%s", table.render().c_str());
}

void print_human(const Question& q, const std::vector<Room>& rooms, const Grid* grid) {
  print_formula(q);
  if (q.usage.state_bytes_per_sequence != 0) {
    std::printf("\nRecurrent state: %s a sequence\n",
                format_size(static_cast<double>(q.usage.state_bytes_per_sequence)).c_str());
  }
  std::printf("\n%s * %s: %s\n", count_of(q.tokens, "token").c_str(), count_of(q.batch, "sequence").c_str(),
              format_size(static_cast<double>(q.usage.total_bytes)).c_str());
  for (const Room& room : rooms) {
    std::printf("%s of %s holds ", room.tier, format_size(static_cast<double>(room.capacity)).c_str());
    if (q.usage.bytes_per_token == 0) {  // only states
      std::printf("%s of any length\n", count_of(room.sessions, "sequence").c_str());
      continue;
    }
    std::printf("%s", count_of(room.tokens, "token").c_str());
    if (q.tokens != 1) {
      std::printf(", or %s of %s tokens", count_of(room.sessions, "sequence").c_str(), format_count(q.tokens).c_str());
    }
    std::printf(", or one sequence of %s\n", room.any_length ? "any length" : format_count(room.longest).c_str());
  }
  if (grid != nullptr) print_grid(*grid);
  for (const std::string& note : q.model.notes) std::printf("note: %s\n", note.c_str());
}

int run(const SizeOptions& options, const Output& output) {
  if (options.list_presets) return list_presets(output);
  if (options.preset.empty() == options.config.empty()) {
    return fail(kBadInput, "give one model: --preset NAME or --config FILE",
                "`kvbm size --list-presets` shows the names");
  }
  if (options.bits != 16 && options.bits != 8 && options.bits != 4) {
    return fail(kBadInput, "--bits: a KV value has 16, 8 or 4 bits, not " + std::to_string(options.bits));
  }
  const Result<Counts> counts = counts_of(options);
  if (!counts.ok()) return fail(counts.status(), "write --tokens 100000 or 100k, --batch 64");
  const Result<Question> question = question_of(options, counts.value());
  if (!question.ok()) {
    return fail(question.status(), options.preset.empty() ? "give the config.json of a Hugging Face model"
                                                          : "`kvbm size --list-presets` shows the names");
  }
  const Result<std::vector<Room>> rooms = rooms_of(options, question.value());
  if (!rooms.ok()) return fail(rooms.status(), "write --host 64GiB or --disk 1.9TB");
  Grid grid;
  if (options.table) {
    const Result<Grid> made = grid_of(options, question.value());
    if (!made.ok()) return fail(made.status(), "write --contexts 4k,32k --sessions 1,8");
    grid = made.value();
  }
  const Grid* shown = options.table ? &grid : nullptr;
  if (output.json) {
    std::printf("%s\n", terminal::json_text(json_of(question.value(), rooms.value(), shown)).c_str());
  } else {
    print_human(question.value(), rooms.value(), shown);
  }
  return kDone;
}

}  // namespace

void add_size(Registry& registry) {
  auto options = std::make_shared<SizeOptions>();
  Command app = registry.add("size", "How many bytes of KV a model needs, per token and in all",
                             [options](const Output& output) { return run(*options, output); });
  app.add_option("--preset", options->preset, "A well-known model").type_name("NAME");
  app.add_option("--config", options->config, "config.json of a Hugging Face model, or Mistral's params.json")
      .type_name("FILE");
  app.add_option("--tokens", options->tokens, "Tokens of one sequence, as 100000 or 100k").type_name("COUNT");
  app.add_option("--batch", options->batch, "Sequences held at once").type_name("COUNT");
  app.add_option("--bits", options->bits, "Bits of one KV value: 16, 8, 4").type_name("N");
  app.add_option("--host", options->host, "Show what this much host memory holds").type_name("SIZE");
  app.add_option("--disk", options->disk, "Show what this much disk holds").type_name("SIZE");
  app.add_flag("--context-table", options->table, "A table over context lengths and concurrent sessions");
  app.add_option("--contexts", options->contexts, "Rows of the table").type_name("COUNTS");
  app.add_option("--sessions", options->sessions, "Columns of the table").type_name("COUNTS");
  app.add_flag("--list-presets", options->list_presets, "List the well-known models");
  app.footer(
      "Examples:\n"
      "  kvbm size --preset llama-3.3-70b --tokens 100000\n"
      "  kvbm size --config ./config.json --tokens 32k --batch 64 --bits 8\n"
      "  kvbm size --preset qwen3-8b --host 64GiB --disk 1TB --context-table");
}

}  // namespace kvbm::command
