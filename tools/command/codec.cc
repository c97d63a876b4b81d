#include "command/codec.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "codec/coded/leaf_codec.h"
#include "tensor/compress.h"
#include "tensor/mode_table.h"
#include "terminal/interrupt.h"
#include "terminal/json_text.h"
#include "terminal/progress.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

using codec::Mode;
using Json = nlohmann::ordered_json;
using terminal::format_count;
using terminal::format_size;

constexpr Mode kModes[] = {Mode::off,        Mode::fast,       Mode::standard,   Mode::max,  Mode::zstd,
                           Mode::fp8_e4m3,   Mode::fp8_e5m2,   Mode::int8,       Mode::int6, Mode::int4,
                           Mode::int8_coded, Mode::int6_coded, Mode::int4_coded, Mode::delta};

struct CodecArguments {
  std::string file;
  std::string output;
  std::string mode = "default";
  std::string modes;
  std::string format = "auto";
  std::string element;
  std::string shape;
  std::string limit = "256MiB";
  std::string row;
  int rounds = 5;
  bool force = false;
  bool allow_lossy = false;
};

constexpr const char* kNoRow = "leave it out: the last dimension is a row";

std::string mode_names() {
  std::string all;
  for (const Mode mode : kModes) all.append(all.empty() ? "" : ", ").append(codec::mode_name(mode));
  return all;
}

// Reads the mode. Returns kDone, or the exit code after an error on stderr.
int read_mode(const std::string& name, Mode& out) {
  const auto mode = codec::mode_by_name(name);
  if (!mode.has_value()) return fail(kBadInput, "no codec mode is called " + name, "one of " + mode_names());
  out = *mode;
  return kDone;
}

int read_claims(const CodecArguments& arguments, tensor::Claims& out) {
  if (arguments.format == "raw") out.kind = tensor::Kind::raw;
  if (arguments.format == "npy") out.kind = tensor::Kind::npy;
  if (arguments.format == "safetensors") out.kind = tensor::Kind::safetensors;
  if (!arguments.element.empty()) {
    out.element = tensor::element_by_name(arguments.element);
    if (!out.element.has_value()) {
      return fail(kBadInput, "no element type is called " + arguments.element,
                  "one of bf16, fp16, fp32, fp8_e4m3, fp8_e5m2, int8, bytes");
    }
  }
  if (!arguments.shape.empty()) {
    auto shape = tensor::parse_shape(arguments.shape);
    if (!shape.ok()) return fail(shape.status());
    out.shape = std::move(shape).value();
  }
  return kDone;
}

// Reads the row. 0: the last dimension.
int read_row(const CodecArguments& arguments, uint64_t& out) {
  out = 0;
  if (arguments.row.empty()) return kDone;
  const auto row = terminal::parse_count(arguments.row);
  if (!row.ok()) return fail(kBadInput, "--row: " + row.status().message());
  if (row.value() == 0) return fail(kBadInput, "--row 0: a row has at least one value", kNoRow);
  out = row.value();
  return kDone;
}

// Reports a file that is incomplete or does not match the arguments as bad input. The text names the file.
int refuse(const Status& status, const std::string& named) {
  const std::string file = named == "-" ? "standard input" : named;
  if (status.code() == Code::cancelled) {
    fail(kInterrupted, status.what());
    return kInterrupted;
  }
  const std::string message = status.message();
  const std::string what = message.find(file) == std::string::npos ? file + ": " + message : message;
  switch (status.code()) {
    case Code::newer_version:
      return fail(kBadInput, what, "use the version of kvbm that wrote it");
    case Code::damaged:
    case Code::invalid_argument:
    case Code::unsupported:
    case Code::exists:
    case Code::miss:
      return fail(kBadInput, what);
    default:
      return fail(kFailed, what);
  }
}

