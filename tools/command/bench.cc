#include "command/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "benchmark/codec.h"
#include "benchmark/codec_path.h"
#include "benchmark/copy.h"
#include "benchmark/cost.h"
#include "benchmark/disk.h"
#include "benchmark/gpu.h"
#include "benchmark/gpu_host.h"
#include "benchmark/host_calls.h"
#include "benchmark/index.h"
#include "benchmark/keys.h"
#include "benchmark/managed.h"
#include "benchmark/node_codec.h"
#include "benchmark/node_kill.h"
#include "benchmark/node_protect.h"
#include "benchmark/node_tcp.h"
#include "benchmark/object_store.h"
#include "benchmark/row.h"
#include "benchmark/same_host.h"
#include "benchmark/session.h"
#include "benchmark/transport.h"
#include "device/driver/driver_library.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

using benchmark::Row;

struct BenchOptions {
  int rounds = 15;
  int disk_rounds = 9;
  int cost_rounds = 3;
  int store_rounds = 5;
  std::string url;
  std::string dir = ".";
  std::vector<std::string> inputs;
  uint32_t head_dim = 64;
  bool huge_pages = false;
  bool only_codec = false;
  bool only_protect = false;
  int device = 0;
  std::string library;
  std::string bytes = "256MiB";
  uint32_t multiprocessors = 8;
  double gpu_seconds = 60;
  bool gpu_host = false;
};

// Formats a value with about four significant digits.
std::string number(double value) {
  char text[32];
  const double size = std::fabs(value);
  const bool tiny = size != 0 && size < 0.01;
  std::snprintf(text, sizeof text,
                tiny           ? "%.2e"
                : size >= 1000 ? "%.0f"
                : size >= 100  ? "%.1f"
                : size >= 10   ? "%.2f"
                               : "%.3f",
                value);
  return text;
}

void print_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json out{{"name", row.name}, {"value", row.value}, {"unit", row.unit}};
    if (row.limit) {
      out["limit"] = *row.limit;
      out["limit_name"] = row.limit_name;
    }
    if (row.ratio) out["ratio"] = *row.ratio;
    if (row.bound) {
      out["bound"] = *row.bound;
      out["bound_name"] = row.bound_name;
    }
    list.push_back(std::move(out));
  }
  std::printf("%s\n", list.dump(2).c_str());
}

void print_table(const std::vector<Row>& rows) {
  using terminal::Align;
  const bool bounds = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.bound.has_value(); });
  std::vector<terminal::Table::Column> columns{
      {"what"}, {"value", Align::right}, {"unit"}, {"limit", Align::right}, {"ratio", Align::right}, {"the limit is"}};
  if (bounds) columns.insert(columns.end(), {{"at most", Align::right}, {"by arithmetic"}});
  terminal::Table table(std::move(columns));
  for (const Row& row : rows) {
    std::vector<std::string> cells{row.name,
                                   number(row.value),
                                   row.unit,
                                   row.limit ? number(*row.limit) : "",
                                   row.ratio ? number(*row.ratio) : "",
                                   row.limit_name};
    if (bounds) cells.insert(cells.end(), {row.bound ? number(*row.bound) : "", row.bound_name});
    table.add_row(std::move(cells));
  }
  std::fputs(table.render().c_str(), stdout);
  std::puts("\nratio: 1 is the limit, higher is better");
}

int finish(const Result<std::vector<Row>>& rows, const Output& output) {
  if (!rows.ok()) return fail(rows.status());
  if (output.json) {
    print_json(rows.value());
  } else {
    print_table(rows.value());
  }
  return kDone;
}

int run_object_store(const BenchOptions& options, const Output& output) {
  benchmark::ObjectStoreOptions store;
  store.url = options.url;
  store.rounds = options.store_rounds;
  store.quiet = output.json;
  return finish(benchmark::bench_object_store(store), output);
}

int run_disk(const BenchOptions& options, const Output& output) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.dir, error)) {
    return fail(kBadInput, "--dir " + options.dir + " is not a directory", "give one on the disk to be measured");
  }
  benchmark::DiskOptions disk;
  disk.dir = options.dir;
  disk.rounds = options.disk_rounds;
  disk.quiet = output.json;
  return finish(benchmark::bench_disk(disk), output);
}

