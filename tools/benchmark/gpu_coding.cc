#include "benchmark/gpu_coding.h"

#include <cstring>
#include <string>
#include <utility>

#include "benchmark/gpu_bound.h"
#include "benchmark/kv_sample.h"
#include "benchmark/statistics.h"
#include "codec/coded/coded_stream.h"
#include "codec/coded/strided_bytes.h"
#include "codec/lossless/zstd_leaf.h"
#include "device/coder/block_coder.h"

namespace kvbm::benchmark {

namespace {

constexpr const char* kLimit = "cuMemcpyAsync, one piece, pinned, plain";
constexpr uint64_t kCodingPage = 32ULL << 10;
constexpr uint32_t kCodingRow = 64;  // of the sample: an element of a head
constexpr codec::LeafForm kForm{codec::Element::bf16, kCodingRow, static_cast<uint32_t>(kCodingPage / 2 / kCodingRow)};
// Number of places in the records' memory: two for each coded stream, one for each plain copy.
constexpr uint64_t kPlaces = 8;

// A mode that the processor codes and kernels decode; a mode that kernels do completely; and zstd, of which kernels
// split and merge planes.
std::vector<codec::Mode> modes() {
  std::vector<codec::Mode> all{codec::Mode::standard, codec::Mode::int8};
  if (codec::has_zstd()) all.push_back(codec::Mode::zstd);
  return all;
}

// Blocks of a cache on the device, and places in pinned memory for their streams and copies.
class Coding {
 public:
  Coding(GpuWorld& world, const GpuOptions& options)
      : world_(world),
        shape_(paged_shape(kCodingPage, world.bytes() / kPlaces)),
        blocks_(runs_of(world.leaves(shape_, shape_.blocks))),
        coder_(world.shared_device(), coder_options(options)) {}

  // Fills the pages with made-up values, in the order of their blocks.
  Status prepare() {
    if (shape_.bytes() > part() || codec::stream_room(kForm, shape_.bytes()) > 2 * part()) {
      return {Code::internal, "a sample does not fit its place"};
    }
    const auto sample = make_kv(false);
    if (!sample.ok()) return sample.status();
    const uint64_t pages = sample.value().bytes() / kCodingPage;
    for (uint64_t i = 0; i < shape_.bytes() / kCodingPage; ++i) {
      const ConstBytes page = sample.value().all().subspan(i % pages * kCodingPage, kCodingPage);
      std::memcpy(plain() + i * kCodingPage, page.data(), kCodingPage);
      std::memcpy(spare() + offset_of(i), page.data(), kCodingPage);
    }
    return world_.copy(world_.cache(), world_.host(spare()), shape_.bytes()).status();
  }

  // Runs both directions once and compares all results. coded() then has the input of decode().
  Status check(codec::Mode mode) {
    const auto made =
        codec::encode_stream(kForm, mode, {plain(), shape_.bytes()}, {reference(), 2 * part()}, workspace_);
    if (!made.ok()) return made.status();
    if (const auto seconds = encode(mode); !seconds.ok()) return seconds.status();
    if (size_ != made.value()) return {Code::damaged, "blocks were coded to another size than the processor's"};
    // The sums of lost values may differ in their last digits, so the decoded values of both are compared.
    if (Status s = decode_here(reference(), decoded()); !s.ok()) return s;
    if (Status s = decode_here(coded(), spare()); !s.ok()) return s;
    if (std::memcmp(spare(), decoded(), shape_.bytes()) != 0) return {Code::damaged, "blocks were coded wrong"};
    if (!codec::is_lossy(mode) && std::memcmp(decoded(), plain(), shape_.bytes()) != 0) {
      return {Code::damaged, "blocks do not come back as they were"};
    }
    if (Status s = world_.fill(world_.spare(), 0xFF, shape_.bytes()); !s.ok()) return s;
    if (const auto seconds = decode(); !seconds.ok()) return seconds.status();
    if (Status s = world_.copy(world_.host(spare()), world_.spare(), shape_.bytes()).status(); !s.ok()) return s;
    for (uint64_t i = 0; i < shape_.bytes() / kCodingPage; ++i) {
      if (std::memcmp(spare() + offset_of(i), decoded() + i * kCodingPage, kCodingPage) != 0) {
        return {Code::damaged, "a page was decoded wrong", std::to_string(i)};
      }
    }
    return {};
  }