// "row" is 0 if none is known.
Json json_of(const tensor::Segment& segment) {
  return Json{{"name", segment.tensor.name},
              {"element", layout::element_name(segment.tensor.element)},
              {"shape", segment.tensor.shape},
              {"row", segment.form.row},
              {"bytes", segment.tensor.bytes}};
}

Json tensors_of(const tensor::Index& index) {
  Json tensors = Json::array();
  for (const tensor::Segment& segment : index.segments) {
    if (segment.is_tensor) tensors.push_back(json_of(segment));
  }
  return tensors;
}

// Refuses a row that fits no tensor. A row that fits some tensors is accepted.
int check_row(const CodecArguments& arguments, uint64_t row, const tensor::TensorFile& file) {
  if (row == 0 || file.tensors.empty()) return kDone;
  const auto values = [](const tensor::Tensor& tensor) {
    return tensor.element == layout::Element::bytes ? 0 : tensor.bytes / layout::element_bytes(tensor.element);
  };
  const tensor::Tensor* largest = &file.tensors.front();
  for (const tensor::Tensor& tensor : file.tensors) {
    if (tensor::row_refusal(tensor, row).empty()) return kDone;
    if (values(tensor) > values(*largest)) largest = &tensor;
  }
  const std::string said = arguments.file + ": --row " + std::to_string(row);
  const uint64_t most = values(*largest);
  if (most != 0 && row > most) {
    return fail(kBadInput, said + " is more than the " + std::to_string(most) + " values of its largest tensor",
                kNoRow);
  }
  const std::string which = file.tensors.size() == 1 ? "its tensor has " : "its largest tensor has ";
  return fail(kBadInput, said + " does not fit: " + which + tensor::row_refusal(*largest, row), kNoRow);
}

// Returns the assumptions, and the tensors that the row was not used for.
std::string notes(const tensor::TensorFile& file, uint64_t row) {
  size_t other = 0;
  for (const tensor::Tensor& tensor : file.tensors)
    other += row == 0 || tensor::row_refusal(tensor, row).empty() ? 0 : 1;
  if (other == 0) return file.note;
  return file.note + (file.note.empty() ? "" : "; ") + "--row does not fit " + std::to_string(other) + " of " +
         std::to_string(file.tensors.size()) + " tensors, of which the last dimension is a row";
}

// Refuses a lossy mode for a file of which nothing can be coded with it.
int check_lossy(const CodecArguments& arguments, Mode mode, const tensor::TensorFile& file) {
  if (!codec::is_lossy(mode) || file.tensors.empty()) return kDone;
  const std::string name(codec::mode_name(mode));
  if (!file.note.empty())
    return fail(kBadInput, arguments.file + ": a lossy mode must not guess: " + file.note, "say --element");
  for (const tensor::Tensor& tensor : file.tensors) {
    if (tensor::may_be_lossy(tensor.element)) return kDone;
  }
  const std::string other = file.tensors.size() == 1 ? "" : "all of other types, as ";
  return fail(kBadInput,
              arguments.file + ": " + name + " is for bf16, fp16 and fp32, and this is " + other +
                  layout::element_name(file.tensors.front().element),
              "a lossless mode, as default or zstd, takes any; --element says what raw values are");
}

double relative_error(double difference, double value) { return value > 0 ? difference / value : 0; }

std::string error_text(bool lossy, double difference, double value) {
  if (!lossy) return "exact";
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", relative_error(difference, value));
  return text;
}

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

Json json_of(const tensor::KeptBlocks& kept) {
  return Json{{"blocks", kept.blocks},
              {"lossless", kept.lossless()},
              {"not_finite", kept.not_finite},
              {"no_float", kept.no_float},
              {"no_gain", kept.no_gain}};
}

// Returns in numbers what a lossy mode was not used for, and where.
Json json_of(const tensor::KeptLossless& kept) {
  Json out = json_of(kept.all());
  Json tensors = Json::array();
  for (const auto& one : kept.tensors()) {
    Json row{{"name", one.name}};
    row.update(json_of(one.counts));
    tensors.push_back(std::move(row));
  }
  out["tensors"] = std::move(tensors);
  return out;
}

