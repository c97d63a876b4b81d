#include "benchmark/codec.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "benchmark/kv_sample.h"
#include "benchmark/statistics.h"
#include "codec/coded/coded_stream.h"
#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

using codec::Mode;
using layout::Element;

struct Leaf {
  ConstBytes raw;
  uint64_t raw_hash = 0;
  bool is_k = false;
  MutableBytes room;  // buffer for the coded leaf
  MutableBytes decoded;
  codec::Encoded coded;
};

// The leaves of a sample and memory for their coded and decoded forms.
class Leaves {
 public:
  // `rows`: tokens of a head. Leaves are cut like those of records.
  Status take(const KvSample& sample, uint32_t rows, bool one_block, bool huge_pages);
  Status encode(Mode mode);
  Status decode(bool check);
  void copy();
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t stored() const;
  [[nodiscard]] bool exact() const;
  // Returns the squared differences of K or V divided by the squared values.
  [[nodiscard]] double error(Element element, bool of_k) const;

 private:
  codec::LeafForm form_;
  std::vector<Leaf> leaves_;
  std::unique_ptr<Arena> coded_, decoded_;
  uint64_t bytes_ = 0;
  codec::Workspace workspace_;
};

Result<std::unique_ptr<Arena>> map(uint64_t bytes, bool huge_pages) {
  ArenaOptions options;
  options.bytes = bytes;
  options.huge_pages = huge_pages;
  options.touch_threads = 1;
  return Arena::map(options);
}

Status Leaves::take(const KvSample& sample, uint32_t rows, bool one_block, bool huge_pages) {
  const codec::LeafForm form{static_cast<codec::Element>(sample.element), sample.head_dim, rows};
  bytes_ = sample.bytes();
  // A leaf has at most one block's K or V of a layer, and at most one plane.
  const uint64_t unit = one_block ? sample.plane_bytes() / sample.tokens * rows : sample.plane_bytes();
  const codec::StreamCut cut(form, unit);
  form_ = cut.leaf_form();
  for (uint64_t at = 0; at < bytes_; at += unit) {
    for (uint64_t in = 0; in < unit; in += cut.next(in)) {
      Leaf leaf;
      leaf.raw = sample.all().subspan(at + in, cut.next(in));
      leaf.raw_hash = codec::leaf_hash(leaf.raw);
      leaf.is_k = at / sample.plane_bytes() % 2 == 0;
      leaves_.push_back(leaf);
    }
  }
  const auto room_of = [](const Leaf& leaf) { return round_up(codec::encode_room(leaf.raw.size()), 64); };
  uint64_t room = 0;
  for (const Leaf& leaf : leaves_) room += room_of(leaf);
  auto coded = map(room, huge_pages);
  if (!coded.ok()) return coded.status();
  auto decoded = map(bytes_, huge_pages);
  if (!decoded.ok()) return decoded.status();
  coded_ = std::move(coded).value();
  decoded_ = std::move(decoded).value();
  uint64_t at = 0;
  uint64_t coded_at = 0;
  for (Leaf& leaf : leaves_) {
    leaf.room = {coded_->data() + coded_at, codec::encode_room(leaf.raw.size())};
    leaf.decoded = {decoded_->data() + at, leaf.raw.size()};
    at += leaf.raw.size();
    coded_at += room_of(leaf);
  }
  return {};
}

Status Leaves::encode(Mode mode) {
  for (Leaf& leaf : leaves_) {
    const auto made = codec::encode_leaf(form_, mode, leaf.raw, leaf.raw_hash, leaf.room, workspace_);
    if (!made.ok()) return made.status();
    leaf.coded = made.value();
    // Leaves that do not become smaller are copied as they are.
    if (leaf.coded.codec == codec::LeafCodec::raw) std::memcpy(leaf.room.data(), leaf.raw.data(), leaf.raw.size());
  }
  return {};
}

Status Leaves::decode(bool check) {
  for (Leaf& leaf : leaves_) {
    const bool plain = leaf.coded.codec == codec::LeafCodec::raw;
    const ConstBytes stored = leaf.room.first(plain ? leaf.raw.size() : leaf.coded.bytes);
    Status done = codec::decode_leaf(leaf.coded.codec, stored, leaf.decoded, workspace_);
    if (!done.ok()) return done;
    if (!check) continue;
    const uint64_t expected = plain ? leaf.raw_hash : codec::raw_hash_of(stored).value_or(0);
    if (codec::leaf_hash(leaf.decoded) != expected) return Status(Code::internal, "a coded leaf has another hash");
  }
  return {};
}