int run_cost(const BenchOptions& options, const Output& output) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.dir, error)) {
    return fail(kBadInput, "--dir " + options.dir + " is not a directory", "give one on any disk");
  }
  return finish(benchmark::bench_cost({options.dir, options.cost_rounds, output.json}), output);
}

int run_codec(const BenchOptions& options, const Output& output) {
  if (options.inputs.empty()) {
    std::fputs("kvbm: note: no --input, so values are made up, and figures are indicative only\n", stderr);
  }
  return finish(
      benchmark::bench_codec({options.inputs, options.head_dim, options.rounds, output.json, options.huge_pages}),
      output);
}

int run_codec_path(const BenchOptions& options, const Output& output) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.dir, error)) {
    return fail(kBadInput, "--dir " + options.dir + " is not a directory", "give one on the disk to be measured");
  }
  if (options.inputs.size() > 1) return fail(kBadInput, "--input is given more than once", "this benchmark takes one");
  benchmark::CodecPathOptions path;
  path.dir = options.dir;
  if (!options.inputs.empty()) path.input = options.inputs.front();
  path.head_dim = options.head_dim;
  path.rounds = options.disk_rounds;
  path.quiet = output.json;
  return finish(benchmark::bench_codec_path(path), output);
}

int run_gpu(const BenchOptions& options, const Output& output) {
  if (options.gpu_host) return finish(benchmark::bench_gpu_host({options.rounds, output.json}), output);
  const auto bytes = terminal::parse_size(options.bytes);
  if (!bytes.ok()) return fail(kBadInput, "--bytes: " + bytes.status().message());
  constexpr uint64_t kLeast = 4ULL << 20;  // a page of each kind, twice
  if (bytes.value() < kLeast) {
    return fail(kBadInput, "--bytes " + options.bytes + " is too little: at least 4 MiB", "leave it out for 256MiB");
  }
  if (bytes.value() % kLeast != 0) {
    return fail(kBadInput, "--bytes " + options.bytes + " is not a multiple of 4 MiB", "leave it out for 256MiB");
  }
  const auto library = device::driver_library(options.library);
  if (!library.ok()) return fail(library.status(), "there is nothing to measure without an NVIDIA GPU and its driver");
  benchmark::GpuOptions gpu;
  gpu.device = options.device;
  gpu.rounds = options.rounds;
  gpu.bytes = bytes.value();
  gpu.multiprocessors = options.multiprocessors;
  gpu.seconds = options.gpu_seconds;
  gpu.quiet = output.json;
  const auto figures = benchmark::bench_gpu(library.value()->driver, gpu);
  if (!figures.ok()) return fail(figures.status());
  std::fprintf(stderr, "kvbm: note: measured on %s\n", figures.value().device.c_str());
  if (figures.value().cut != 0) {
    std::fprintf(
        stderr,
        "kvbm: note: %llu figures had fewer rounds than --rounds %d: the device is too slow for them in --seconds %g\n",
        static_cast<unsigned long long>(figures.value().cut), options.rounds, options.gpu_seconds);
  }
  return finish(figures.value().rows, output);
}

Option add_rounds(Command app, int& rounds) {
  return app.add_option("--rounds", rounds, "Number of rounds; their median is reported").type_name("N").range(1, 1000);
}

void add_input(Command app, BenchOptions& options) {
  app.add_option("--input", options.inputs,
                 "KV as .npy, (layers, 2, tokens, heads * dim) of bf16 or fp16; made up without it. `bench codec` "
                 "takes one of each")
      .type_name("FILE");
  app.add_option("--head-dim", options.head_dim, "Values of a head").type_name("N").range(1, 65536).show_default();
}

// Measures bare copies, then whole calls, each of which makes such copies.
int bench_copy(const BenchOptions& options, const Output& output) {
  auto rows = benchmark::bench_copy({options.rounds, output.json});
  if (!rows.ok()) return finish(rows, output);
  const auto calls = benchmark::bench_host_calls({options.rounds, output.json});
  if (!calls.ok()) return finish(calls, output);
  rows.value().insert(rows.value().end(), calls.value().begin(), calls.value().end());
  return finish(rows, output);
}

