#include "benchmark/codec_path.h"

#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "base/random.h"
#include "benchmark/scratch.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

// 8 layers, K and V, 64 tokens, 8 heads of 64 bf16: 1 MiB a block.
constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint32_t kBlocks = 64;
constexpr uint64_t kDiskBytes = 320ULL << 20;
constexpr const char* kCodecs[] = {"off", "auto", "default"};
constexpr uint64_t kCaps[] = {0, 200ULL << 20};  // of reads, bytes a second

struct Free {
  void operator()(kvbm_geometry_t* geometry) const noexcept { kvbm_geometry_release(geometry); }
};
using Geometry = std::unique_ptr<kvbm_geometry_t, Free>;

// Values as those of a model: exponents within a few steps of each other, each channel about its own; the rest is noise.
void fill(SeededRandom& random, std::byte* out) {
  for (uint64_t i = 0; i < kBlockBytes / 2; ++i) {
    const uint64_t bits = random.next();
    const auto spread = static_cast<uint64_t>(__builtin_ctzll((bits >> 16) | 1U << 8));
    const uint64_t exponent = 124 + i % 64 % 5 - spread;
    const auto value = static_cast<uint16_t>((bits & 0x807F) | exponent << 7);
    std::memcpy(out + i * 2, &value, sizeof value);
  }
}

class Path {
 public:
  static Result<std::unique_ptr<Path>> open(const std::string& dir, const char* codec, uint64_t cap,
                                            const kvbm_geometry_t* geometry) {
    auto made = std::unique_ptr<Path>(new Path());
    StoreOptions options;
    options.block_bytes = kBlockBytes;
    options.slots = kBlocks;
    options.disk = dir;
    options.disk_bytes = kDiskBytes;
    options.disk_read_bytes_per_s = cap;
    options.admission = KVBM_ADMIT_ON_REQUEST;
    options.codec = codec;
    options.geometry = geometry;
    auto store = Store::open(options);
    if (!store.ok()) return store.status();
    made->store_ = std::move(store).value();
    return made;
  }

  // Fresh blocks go down; seconds until they are there. Nothing is left in the host then.
  Result<double> down(SeededRandom& random) {
    kvbm_manager_t* const manager = store_->manager();
    std::vector<kvbm_block_t> blocks(kBlocks);
    std::vector<kvbm_view_t> views(kBlocks);
    keys_.resize(kBlocks);
    kvbm_status_t status = kvbm_manager_allocate(manager, store_->ns(), kBlocks, blocks.data(), nullptr, 0, nullptr);
    if (status == KVBM_OK) status = kvbm_block_view(manager, blocks.data(), kBlocks, views.data());
    if (status != KVBM_OK) return failed("blocks could not be allocated", status);
    for (size_t i = 0; i < kBlocks; ++i) {
      const uint64_t words[2] = {random.next(), random.next()};
      std::memcpy(keys_[i].bytes, words, sizeof words);
      fill(random, static_cast<std::byte*>(views[i].data));
    }
    status = kvbm_manager_complete(manager, blocks.data(), kBlocks, nullptr);
    if (status == KVBM_OK)
      status = kvbm_manager_register(manager, store_->ns(), blocks.data(), keys_.data(), kBlocks, nullptr);
    kvbm_block_release(manager, blocks.data(), kBlocks);
    const Stopwatch watch;
    if (status == KVBM_OK)
      status = kvbm_manager_offload(manager, store_->ns(), nullptr, keys_.data(), kBlocks, 1, nullptr, 0);
    const double seconds = watch.seconds();
    if (status == KVBM_OK) status = kvbm_manager_allocate(manager, store_->ns(), kBlocks, blocks.data(), nullptr, 0, nullptr);
    if (status == KVBM_OK) kvbm_block_release(manager, blocks.data(), kBlocks);
    return status == KVBM_OK ? Result<double>(seconds) : failed("blocks could not be written", status);
  }

