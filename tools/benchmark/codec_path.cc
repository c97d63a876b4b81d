#include "benchmark/codec_path.h"

#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "base/crypto/random.h"
#include "benchmark/kv_sample.h"
#include "benchmark/scratch.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint32_t kPathTokens = 64;  // of a block
constexpr uint32_t kPathBlocks = 40;
constexpr uint64_t kPathDiskBytes = 320ULL << 20;
constexpr const char* kCodecs[] = {"off", "auto", "default"};
constexpr uint64_t kCaps[] = {0, 200ULL << 20};  // caps on reads, bytes per second

struct Free {
  void operator()(kvbm_geometry_t* geometry) const noexcept { kvbm_geometry_release(geometry); }
};
using PathGeometry = std::unique_ptr<kvbm_geometry_t, Free>;

// Records of a model's KV: [layer][K, V][head][token][element], one after the other.
struct Records {
  std::vector<std::byte> values;
  uint64_t bytes = 0;  // of one record
  PathGeometry geometry;
  [[nodiscard]] const std::byte* at(uint64_t i) const { return values.data() + i * bytes % values.size(); }
};

// Returns the sample with blocks outermost, where in_blocks has them below layer and plane.
Result<Records> records_of(const std::string& input, uint32_t head_dim) {
  auto sample = input.empty() ? make_kv(false) : load_kv(input, head_dim, false);
  if (!sample.ok()) return sample.status();
  if (sample.value().tokens < kPathTokens)
    return Status(Code::invalid_argument, "fewer than 64 tokens make no block", input);
  const auto blocks = in_blocks(sample.value(), kPathTokens, false);
  if (!blocks.ok()) return blocks.status();
  const KvSample& from = blocks.value();
  Records records;
  records.values.resize(from.bytes());
  const uint64_t planes = 2ULL * from.layers;
  const uint64_t count = from.tokens / kPathTokens;
  const uint64_t leaf = from.plane_bytes() / count;
  records.bytes = planes * leaf;
  for (uint64_t p = 0; p < planes; ++p) {
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(records.values.data() + i * records.bytes + p * leaf, from.values->data() + (p * count + i) * leaf,
                  leaf);
    }
  }
  kvbm_component_t component{};
  component.kind = KVBM_COMPONENT_ATTENTION;
  component.element = from.element == layout::Element::fp16 ? KVBM_ELEMENT_FP16 : KVBM_ELEMENT_BF16;
  component.layers = from.layers;
  component.heads = from.heads;
  component.head_dim = from.head_dim;
  kvbm_geometry_t* made = nullptr;
  kvbm_error_t error{};
  const kvbm_status_t status = kvbm_geometry_create(kPathTokens, 1, &component, 1, &made, &error);
  if (status != KVBM_OK) return failed("the geometry could not be made", status, &error);
  records.geometry.reset(made);
  return records;
}

class Path {
 public:
  static Result<std::unique_ptr<Path>> open(const std::string& dir, const char* codec, uint64_t cap,
                                            const Records& records) {
    auto made = std::unique_ptr<Path>(new Path(records));
    StoreOptions options;
    options.block_bytes = records.bytes;
    options.slots = kPathBlocks;
    options.disk = dir;
    options.disk_bytes = kPathDiskBytes;
    options.disk_read_bytes_per_s = cap;
    options.admission = KVBM_ADMIT_ON_REQUEST;
    options.codec = codec;
    options.geometry = records.geometry.get();
    auto store = Store::open(options);
    if (!store.ok()) return store.status();
    made->store_ = std::move(store).value();
    return made;
  }