// Measures reads in place on the same host, then from a node over TCP, then when nodes are killed, then coded
// transfers.
int bench_node(const BenchOptions& options, const Output& output) {
  const int rounds = options.rounds;
  if (options.inputs.size() > 1) return fail(kBadInput, "--input is given more than once", "this benchmark takes one");
  if (options.only_protect) return finish(benchmark::bench_node_protect({rounds, output.json}), output);
  benchmark::NodeCodecOptions coding;
  coding.rounds = rounds;
  if (!options.inputs.empty()) coding.input = options.inputs.front();
  coding.head_dim = options.head_dim;
  coding.quiet = output.json;
  const auto coded = benchmark::bench_node_codec(coding);
  if (options.only_codec || !coded.ok()) return finish(coded, output);
  auto rows = benchmark::bench_same_host({rounds, output.json});
  if (!rows.ok()) return finish(rows, output);
  const auto tcp = benchmark::bench_node_tcp({rounds, output.json});
  if (!tcp.ok()) return finish(tcp, output);
  const auto guarded = benchmark::bench_node_protect({rounds, output.json});
  if (!guarded.ok()) return finish(guarded, output);
  const auto killed = benchmark::bench_node_kill({rounds, output.json});
  if (!killed.ok()) return finish(killed, output);
  rows.value().insert(rows.value().end(), tcp.value().begin(), tcp.value().end());
  rows.value().insert(rows.value().end(), guarded.value().begin(), guarded.value().end());
  rows.value().insert(rows.value().end(), killed.value().begin(), killed.value().end());
  rows.value().insert(rows.value().end(), coded.value().begin(), coded.value().end());
  return finish(rows, output);
}

void add_store(Registry& registry, Command group, const std::shared_ptr<BenchOptions>& options) {
  Command store = registry.add(group, "store", "Blocks into a store and back, against the store's own requests",
                               [options](const Output& output) { return run_object_store(*options, output); });
  store
      .add_option("--store", options->url,
                  "A place in a store that nothing uses; 128 MiB at a time are written there and removed")
      .type_name("URL")
      .required();
  store.add_option("--rounds", options->store_rounds, "Number of rounds; their median is reported")
      .type_name("N")
      .range(1, 100);
  store.footer("Example:\n  kvbm bench store --store 's3://bucket/bench?endpoint=http://127.0.0.1:9000' --json");
}

void add_gpu(Registry& registry, Command group, const std::shared_ptr<BenchOptions>& options) {
  Command gpu = registry.add(group, "gpu",
                             "Blocks between a GPU's memory and the host, coded ones too, against the GPU's own copies",
                             [options](const Output& output) { return run_gpu(*options, output); });
  add_rounds(gpu, options->rounds);
  gpu.add_option("--device", options->device, "The GPU, counted as CUDA does")
      .type_name("N")
      .range(0, 1023)
      .show_default();
  gpu.add_option("--bytes", options->bytes, "Moved in one sample; the GPU needs twice that, the host once")
      .type_name("SIZE")
      .show_default();
  gpu.add_option("--multiprocessors", options->multiprocessors, "Multiprocessors that kernels of transfers use")
      .type_name("N")
      .range(1, 1024)
      .show_default();
  gpu.add_option("--seconds", options->gpu_seconds,
                 "For the rounds of all figures; one that is too slow for its share has fewer rounds")
      .type_name("N")
      .range(0.0, 86400.0)
      .show_default();
  gpu.add_option("--cuda-library", options->library, "CUDA driver to use, as the option device.library; libcuda.so.1")
      .type_name("FILE")
      .environment("KVBM_DEVICE_LIBRARY");
  gpu.add_flag("--host", options->gpu_host,
               "Measure instead the processor time of a block, with a driver whose calls cost nothing; needs no GPU");
  gpu.footer("Example:\n  kvbm bench gpu --json");
}

}  // namespace