  Result<double> up() {
    const Stopwatch watch;
    const kvbm_status_t status = kvbm_manager_prefetch(store_->manager(), store_->ns(), nullptr, keys_.data(), kBlocks,
                                                       nullptr, 0);
    return status == KVBM_OK ? Result<double>(watch.seconds()) : failed("blocks could not be brought up", status);
  }

  [[nodiscard]] double ratio() const {
    const auto codec = store_->stats().codec[1];
    return codec.stored_bytes == 0 ? 1 : static_cast<double>(codec.plain_bytes) / static_cast<double>(codec.stored_bytes);
  }

 private:
  Path() = default;
  std::unique_ptr<Store> store_;
  std::vector<kvbm_key_t> keys_;
};

struct Samples {
  std::vector<double> down, up;
};

// One cap: the ways one after the other in each round, so that what disturbs one disturbs all.
Status measure(const std::string& dir, uint64_t cap, const kvbm_geometry_t* geometry, int rounds,
               terminal::Progress& progress, std::vector<Row>& rows) {
  std::vector<std::unique_ptr<Path>> paths;
  for (const char* codec : kCodecs) {
    auto path = Path::open(dir + "/" + codec + (cap != 0 ? "-capped" : ""), codec, cap, geometry);
    if (!path.ok()) return path.status();
    paths.push_back(std::move(path).value());
  }
  std::vector<Samples> samples(paths.size());
  SeededRandom random(cap + 1);
  for (int round = -1; round < rounds; ++round) {  // the first is for auto to learn
    for (size_t i = 0; i < paths.size(); ++i) {
      const auto down = paths[i]->down(random);
      if (!down.ok()) return down.status();
      const auto up = paths[i]->up();
      if (!up.ok()) return up.status();
      if (round < 0) continue;
      samples[i].down.push_back(down.value());
      samples[i].up.push_back(up.value());
    }
    progress.advance(1);
  }
  const std::string name = cap == 0 ? "codec_path.disk" : "codec_path.capped";
  constexpr double kGb = static_cast<double>(kBlocks * kBlockBytes) / 1e9;
  for (size_t i = 1; i < paths.size(); ++i) {
    const std::string which = std::string(".") + kCodecs[i];
    rows.push_back(more_is_better(name + which + ".up", kGb / median(samples[i].up), "GB/s",
                                  kGb / median(samples[0].up), "codec off"));
    rows.push_back(more_is_better(name + which + ".down", kGb / median(samples[i].down), "GB/s",
                                  kGb / median(samples[0].down), "codec off"));
    Row shrink;
    shrink.name = name + which + ".ratio";
    shrink.value = paths[i]->ratio();
    shrink.unit = "x";
    rows.push_back(std::move(shrink));
  }
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_codec_path(const CodecPathOptions& options) {
  const Scratch scratch(options.dir);
  if (scratch.path().empty()) return Status(Code::invalid_argument, "cannot make a directory in --dir", options.dir);
  kvbm_component_t component{};
  component.kind = KVBM_COMPONENT_ATTENTION;
  component.element = KVBM_ELEMENT_BF16;
  component.layers = 8;
  component.heads = 8;
  component.head_dim = 64;
  kvbm_geometry_t* made = nullptr;
  kvbm_error_t error{};
  const kvbm_status_t status = kvbm_geometry_create(64, 1, &component, 1, &made, &error);
  if (status != KVBM_OK) return failed("the geometry could not be made", status, &error);
  const Geometry geometry(made);
  terminal::Progress progress("codec_path", std::size(kCaps) * static_cast<size_t>(options.rounds + 1),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const uint64_t cap : kCaps) {
    const Status done = measure(scratch.path(), cap, geometry.get(), options.rounds, progress, rows);
    if (!done.ok()) return done;
  }
  progress.finish();
  return rows;
}

}  // namespace kvbm::benchmark