void say_summary(const tensor::Summary& summary, const CodecArguments& arguments, const Output& output,
                 const char* verb) {
  const double ratio = static_cast<double>(summary.file_bytes) / static_cast<double>(summary.container_bytes);
  if (output.json) {
    const Json out{{"input", arguments.file},
                   {"output", arguments.output},
                   {"format", tensor::kind_name(summary.index.kind)},
                   {"bytes", summary.file_bytes},
                   {"compressed_bytes", summary.container_bytes},
                   {"ratio", ratio},
                   {"lossy", summary.lossy},
                   {"relative_mse", relative_error(summary.difference, summary.value)},
                   {"kept_lossless", json_of(summary.kept)},
                   {"tensors", tensors_of(summary.index)},
                   {"note", summary.note}};
    std::printf("%s\n", terminal::json_text(out).c_str());
    return;
  }
  // Standard output may be the file itself.
  std::FILE* to = arguments.output == "-" ? stderr : stdout;
  if (!summary.note.empty()) std::fprintf(stderr, "kvbm: note: %s\n", summary.note.c_str());
  std::fprintf(to, "%s %s, %s: ratio %s, %s\n", verb, arguments.output.c_str(),
               format_size(static_cast<double>(verb[0] == 'c' ? summary.container_bytes : summary.file_bytes)).c_str(),
               fixed(ratio, 3).c_str(),
               summary.lossy ? ("lossy, relative error " + error_text(true, summary.difference, summary.value)).c_str()
                             : "exact");
}

// Checks the output. Returns kDone, or the exit code after an error on stderr.
int check_output(const CodecArguments& arguments, const tensor::Input& input, const Output& output) {
  if (arguments.output == "-" && output.json) {
    return fail(kBadInput, "--json and -o - both want standard output", "give a file with -o");
  }
  if (arguments.output == "-" && !arguments.force && ::isatty(STDOUT_FILENO) == 1) {
    return fail(kBadInput, "what is written is not text, and standard output is a terminal",
                "give a file with -o, or --force");
  }
  if (arguments.output != "-" && input.is(arguments.output)) {
    return fail(kBadInput, "the output is the input, " + arguments.output, "give another name with -o");
  }
  return kDone;
}

int compress(CodecArguments arguments, const Output& output) {
  tensor::Claims claims;
  Mode mode{};
  if (const int code = read_mode(arguments.mode, mode); code != kDone) return code;
  if (const int code = read_claims(arguments, claims); code != kDone) return code;
  uint64_t row = 0;
  if (const int code = read_row(arguments, row); code != kDone) return code;
  if (arguments.output.empty()) arguments.output = arguments.file == "-" ? "-" : arguments.file + ".kvbmz";
  const auto input = tensor::Input::open(arguments.file);
  if (!input.ok()) return refuse(input.status(), arguments.file);
  if (const int code = check_output(arguments, input.value(), output); code != kDone) return code;
  const auto file = tensor::describe(input.value(), claims);
  if (!file.ok()) return refuse(file.status(), arguments.file);
  if (const int code = check_row(arguments, row, file.value()); code != kDone) return code;
  if (const int code = check_lossy(arguments, mode, file.value()); code != kDone) return code;
  auto out = tensor::NewFile::create(arguments.output, arguments.force);
  if (!out.ok()) return refuse(out.status(), arguments.output);
  const terminal::Interrupt interrupt;
  terminal::Progress progress("compressing", file.value().bytes, terminal::Unit::bytes, output.json);
  auto summary = tensor::compress(input.value(), file.value(), mode, row, out.value(),
                                  {[&](uint64_t n) { progress.advance(n); }, &terminal::Interrupt::asked()});
  progress.finish();
  if (!summary.ok()) return refuse(summary.status(), arguments.file);
  Status committed = out.value().commit();
  if (!committed.ok()) return refuse(committed, arguments.output);
  summary.value().note = notes(file.value(), row);
  say_summary(summary.value(), arguments, output, "compressed to");
  const std::string kept = summary.value().kept.text(std::string(codec::mode_name(mode)));
  if (!kept.empty() && !output.json) std::fprintf(stderr, "kvbm: note: %s\n", kept.c_str());
  return kDone;
}