  // Stores new blocks and returns the seconds until the disk has them. The host keeps none of them.
  Result<double> down(SeededRandom& random) {
    kvbm_manager_t* const manager = store_->manager();
    std::vector<kvbm_block_t> blocks(kPathBlocks);
    std::vector<kvbm_view_t> views(kPathBlocks);
    keys_.resize(kPathBlocks);
    kvbm_status_t status =
        kvbm_manager_allocate(manager, store_->ns(), kPathBlocks, blocks.data(), nullptr, 0, nullptr);
    if (status == KVBM_OK) status = kvbm_block_view(manager, blocks.data(), kPathBlocks, views.data());
    if (status != KVBM_OK) return failed("blocks could not be allocated", status);
    for (size_t i = 0; i < kPathBlocks; ++i) {
      const uint64_t words[2] = {random.next(), random.next()};
      std::memcpy(keys_[i].bytes, words, sizeof words);
      std::memcpy(views[i].data, records_.at(i), records_.bytes);
    }
    status = kvbm_manager_complete(manager, blocks.data(), kPathBlocks, nullptr);
    if (status == KVBM_OK)
      status = kvbm_manager_register(manager, store_->ns(), blocks.data(), keys_.data(), kPathBlocks, nullptr);
    kvbm_block_release(manager, blocks.data(), kPathBlocks);
    const Stopwatch watch;
    if (status == KVBM_OK)
      status = kvbm_manager_offload(manager, store_->ns(), nullptr, keys_.data(), kPathBlocks, 1, nullptr, 0);
    const double seconds = watch.seconds();
    if (status == KVBM_OK)
      status = kvbm_manager_allocate(manager, store_->ns(), kPathBlocks, blocks.data(), nullptr, 0, nullptr);
    if (status == KVBM_OK) kvbm_block_release(manager, blocks.data(), kPathBlocks);
    return status == KVBM_OK ? Result<double>(seconds) : failed("blocks could not be written", status);
  }

  Result<double> up() {
    const Stopwatch watch;
    const kvbm_status_t status =
        kvbm_manager_prefetch(store_->manager(), store_->ns(), nullptr, keys_.data(), kPathBlocks, nullptr, 0);
    return status == KVBM_OK ? Result<double>(watch.seconds()) : failed("blocks could not be brought up", status);
  }

  [[nodiscard]] double ratio() const {
    const auto codec = store_->stats().codec[1];
    return codec.stored_bytes == 0 ? 1
                                   : static_cast<double>(codec.plain_bytes) / static_cast<double>(codec.stored_bytes);
  }

 private:
  explicit Path(const Records& records) : records_(records) {}
  const Records& records_;
  std::unique_ptr<Store> store_;
  std::vector<kvbm_key_t> keys_;
};

struct PathSamples {
  std::vector<double> down, up, both;
};

// Measures one cap. Each round measures all codecs, and each codec is first equally often, because a disk is slower
// just after a write.
Status measure(const std::string& dir, uint64_t cap, const Records& records, int rounds, terminal::Progress& progress,
               std::vector<Row>& rows) {
  std::vector<std::unique_ptr<Path>> paths;
  for (const char* codec : kCodecs) {
    auto path = Path::open(dir + "/" + codec + (cap != 0 ? "-capped" : ""), codec, cap, records);
    if (!path.ok()) return path.status();
    paths.push_back(std::move(path).value());
  }
  std::vector<PathSamples> samples(paths.size());
  SeededRandom random(cap + 1);
  for (int round = -1; round < rounds; ++round) {  // the first round lets auto learn
    for (size_t k = 0; k < paths.size(); ++k) {
      const size_t i = (k + static_cast<size_t>(round + 1)) % paths.size();
      const auto down = paths[i]->down(random);
      if (!down.ok()) return down.status();
      const auto up = paths[i]->up();
      if (!up.ok()) return up.status();
      if (round < 0) continue;
      samples[i].down.push_back(down.value());
      samples[i].up.push_back(up.value());
      samples[i].both.push_back(down.value() + up.value());
    }
    progress.advance(1);
  }
  const std::string name = cap == 0 ? "codec_path.disk." : "codec_path.capped.";
  const double gb = static_cast<double>(kPathBlocks * records.bytes) / 1e9;
  const std::pair<const char*, std::vector<double> PathSamples::*> ways[] = {
      {".up", &PathSamples::up}, {".down", &PathSamples::down}, {".both", &PathSamples::both}};
  for (size_t i = 1; i < paths.size(); ++i) {
    for (const auto& [way, of] : ways) {
      rows.push_back(more_is_better(name + kCodecs[i] + way, gb / median(samples[i].*of), "GB/s",
                                    gb / median(samples[0].*of), "codec off"));
    }
    Row shrink;
    shrink.name = name + kCodecs[i] + ".ratio";
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
  const auto records = records_of(options.input, options.head_dim);
  if (!records.ok()) return records.status();
  terminal::Progress progress("codec_path", std::size(kCaps) * static_cast<size_t>(options.rounds + 1),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const uint64_t cap : kCaps) {
    const Status done = measure(scratch.path(), cap, records.value(), options.rounds, progress, rows);
    if (!done.ok()) return done;
  }
  progress.finish();
  return rows;
}

}  // namespace kvbm::benchmark
