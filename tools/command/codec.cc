#include "command/codec.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "tensor/compress.h"
#include "tensor/mode_table.h"
#include "terminal/interrupt.h"
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

struct Arguments {
  std::string file;
  std::string output;
  std::string mode = "default";
  std::string modes;
  std::string format = "auto";
  std::string element;
  std::string shape;
  std::string limit = "256MiB";
  uint64_t row = 0;
  int rounds = 5;
  bool force = false;
  bool allow_lossy = false;
};

std::string mode_names() {
  std::string all;
  for (const Mode mode : kModes) all.append(all.empty() ? "" : ", ").append(codec::mode_name(mode));
  return all;
}

// kDone and the mode, or what was said on stderr.
int read_mode(const std::string& name, Mode& out) {
  const auto mode = codec::mode_by_name(name);
  if (!mode.has_value()) return fail(kBadInput, "no codec mode is called " + name, "one of " + mode_names());
  out = *mode;
  return kDone;
}

int read_claims(const Arguments& arguments, tensor::Claims& out) {
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

// A file that is not what was said, or not whole, is the caller's to put right; the text names the file.
int refuse(const Status& status, const std::string& file) {
  if (status.code() == Code::cancelled) {
    fail(kInterrupted, status.what());
    return kInterrupted;
  }
  const std::string message = status.message();
  const std::string what = message.find(file) == std::string::npos ? file + ": " + message : message;
  switch (status.code()) {
    case Code::not_permitted:
      return fail(kBadInput, what, "--allow-lossy gives back what the lossy mode kept");
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

Json json_of(const tensor::Tensor& tensor) {
  return Json{{"name", tensor.name},
              {"element", layout::element_name(tensor.element)},
              {"shape", tensor.shape},
              {"bytes", tensor.bytes}};
}

// A row that no tensor has twice says nothing about neighbours.
int check_row(const Arguments& arguments, const tensor::TensorFile& file) {
  uint64_t most = 0;
  for (const tensor::Tensor& tensor : file.tensors) most = std::max(most, tensor.bytes / layout::element_bytes(tensor.element));
  if (arguments.row <= most) return kDone;
  return fail(kBadInput, arguments.file + ": --row " + std::to_string(arguments.row) + " is more than the " +
                             std::to_string(most) + " values of its largest tensor",
              "leave it out: the last dimension is a row");
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

// What a lossy mode was not used for, in numbers.
Json json_of(const tensor::KeptLossless& kept) {
  return Json{{"blocks", kept.blocks},
              {"lossless", kept.lossless()},
              {"not_finite", kept.not_finite},
              {"no_float", kept.no_float},
              {"no_gain", kept.no_gain}};
}

void say_summary(const tensor::Summary& summary, const Arguments& arguments, const Output& output, const char* verb) {
  const double ratio = static_cast<double>(summary.file_bytes) / static_cast<double>(summary.container_bytes);
  if (output.json) {
    Json tensors = Json::array();
    for (const tensor::Segment& segment : summary.index.segments) {
      if (segment.is_tensor) tensors.push_back(json_of(segment.tensor));
    }
    const Json out{{"input", arguments.file},
                   {"output", arguments.output},
                   {"format", tensor::kind_name(summary.index.kind)},
                   {"bytes", summary.file_bytes},
                   {"compressed_bytes", summary.container_bytes},
                   {"ratio", ratio},
                   {"lossy", summary.lossy},
                   {"relative_mse", relative_error(summary.difference, summary.value)},
                   {"kept_lossless", json_of(summary.kept)},
                   {"tensors", std::move(tensors)},
                   {"note", summary.note}};
    std::printf("%s\n", out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
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

// Where the result goes; kDone, or what was said on stderr.
int check_output(const Arguments& arguments, const tensor::Input& input, const Output& output) {
  if (arguments.output == "-" && output.json) {
    return fail(kBadInput, "--json and -o - both want standard output", "give a file with -o");
  }
  if (arguments.output != "-" && input.is(arguments.output)) {
    return fail(kBadInput, "the output is the input, " + arguments.output, "give another name with -o");
  }
  return kDone;
}

int compress(Arguments arguments, const Output& output) {
  tensor::Claims claims;
  Mode mode{};
  if (const int code = read_mode(arguments.mode, mode); code != kDone) return code;
  if (const int code = read_claims(arguments, claims); code != kDone) return code;
  if (arguments.output.empty()) arguments.output = arguments.file == "-" ? "-" : arguments.file + ".kvbmz";
  const auto input = tensor::Input::open(arguments.file);
  if (!input.ok()) return refuse(input.status(), arguments.file);
  if (const int code = check_output(arguments, input.value(), output); code != kDone) return code;
  const auto file = tensor::describe(input.value(), claims);
  if (!file.ok()) return refuse(file.status(), arguments.file);
  if (const int code = check_row(arguments, file.value()); code != kDone) return code;
  if (codec::is_lossy(mode) && !file.value().note.empty()) {
    return fail(kBadInput, arguments.file + ": a lossy mode must not guess: " + file.value().note, "say --element");
  }
  auto out = tensor::NewFile::create(arguments.output, arguments.force);
  if (!out.ok()) return refuse(out.status(), arguments.output);
  const terminal::Interrupt interrupt;
  terminal::Progress progress("compressing", file.value().bytes, terminal::Unit::bytes, output.json);
  const auto summary = tensor::compress(input.value(), file.value(), mode, arguments.row, out.value(),
                                        {[&](uint64_t n) { progress.advance(n); }, &terminal::Interrupt::asked()});
  progress.finish();
  if (!summary.ok()) return refuse(summary.status(), arguments.file);
  Status committed = out.value().commit();
  if (!committed.ok()) return refuse(committed, arguments.output);
  say_summary(summary.value(), arguments, output, "compressed to");
  const std::string kept = summary.value().kept.text(mode);
  if (!kept.empty() && !output.json) std::fprintf(stderr, "kvbm: note: %s\n", kept.c_str());
  return kDone;
}

int decompress(Arguments arguments, const Output& output) {
  const auto input = tensor::Input::open(arguments.file);
  if (!input.ok()) return refuse(input.status(), arguments.file);
  const std::string suffix = ".kvbmz";
  if (arguments.output.empty()) {
    const bool named = arguments.file.size() > suffix.size() && arguments.file.ends_with(suffix);
    if (!named && arguments.file != "-") {
      return fail(kBadInput, arguments.file + " does not end with .kvbmz", "say where it goes, with -o");
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
  if (!summary.ok()) return refuse(summary.status(), arguments.file);
  Status committed = out.value().commit();
  if (!committed.ok()) return refuse(committed, arguments.output);
  say_summary(summary.value(), arguments, output, "decompressed to");
  return kDone;
}

void print_json(const tensor::TensorFile& file, const tensor::ModeTable& table) {
  Json rows = Json::array();
  for (const tensor::ModeRow& row : table.rows) {
    rows.push_back({{"mode", codec::mode_name(row.mode)},
                    {"ratio", row.ratio()},
                    {"compress_bytes_per_s", row.compress},
                    {"compress_to_memcpy", row.compress / table.memcpy},
                    {"decompress_bytes_per_s", row.decompress},
                    {"decompress_to_memcpy", row.decompress / table.memcpy},
                    {"lossy", row.lossy},
                    {"relative_mse", relative_error(row.difference, row.value)}});
  }
  Json tensors = Json::array();
  for (const tensor::Tensor& tensor : file.tensors) tensors.push_back(json_of(tensor));
  const Json out{{"format", tensor::kind_name(file.kind)},
                 {"note", file.note},
                 {"tensors", std::move(tensors)},
                 {"measured_bytes", table.measured_bytes},
                 {"kernel", codec::codec_kernel_name()},
                 {"memcpy_bytes_per_s", table.memcpy},
                 {"modes", std::move(rows)}};
  std::printf("%s\n", out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_table(const tensor::TensorFile& file, const tensor::ModeTable& table) {
  using terminal::Align;
  if (!file.note.empty()) std::printf("%s\n", file.note.c_str());
  const tensor::Tensor& first = file.tensors.front();
  std::printf("%s, %zu tensor%s (%s %s%s), %s", tensor::kind_name(file.kind), file.tensors.size(),
              file.tensors.size() == 1 ? "" : "s", layout::element_name(first.element),
              tensor::shape_text(first.shape).c_str(), file.tensors.size() == 1 ? "" : ", ...",
              format_size(static_cast<double>(table.tensor_bytes)).c_str());
  if (table.measured_bytes < table.tensor_bytes) {
    std::printf("; the first %s measured (--limit)", format_size(static_cast<double>(table.measured_bytes)).c_str());
  }
  std::printf("\n%s kernel, one thread; memcpy %s GB/s\n\n", codec::codec_kernel_name(), fixed(table.memcpy / 1e9, 2).c_str());
  terminal::Table out({{"mode"},
                       {"ratio", Align::right},
                       {"compress GB/s", Align::right},
                       {"of memcpy", Align::right},
                       {"decompress GB/s", Align::right},
                       {"of memcpy", Align::right},
                       {"relative error", Align::right}});
  bool unused = false;
  for (const tensor::ModeRow& row : table.rows) {
    const bool not_used = codec::is_lossy(row.mode) && !row.lossy;
    unused = unused || not_used;
    out.add_row({std::string(codec::mode_name(row.mode)), fixed(row.ratio(), 3), fixed(row.compress / 1e9, 2),
                 fixed(row.compress / table.memcpy, 2), fixed(row.decompress / 1e9, 2),
                 fixed(row.decompress / table.memcpy, 2),
                 not_used ? "not used" : error_text(row.lossy, row.difference, row.value)});
  }
  std::fputs(out.render().c_str(), stdout);
  std::puts("\nGB of plain values a second, hashes included; relative error: squared differences to squared values");
  if (unused) std::puts("not used: values that the mode does not fit, and leaves without loss (kvbm codec compress says why)");
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

int bench(const Arguments& arguments, const Output& output) {
  tensor::Claims claims;
  tensor::TableOptions options;
  if (const int code = read_claims(arguments, claims); code != kDone) return code;
  if (const int code = read_modes(arguments.modes, options.modes); code != kDone) return code;
  const auto limit = terminal::parse_size(arguments.limit);
  if (!limit.ok()) return fail(limit.status());
  const auto input = tensor::Input::open(arguments.file);
  if (!input.ok()) return refuse(input.status(), arguments.file);
  const auto file = tensor::describe(input.value(), claims);
  if (!file.ok()) return refuse(file.status(), arguments.file);
  if (const int code = check_row(arguments, file.value()); code != kDone) return code;
  options.rounds = arguments.rounds;
  options.row = arguments.row;
  options.limit_bytes = std::max<uint64_t>(limit.value(), 1);
  options.quiet = output.json;
  const terminal::Interrupt interrupt;
  const auto table = tensor::measure_modes(input.value(), file.value(), options, &terminal::Interrupt::asked());
  if (!table.ok()) return refuse(table.status(), arguments.file);
  if (output.json) {
    print_json(file.value(), table.value());
  } else {
    print_table(file.value(), table.value());
  }
  return kDone;
}

void add_input(CLI::App& app, Arguments& arguments) {
  app.add_option("FILE", arguments.file, ".npy, safetensors or raw values; - for standard input")->required();
  app.add_option("--format", arguments.format, "auto, npy, safetensors or raw")
      ->check(CLI::IsMember({"auto", "npy", "safetensors", "raw"}))
      ->capture_default_str();
  app.add_option("--element", arguments.element, "Type of raw values, or what a uint16 or void .npy stands for")
      ->type_name("TYPE");
  app.add_option("--shape", arguments.shape, "Shape of raw values, as 30,2,512,192; the last dimension is a row")
      ->type_name("N,N,...");
  app.add_option("--row", arguments.row, "Values after which the same channel comes again, where it is not the last dimension")
      ->type_name("N");
}

void add_output(CLI::App& app, Arguments& arguments, const std::string& otherwise) {
  app.add_option("-o,--output", arguments.output, "File to write, - for standard output; " + otherwise)->type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace what is there");
}

}  // namespace

void add_codec(Registry& registry) {
  CLI::App& group = registry.add_group("codec", "Compress tensor files of KV, and measure the codecs on them");
  auto pack = std::make_shared<Arguments>();
  CLI::App& compressing = registry.add(group, "compress", "Code a tensor file; the same bytes come back, unless the mode is lossy",
                                       [pack](const Output& output) { return compress(*pack, output); });
  add_input(compressing, *pack);
  compressing.add_option("--mode", pack->mode, mode_names())->capture_default_str()->type_name("MODE");
  add_output(compressing, *pack, "FILE.kvbmz if not given");
  compressing.footer("Examples:\n  kvbm codec compress kv.npy\n  kvbm codec compress kv.bin --element bf16 --shape 30,2,512,192 --mode max");

  auto unpack = std::make_shared<Arguments>();
  CLI::App& decompressing = registry.add(group, "decompress", "Give back the file that compress coded",
                                         [unpack](const Output& output) { return decompress(*unpack, output); });
  decompressing.add_option("FILE", unpack->file, "What compress wrote; - for standard input")->required();
  add_output(decompressing, *unpack, "FILE without .kvbmz if not given");
  decompressing.add_flag("--allow-lossy", unpack->allow_lossy, "Take values that a lossy mode changed");
  decompressing.footer("Example:\n  kvbm codec decompress kv.npy.kvbmz -o again.npy");

  auto measure = std::make_shared<Arguments>();
  CLI::App& benching = registry.add(group, "bench", "Ratio, speed and error of each mode on a file",
                                    [measure](const Output& output) { return bench(*measure, output); });
  add_input(benching, *measure);
  benching.add_option("--modes", measure->modes, "Which modes, with commas; all if not given")->type_name("MODE,...");
  benching.add_option("--rounds", measure->rounds, "Rounds of which the median is told")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  benching.add_option("--limit", measure->limit, "Bytes of the file to measure")->type_name("SIZE")->capture_default_str();
  benching.footer("Example:\n  kvbm codec bench kv.npy --modes fast,default,max,zstd");
}

}  // namespace kvbm::command
