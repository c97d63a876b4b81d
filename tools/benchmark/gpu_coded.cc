#include "benchmark/gpu_coded.h"

#include <cstring>
#include <string>
#include <utility>

#include "benchmark/gpu_bound.h"
#include "benchmark/kv_sample.h"
#include "benchmark/statistics.h"
#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kPage = 32ULL << 10;
constexpr uint32_t kRow = 64;      // of the sample: an element of a head
constexpr size_t kDifferent = 64;  // different leaves, which repeat

struct CodedLeaf {
  codec::LeafCodec codec = codec::LeafCodec::raw;
  std::vector<std::byte> bytes;
  uint64_t plain_hash = 0;
};

Result<std::vector<CodedLeaf>> code(codec::Mode mode) {
  const auto sample = make_kv(false);
  if (!sample.ok()) return sample.status();
  codec::Workspace workspace;
  std::vector<CodedLeaf> out(kDifferent);
  std::vector<std::byte> plain(kPage);
  for (size_t i = 0; i < kDifferent; ++i) {
    const ConstBytes raw = sample.value().all().subspan(i * kPage, kPage);
    out[i].bytes.resize(codec::encode_room(kPage));
    const codec::LeafForm form{codec::Element::bf16, kRow, static_cast<uint32_t>(kPage / 2 / kRow)};
    const auto coded = codec::encode_leaf(form, mode, raw, codec::leaf_hash(raw), out[i].bytes, workspace);
    if (!coded.ok()) return coded.status();
    out[i].codec = coded.value().codec;
    out[i].bytes.resize(coded.value().bytes);
    if (out[i].codec == codec::LeafCodec::raw) return Status(Code::internal, "made-up values do not code");
    if (Status s = codec::decode_leaf(out[i].codec, out[i].bytes, plain, workspace); !s.ok()) return s;
    out[i].plain_hash = codec::leaf_hash(plain);
  }
  return out;
}

}  // namespace

Status bench_gpu_coded(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows) {
  const PagedShape shape = paged_shape(kPage, options.bytes);
  for (const codec::Mode mode : {codec::Mode::standard, codec::Mode::int8}) {
    const auto coded = code(mode);
    if (!coded.ok()) return coded.status();
    std::vector<device::LeafMove> leaves = world.leaves(shape, shape.blocks);
    std::byte* at = world.records();
    for (size_t i = 0; i < leaves.size(); ++i) {
      const CodedLeaf& leaf = coded.value()[i % kDifferent];
      std::memcpy(at, leaf.bytes.data(), leaf.bytes.size());
      leaves[i].record = at;
      leaves[i].codec = leaf.codec;
      leaves[i].coded_bytes = static_cast<uint32_t>(leaf.bytes.size());
      leaves[i].expected = leaf.plain_hash;
      leaves[i].check_coded = true;
      leaves[i].coded_hash = codec::leaf_hash(leaf.bytes);
      at += leaf.bytes.size();
    }
    Samples samples;
    const Status s = alternate(
        options.rounds, samples, pace, [&] { return world.scatter(leaves); },
        [&] { return world.copy(world.spare(), world.host(world.records()), shape.bytes()); });
    if (!s.ok()) return s;
    const double gigabytes = static_cast<double>(shape.bytes()) / 1e9;
    Row row = more_is_better("gpu.load_coded." + std::string(codec::mode_name(mode)), gigabytes / median(samples.ours),
                             "GB/s", gigabytes / median(samples.theirs), "cuMemcpyAsync, one piece, pinned, plain");
    const Bound bound = decoded_bound(options.multiprocessors, row.limit.value_or(0) * 1e9);
    rows.push_back(bounded(std::move(row), bound));
  }
  return {};
}

}  // namespace kvbm::benchmark