int decompress(CodecArguments arguments, const Output& output) {
  const auto input = tensor::Input::open(arguments.file);
  if (!input.ok()) return refuse(input.status(), arguments.file);
  const std::string suffix = ".kvbmz";
  if (arguments.output.empty()) {
    const bool named = arguments.file.size() > suffix.size() && arguments.file.ends_with(suffix);
    if (!named && arguments.file != "-") {
      return fail(kBadInput, arguments.file + " does not end with .kvbmz", "name the output file with -o");
    }
    arguments.output = named ? arguments.file.substr(0, arguments.file.size() - suffix.size()) : "-";
  }
  if (const int code = check_output(arguments, input.value(), output); code != kDone) return code;
  const auto index = tensor::read_index(input.value());
  if (!index.ok()) return refuse(index.status(), arguments.file);
  auto out = tensor::NewFile::create(arguments.output, arguments.force);
  if (!out.ok()) return refuse(out.status(), arguments.output);
  const terminal::Interrupt interrupt;
  terminal::Progress progress("decompressing", index.value().bytes, terminal::Unit::bytes, output.json);
  const auto summary = tensor::decompress(input.value(), arguments.allow_lossy, out.value(),
                                          {[&](uint64_t n) { progress.advance(n); }, &terminal::Interrupt::asked()});
  progress.finish();
  if (summary.status().code() == Code::not_permitted) {
    return fail(kBadInput, arguments.file + ": " + summary.status().message(),
                "--allow-lossy restores it as far as the lossy mode kept it");
  }
  if (!summary.ok()) return refuse(summary.status(), arguments.file);
  Status committed = out.value().commit();
  if (!committed.ok()) return refuse(committed, arguments.output);
  say_summary(summary.value(), arguments, output, "decompressed to");
  return kDone;
}

void print_json(const tensor::TensorFile& file, uint64_t row, const tensor::ModeTable& table) {
  Json rows = Json::array();
  for (const tensor::ModeRow& mode : table.rows) {
    Json out{{"mode", codec::mode_name(mode.mode)},
             {"ratio", mode.ratio()},
             {"coded_bytes", mode.coded_bytes},
             {"compress_bytes_per_s", mode.compress},
             {"compress_to_memcpy", mode.compress / table.memcpy},
             {"decompress_bytes_per_s", mode.decompress},
             {"decompress_to_memcpy", mode.decompress / table.memcpy},
             {"lossy", mode.lossy},
             {"relative_mse", relative_error(mode.difference, mode.value)}};
    if (codec::is_lossy(mode.mode)) out["kept_lossless"] = json_of(mode.kept);
    rows.push_back(std::move(out));
  }
  const Json out{{"format", tensor::kind_name(file.kind)},
                 {"note", notes(file, row)},
                 {"tensors", tensors_of(tensor::make_index(file, row))},
                 {"tensor_bytes", table.tensor_bytes},
                 {"measured_bytes", table.measured_bytes},
                 {"kernel", codec::codec_kernel_name()},
                 {"memcpy_bytes_per_s", table.memcpy},
                 {"modes", std::move(rows)}};
  std::printf("%s\n", terminal::json_text(out).c_str());
}