void Leaves::copy() {
  for (Leaf& leaf : leaves_) std::memcpy(leaf.decoded.data(), leaf.raw.data(), leaf.raw.size());
}

uint64_t Leaves::stored() const {
  uint64_t all = 0;
  for (const Leaf& leaf : leaves_)
    all += leaf.coded.codec == codec::LeafCodec::raw ? leaf.raw.size() : leaf.coded.bytes;
  return all;
}

bool Leaves::exact() const {
  return std::all_of(leaves_.begin(), leaves_.end(), [](const Leaf& leaf) {
    return std::memcmp(leaf.raw.data(), leaf.decoded.data(), leaf.raw.size()) == 0;
  });
}

double Leaves::error(Element element, bool of_k) const {
  double difference = 0;
  double value = 0;
  for (const Leaf& leaf : leaves_) {
    if (leaf.is_k != of_k) continue;
    for (size_t i = 0; i < leaf.raw.size(); i += 2) {
      const double was = value_of(element, leaf.raw.data() + i);
      const double is = value_of(element, leaf.decoded.data() + i);
      difference += (was - is) * (was - is);
      value += was * was;
    }
  }
  return value > 0 ? difference / value : 0;
}

Row plain_row(std::string name, double value, std::string unit) {
  Row row;
  row.name = std::move(name);
  row.value = value;
  row.unit = std::move(unit);
  return row;
}

struct Bench {
  int rounds;
  bool huge_pages;
  terminal::Progress& progress;
  std::vector<Row> rows;

  Status measure(const std::string& name, Leaves& leaves, Mode mode, const KvSample* lossy, bool ratio = true);
};

// Measures one name's rows: ratio, speeds, and errors if it is lossy.
Status Bench::measure(const std::string& name, Leaves& leaves, Mode mode, const KvSample* lossy, bool ratio) {
  std::vector<double> encodes, decodes, checks, copies;
  const auto copy = [&] {
    leaves.copy();
    return Status();
  };
  Status done = leaves.encode(mode);  // one encoding that is not measured: tables, pages
  for (int round = 0; done.ok() && round < rounds; ++round) {
    done = timed(encodes, [&] { return leaves.encode(mode); });
    if (done.ok()) done = timed(copies, copy);
    if (done.ok()) done = timed(decodes, [&] { return leaves.decode(false); });
    if (done.ok()) done = timed(copies, copy);
    if (done.ok()) done = timed(checks, [&] { return leaves.decode(true); });
  }
  if (!done.ok()) return done;
  progress.advance(1);
  if (lossy == nullptr && !leaves.exact()) return Status(Code::internal, "what was coded does not come back", name);
  const double gigabytes = static_cast<double>(leaves.bytes()) / 1e9;
  const double limit = gigabytes / median(copies);
  if (ratio)
    rows.push_back(
        plain_row(name + ".ratio", static_cast<double>(leaves.bytes()) / static_cast<double>(leaves.stored()), "x"));
  rows.push_back(more_is_better(name + ".compress", gigabytes / median(encodes), "GB/s", limit, "memcpy"));
  rows.push_back(more_is_better(name + ".decompress", gigabytes / median(decodes), "GB/s", limit, "memcpy"));
  if (ratio)
    rows.push_back(more_is_better(name + ".decompress_checked", gigabytes / median(checks), "GB/s", limit, "memcpy"));
  if (lossy != nullptr) {
    rows.push_back(plain_row(name + ".relative_mse_k", leaves.error(lossy->element, true), ""));
    rows.push_back(plain_row(name + ".relative_mse_v", leaves.error(lossy->element, false), ""));
  }
  return {};
}

Status lossy(Bench& bench, const KvSample& sample, const std::string& type, Leaves& leaves, const char* suffix) {
  Status done;
  for (const Mode mode : {Mode::int8, Mode::int8_coded, Mode::int6, Mode::int6_coded, Mode::int4, Mode::int4_coded,
                          Mode::fp8_e4m3, Mode::fp8_e5m2, Mode::delta}) {
    const std::string prefix = type == "bf16" ? "codec." : "codec." + type + "_as_";
    if (done.ok()) done = bench.measure(prefix + std::string(codec::mode_name(mode)) + suffix, leaves, mode, &sample);
  }
  return done;
}