void add_bench(Registry& registry) {
  Command group = registry.add_group("bench", "Measure this build on this machine, each figure beside its limit");
  auto options = std::make_shared<BenchOptions>();
  Command index = registry.add(group, "index", "Naming, finding and recycling blocks, against a hash map",
                               [options](const Output& output) {
                                 return finish(benchmark::bench_index({options->rounds, output.json}), output);
                               });
  add_rounds(index, options->rounds);
  index.footer("Example:\n  kvbm bench index --json");
  Command disk = registry.add(group, "disk", "The disk tier, against raw io_uring in the same directory",
                              [options](const Output& output) { return run_disk(*options, output); });
  add_rounds(disk, options->disk_rounds);
  disk.add_option("--dir", options->dir, "Directory on the disk to measure; needs 5 GiB for a minute").type_name("DIR");
  disk.footer("Example:\n  kvbm bench disk --dir /mnt/nvme --json");
  add_store(registry, group, options);
  Command cost = registry.add(group, "cost", "Loads that know what computing takes, against the better of both",
                              [options](const Output& output) { return run_cost(*options, output); });
  cost.add_option("--rounds", options->cost_rounds, "Number of rounds; their median is reported")
      .type_name("N")
      .range(1, 1000);
  cost.add_option("--dir", options->dir, "Directory on any disk; needs 512 MiB for half a minute").type_name("DIR");
  cost.footer("Example:\n  kvbm bench cost --dir /mnt/nvme --json");
  Command coding = registry.add(group, "codec", "Codecs on leaves of KV, against memcpy; sealing, against OpenSSL",
                                [options](const Output& output) { return run_codec(*options, output); });
  add_rounds(coding, options->rounds);
  add_input(coding, *options);
  coding.add_flag("--huge-pages", options->huge_pages,
                  "Buffers in huge pages, as the host tier's; memcpy gains most by it");
  coding.footer("Example:\n  kvbm bench codec --json --input kv_bf16.npy --input kv_fp16.npy");
  Command path = registry.add(group, "codec_path", "Blocks to a disk and back with coding auto, against off",
                              [options](const Output& output) { return run_codec_path(*options, output); });
  add_rounds(path, options->disk_rounds);
  path.add_option("--dir", options->dir, "Directory on the disk to measure; needs 2 GiB").type_name("DIR");
  add_input(path, *options);
  path.footer("Example:\n  kvbm bench codec_path --dir /mnt/nvme --json --input kv_bf16.npy");
  Command copy =
      registry.add(group, "copy", "Verified copies, against memcpy; stores and loads of the host tier, against copies",
                   [options](const Output& output) { return bench_copy(*options, output); });
  add_rounds(copy, options->rounds);
  copy.footer("Example:\n  kvbm bench copy");
  add_gpu(registry, group, options);
  Command session = registry.add(group, "session", "Prefill->decode sessions: planning and re-slicing, against memcpy",
                                 [options](const Output& output) {
                                   return finish(benchmark::bench_session({options->rounds, output.json}), output);
                                 });
  add_rounds(session, options->rounds);
  session.footer("Example:\n  kvbm bench session --rounds 5");
  Command keys = registry.add(group, "keys", "Deriving block keys from tokens, against bare SHA-256",
                              [](const Output& output) { return finish(benchmark::bench_keys(), output); });
  keys.footer("Example:\n  kvbm bench keys");
  Command managed =
      registry.add(group, "managed", "Registering blocks that are hashed then, and storing; against the hash",
                   [options](const Output& output) {
                     return finish(benchmark::bench_managed({options->rounds, output.json}), output);
                   });
  add_rounds(managed, options->rounds);
  managed.footer("Example:\n  kvbm bench managed --json");
  Command node =
      registry.add(group, "node", "Blocks from other processes: in place, and over TCP; against memcpy and sockets",
                   [options](const Output& output) { return bench_node(*options, output); });
  add_rounds(node, options->rounds);
  node.add_flag("--codec", options->only_codec,
                "Only node.tcp.codec.* and node.tcp.session_codec.*: coded where that pays, against plain");
  node.add_flag("--protect", options->only_protect,
                "Only node.tcp.off.*, .authenticate.* and .encrypt.*: protected links, against sockets");
  add_input(node, *options);
  node.footer(
      "Examples:\n  kvbm bench node --json\n  kvbm bench node --protect\n  kvbm bench node --codec --input "
      "kv_bf16.npy");
  Command transport = registry.add(group, "transport", "The TCP transport on loopback, against plain blocking sockets",
                                   [options](const Output& output) {
                                     return finish(benchmark::bench_transport({options->rounds, output.json}), output);
                                   });
  add_rounds(transport, options->rounds);
  transport.footer("Example:\n  kvbm bench transport");
}

}  // namespace kvbm::command