// Prints where lossy modes were not used. Most modes have equal texts, so modes with one text share a line.
void print_kept(const tensor::ModeTable& table) {
  std::vector<std::pair<const tensor::KeptLossless*, std::string>> lines;
  for (const tensor::ModeRow& row : table.rows) {
    if (row.kept.all().lossless() == 0) continue;
    const std::string name(codec::mode_name(row.mode));
    const std::string text = row.kept.text("");
    const auto same =
        std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first->text("") == text; });
    if (same == lines.end()) {
      lines.emplace_back(&row.kept, name);
    } else {
      same->second += ", " + name;
    }
  }
  for (const auto& [kept, names] : lines) std::printf("%s\n", kept->text(names).c_str());
}

void print_table(const tensor::TensorFile& file, uint64_t row_values, const tensor::ModeTable& table) {
  using terminal::Align;
  const std::string note = notes(file, row_values);
  if (!note.empty()) std::printf("%s\n", note.c_str());
  const tensor::Tensor& first = file.tensors.front();
  std::printf("%s, %zu tensor%s (%s %s%s), %s", tensor::kind_name(file.kind), file.tensors.size(),
              file.tensors.size() == 1 ? "" : "s", layout::element_name(first.element),
              tensor::shape_text(first.shape).c_str(), file.tensors.size() == 1 ? "" : ", ...",
              format_size(static_cast<double>(table.tensor_bytes)).c_str());
  if (table.measured_bytes < table.tensor_bytes) {
    std::printf("; the first %s measured (--limit)", format_size(static_cast<double>(table.measured_bytes)).c_str());
  }
  std::printf("\n%s kernel, one thread; memcpy %s GB/s\n\n", codec::codec_kernel_name(),
              fixed(table.memcpy / 1e9, 2).c_str());
  terminal::Table out({{"mode"},
                       {"ratio", Align::right},
                       {"compress GB/s", Align::right},
                       {"of memcpy", Align::right},
                       {"decompress GB/s", Align::right},
                       {"of memcpy", Align::right},
                       {"relative error", Align::right}});
  for (const tensor::ModeRow& row : table.rows) {
    const bool not_used = codec::is_lossy(row.mode) && !row.lossy;
    out.add_row({std::string(codec::mode_name(row.mode)), fixed(row.ratio(), 3), fixed(row.compress / 1e9, 2),
                 fixed(row.compress / table.memcpy, 2), fixed(row.decompress / 1e9, 2),
                 fixed(row.decompress / table.memcpy, 2),
                 not_used ? "not used" : error_text(row.lossy, row.difference, row.value)});
  }
  std::fputs(out.render().c_str(), stdout);
  std::puts("\nGB of plain values a second, hashes included; relative error: squared differences to squared values");
  print_kept(table);
}

int read_modes(const std::string& names, std::vector<Mode>& out) {
  if (names.empty()) {
    out.assign(std::begin(kModes), std::end(kModes));
    return kDone;
  }
  size_t at = 0;
  while (at <= names.size()) {
    const size_t end = std::min(names.find(',', at), names.size());
    Mode mode{};
    if (const int code = read_mode(names.substr(at, end - at), mode); code != kDone) return code;
    out.push_back(mode);
    at = end + 1;
  }
  return kDone;
}

int bench(const CodecArguments& arguments, const Output& output) {
  tensor::Claims claims;
  tensor::TableOptions options;
  if (const int code = read_claims(arguments, claims); code != kDone) return code;
  if (const int code = read_modes(arguments.modes, options.modes); code != kDone) return code;
  const auto limit = terminal::parse_size(arguments.limit);
  if (!limit.ok()) return fail(kBadInput, "--limit: " + limit.status().message());
  if (limit.value() == 0) return fail(kBadInput, "--limit 0 measures nothing", "leave it out for 256MiB");
  if (const int code = read_row(arguments, options.row); code != kDone) return code;
  const auto input = tensor::Input::open(arguments.file);
  if (!input.ok()) return refuse(input.status(), arguments.file);
  const auto file = tensor::describe(input.value(), claims);
  if (!file.ok()) return refuse(file.status(), arguments.file);
  if (const int code = check_row(arguments, options.row, file.value()); code != kDone) return code;
  options.rounds = arguments.rounds;
  options.limit_bytes = limit.value();
  options.quiet = output.json;
  const terminal::Interrupt interrupt;
  const auto table = tensor::measure_modes(input.value(), file.value(), options, &terminal::Interrupt::asked());
  if (!table.ok()) return refuse(table.status(), arguments.file);
  if (output.json) {
    print_json(file.value(), options.row, table.value());
  } else {
    print_table(file.value(), options.row, table.value());
  }
  return kDone;
}