  Result<double> encode(codec::Mode mode) {
    const Stopwatch watch;
    const auto made = coder_.encode(kForm, mode, blocks_, nullptr, {coded(), 2 * part()}, workspace_);
    const double seconds = watch.seconds();
    if (!made.ok()) return made.status();
    size_ = made.value();
    return seconds;
  }
  // Decodes into pages of other memory, at the offsets of the cache's pages.
  Result<double> decode() {
    std::vector<StridedRun> runs = blocks_.runs();
    for (StridedRun& run : runs) run.data = reinterpret_cast<std::byte*>(world_.spare() + at_of(run));
    const codec::StridedBytes to(std::move(runs));
    const Stopwatch watch;
    const auto view = codec::StreamView::parse({coded(), size_});
    const Status done = view.ok() ? coder_.decode(view.value(), true, to, nullptr, workspace_) : view.status();
    const double seconds = watch.seconds();
    return done.ok() ? Result<double>(seconds) : done;
  }
  Result<double> copy_out() { return world_.copy(world_.host(spare()), world_.cache(), shape_.bytes()); }
  Result<double> copy_in() { return world_.copy(world_.spare(), world_.host(plain()), shape_.bytes()); }
  [[nodiscard]] double gigabytes() const { return static_cast<double>(shape_.bytes()) / 1e9; }

 private:
  static device::CoderOptions coder_options(const GpuOptions& options) {
    device::CoderOptions out;
    out.multiprocessors = options.multiprocessors;
    return out;
  }
  static codec::StridedBytes runs_of(const std::vector<device::LeafMove>& leaves) {
    std::vector<StridedRun> runs;
    runs.reserve(leaves.size());
    for (const device::LeafMove& leaf : leaves) runs.push_back(leaf.device);
    return codec::StridedBytes(std::move(runs));
  }
  // Returns a page's offset in the cache.
  [[nodiscard]] uint64_t at_of(const StridedRun& run) const {
    return reinterpret_cast<device::CuPointer>(run.data) - world_.cache();
  }
  [[nodiscard]] uint64_t offset_of(uint64_t page) const { return at_of(blocks_.runs()[page]); }
  Status decode_here(const std::byte* stream, std::byte* to) {
    const auto view = codec::StreamView::parse({stream, size_});
    return view.ok() ? view.value().decode(true, {to, shape_.bytes()}, workspace_) : view.status();
  }
  [[nodiscard]] uint64_t part() const { return world_.bytes() / kPlaces; }
  [[nodiscard]] std::byte* coded() const { return world_.records(); }
  [[nodiscard]] std::byte* reference() const { return world_.records() + 2 * part(); }
  [[nodiscard]] std::byte* plain() const { return world_.records() + 4 * part(); }
  [[nodiscard]] std::byte* decoded() const { return world_.records() + 5 * part(); }
  [[nodiscard]] std::byte* spare() const { return world_.records() + 6 * part(); }

  GpuWorld& world_;
  const PagedShape shape_;
  const codec::StridedBytes blocks_;
  device::BlockCoder coder_;
  codec::Workspace workspace_;
  uint64_t size_ = 0;  // of the coded stream
};

}  // namespace

uint64_t gpu_coding_figures() noexcept { return codec::has_zstd() ? 6 : 4; }

Status bench_gpu_coding(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows) {
  Coding coding(world, options);
  if (Status s = coding.prepare(); !s.ok()) return s;
  for (const codec::Mode mode : modes()) {
    if (Status s = coding.check(mode); !s.ok()) return s;
    Samples encode, decode;
    Status s = alternate(
        options.rounds, encode, pace, [&] { return coding.encode(mode); }, [&] { return coding.copy_out(); });
    if (s.ok()) {
      s = alternate(
          options.rounds, decode, pace, [&] { return coding.decode(); }, [&] { return coding.copy_in(); });
    }
    if (!s.ok()) return s;
    const std::string name(codec::mode_name(mode));
    rows.push_back(more_is_better("gpu.encode." + name, coding.gigabytes() / median(encode.ours), "GB/s",
                                  coding.gigabytes() / median(encode.theirs), kLimit));
    Row row = more_is_better("gpu.decode." + name, coding.gigabytes() / median(decode.ours), "GB/s",
                             coding.gigabytes() / median(decode.theirs), kLimit);
    // zstd is decoded by the processor.
    const Bound bound = decoded_bound(options.multiprocessors, row.limit.value_or(0) * 1e9);
    rows.push_back(mode == codec::Mode::zstd ? std::move(row) : bounded(std::move(row), bound));
  }
  return {};
}

}  // namespace kvbm::benchmark