// Measures the rows of a sample: whole leaves, 16-token blocks, and the lossless modes with other kernels.
Status all_modes(Bench& bench, const KvSample& sample, const std::string& type, Leaves& leaves, bool loses) {
  const std::string name = "codec." + type;
  Status done = bench.measure(name + "_lossless", leaves, Mode::standard, nullptr);
  if (done.ok()) done = bench.measure(name + "_fast", leaves, Mode::fast, nullptr);
  if (done.ok()) done = bench.measure(name + "_max", leaves, Mode::max, nullptr);
  if (done.ok()) done = bench.measure(name + "_zstd", leaves, Mode::zstd, nullptr);
  if (done.ok() && loses) done = lossy(bench, sample, type, leaves, "");
  if (sample.tokens >= 16) {
    const auto blocks = in_blocks(sample, 16, bench.huge_pages);
    if (!blocks.ok()) return blocks.status();
    Leaves small;
    if (done.ok()) done = small.take(blocks.value(), 16, true, bench.huge_pages);
    if (done.ok()) done = bench.measure(name + "_lossless_16tok", small, Mode::standard, nullptr);
    if (done.ok()) done = bench.measure(name + "_fast_16tok", small, Mode::fast, nullptr);
    if (done.ok()) done = bench.measure(name + "_max_16tok", small, Mode::max, nullptr);
    if (done.ok() && loses) done = lossy(bench, sample, type, small, "_16tok");
  }
  for (const char* kernel : {"bmi2", "portable"}) {
    if (!done.ok() || !codec::force_codec_kernel(kernel)) continue;
    done = bench.measure(name + "_lossless." + kernel, leaves, Mode::standard, nullptr, false);
  }
  codec::force_codec_kernel(nullptr);
  return done;
}

Status bench_sample(Bench& bench, const KvSample& sample, bool casts) {
  const bool bf16 = sample.element == Element::bf16;
  const std::string type = bf16 ? "bf16" : "fp16";
  Leaves leaves;
  Status done = leaves.take(sample, sample.tokens, false, bench.huge_pages);
  if (done.ok()) done = all_modes(bench, sample, type, leaves, true);
  for (const Element other : {Element::fp16, Element::fp8_e4m3}) {
    if (!done.ok() || !casts || other == sample.element) continue;
    const auto cast = cast_kv(sample, other, bench.huge_pages);
    if (!cast.ok()) return cast.status();
    Leaves others;
    done = others.take(cast.value(), cast.value().tokens, false, bench.huge_pages);
    if (done.ok()) done = all_modes(bench, cast.value(), other == Element::fp16 ? "fp16_cast" : "fp8", others, false);
  }
  return done;
}

}  // namespace

Result<std::vector<Row>> bench_codec(const CodecOptions& options) {
  terminal::Progress progress("codecs", 0, terminal::Unit::items, options.quiet);
  Bench bench{options.rounds, options.huge_pages, progress, {}};
  const size_t n = std::max<size_t>(options.inputs.size(), 1);
  std::vector<Element> types;
  for (size_t i = 0; i < n; ++i) {
    const auto sample = options.inputs.empty() ? make_kv(options.huge_pages)
                                               : load_kv(options.inputs[i], options.head_dim, options.huge_pages);
    if (!sample.ok()) return sample.status();
    if (std::find(types.begin(), types.end(), sample.value().element) != types.end()) {
      return Status(Code::invalid_argument, "two --input of one type would give rows of the same names",
                    "measure " + options.inputs[i] + " by itself");
    }
    types.push_back(sample.value().element);
    Status done = bench_sample(bench, sample.value(), i == 0);
    if (!done.ok()) return done;
    if (i != 0) continue;
    const auto seal = bench_seal(sample.value().all().data(), sample.value().bytes(), options.rounds);
    if (!seal.ok()) return seal.status();
    bench.rows.insert(bench.rows.end(), seal.value().begin(), seal.value().end());
  }
  progress.finish();
  return std::move(bench.rows);
}

}  // namespace kvbm::benchmark