void add_input(Command app, CodecArguments& arguments) {
  app.add_option("FILE", arguments.file, ".npy, safetensors or raw values; - for standard input").required();
  app.add_option("--format", arguments.format, "auto, npy, safetensors or raw")
      .one_of({"auto", "npy", "safetensors", "raw"})
      .show_default();
  app.add_option(
         "--element", arguments.element,
         "Type of raw values, or what a uint8, uint16 or void .npy stands for: bf16, fp16, fp32, fp8_e4m3, fp8_e5m2, "
         "int8; bytes for what are no numbers (lossless modes alone)")
      .type_name("TYPE");
  app.add_option("--shape", arguments.shape, "Shape of raw values, as 30,2,512,192; the last dimension is a row")
      .type_name("N,N,...");
  app.add_option("--row", arguments.row,
                 "Values from one token's channel to the same of the next (head_dim, or heads * head_dim), where that "
                 "is not the "
                 "last dimension; a divisor of the number of values, at most 64 KiB of them")
      .type_name("N");
}

void add_output(Command app, CodecArguments& arguments, const std::string& otherwise) {
  app.add_option("-o,--output", arguments.output, "File to write, - for standard output; " + otherwise)
      .type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace what is there");
}

}  // namespace

void add_codec(Registry& registry) {
  Command group = registry.add_group("codec", "Compress tensor files of KV, and measure the codecs on them");
  auto pack = std::make_shared<CodecArguments>();
  Command compressing =
      registry.add(group, "compress", "Compress a tensor file; without loss, unless the mode is lossy",
                   [pack](const Output& output) { return compress(*pack, output); });
  add_input(compressing, *pack);
  compressing.add_option("--mode", pack->mode, mode_names()).show_default().type_name("MODE");
  add_output(compressing, *pack, "FILE.kvbmz if not given");
  compressing.footer(
      "Examples:\n  kvbm codec compress kv.npy\n  kvbm codec compress kv.bin --element bf16 --shape 30,2,512,192 "
      "--mode max");

  auto unpack = std::make_shared<CodecArguments>();
  Command decompressing = registry.add(group, "decompress", "Restore the file that compress coded",
                                       [unpack](const Output& output) { return decompress(*unpack, output); });
  decompressing.add_option("FILE", unpack->file, "What compress wrote; - for standard input").required();
  add_output(decompressing, *unpack, "FILE without .kvbmz if not given");
  decompressing.add_flag("--allow-lossy", unpack->allow_lossy, "Take values that a lossy mode changed");
  decompressing.footer("Example:\n  kvbm codec decompress kv.npy.kvbmz -o again.npy");

  auto measure = std::make_shared<CodecArguments>();
  Command benching = registry.add(group, "bench", "Ratio, speed and error of each mode on a file",
                                  [measure](const Output& output) { return bench(*measure, output); });
  add_input(benching, *measure);
  benching.add_option("--modes", measure->modes, "Which modes, with commas; all if not given").type_name("MODE,...");
  benching.add_option("--rounds", measure->rounds, "Number of rounds; their median is reported")
      .type_name("N")
      .range(1, 1000)
      .show_default();
  benching
      .add_option(
          "--limit", measure->limit,
          "How much of the tensors to measure, from the first on, at least 64 KiB; takes three times that in memory")
      .type_name("SIZE")
      .show_default();
  benching.footer("Example:\n  kvbm codec bench kv.npy --modes fast,default,max,zstd");
}

}  // namespace kvbm::command
