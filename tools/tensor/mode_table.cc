#include "tensor/mode_table.h"

#include <algorithm>
#include <cstring>

#include "base/memory/memory.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::tensor {

namespace {

// Size and duration of a sample. It handles so many bytes, so that the clock's resolution does not matter, or takes
// so long. For a small file the fixed cost of a call dominates, and a million calls take minutes.
constexpr uint64_t kSampleBytes = 32 << 20;
constexpr double kSampleSeconds = 0.02;

using Stop = const std::atomic<bool>*;

Status stopped() { return Status(Code::cancelled, "stopped"); }
bool asked(Stop stop) noexcept { return stop != nullptr && stop->load(std::memory_order_relaxed); }

struct Piece {
  Tensor tensor;
  codec::LeafForm form;
  ConstBytes raw;
  MutableBytes coded;  // buffer
  MutableBytes decoded;
};

// The tensors in memory, in chunks, with buffers for coded and decoded bytes.
struct Bench {
  std::unique_ptr<Arena> raw, coded, decoded;
  std::vector<Piece> pieces;
  std::vector<uint64_t> stored;  // of each piece
  uint64_t bytes = 0;
  uint64_t passes = 1;  // over everything, in one sample, at most
  Stop stop = nullptr;
  codec::Workspace workspace;

  Status load(const Input& input, const Index& index, uint64_t limit);
  Status encode(codec::Mode mode);
  Status decode();
  void copy();
  template <class Work>
  Result<double> rate(Work&& work) const;
  Status measure(ModeRow& row, int rounds, std::vector<double>& copies, terminal::Progress& progress);
};

Result<std::unique_ptr<Arena>> map(uint64_t bytes) {
  ArenaOptions options;
  options.bytes = std::max<uint64_t>(bytes, 1);
  options.touch_threads = 1;
  return Arena::map(options);
}

Status Bench::load(const Input& input, const Index& index, uint64_t limit) {
  struct Part {
    const Segment* segment;
    uint64_t at, bytes;
  };
  std::vector<Part> parts;
  uint64_t room = 0;
  for (const Segment& segment : index.segments) {
    if (!segment.is_tensor) continue;
    for (uint64_t at = 0; at < segment.tensor.bytes && bytes < limit;) {
      const uint64_t left = limit - bytes;
      const uint64_t whole = next_chunk(segment, at);
      const uint64_t n = whole <= left ? whole : next_chunk(segment, at, left / 64 * 64);
      // No file is coded in parts smaller than a leaf.
      if (n < whole && n < codec::kMaxLeafBytes && !parts.empty()) {
        limit = bytes;
        break;
      }
      parts.push_back({&segment, at, n});
      bytes += n;
      if (n < whole) limit = bytes;
      room += round_up(codec::stream_room(segment.form, n), 4096);
      at += n;
    }
  }
  for (auto [arena, size] :
       {std::pair{&raw, bytes + 64 * parts.size()}, {&coded, room}, {&decoded, bytes + 64 * parts.size()}}) {
    auto made = map(size);
    if (!made.ok()) return made.status();
    *arena = std::move(made).value();
  }
  uint64_t at = 0;
  uint64_t coded_at = 0;
  for (const Part& part : parts) {
    if (asked(stop)) return stopped();
    const MutableBytes place(raw->data() + at, part.bytes);
    Status read = input.read(part.segment->tensor.offset + part.at, place);
    if (!read.ok()) return read;
    const uint64_t needed = codec::stream_room(part.segment->form, part.bytes);
    pieces.push_back({part.segment->tensor,
                      part.segment->form,
                      place,
                      {coded->data() + coded_at, needed},
                      {decoded->data() + at, part.bytes}});
    at += round_up(part.bytes, 64);
    coded_at += round_up(needed, 4096);
  }
  stored.resize(pieces.size());
  passes = bytes == 0 ? 1 : std::max<uint64_t>(1, kSampleBytes / bytes);
  return {};
}

Status Bench::encode(codec::Mode mode) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (asked(stop)) return stopped();
    const auto made = codec::encode_stream(pieces[i].form, mode, pieces[i].raw, pieces[i].coded, workspace);
    if (!made.ok()) return made.status();
    stored[i] = made.value();
  }
  return {};
}

Status Bench::decode() {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (asked(stop)) return stopped();
    const auto view = codec::StreamView::parse(pieces[i].coded.first(stored[i]));
    if (!view.ok()) return view.status();
    Status done = view.value().decode(true, pieces[i].decoded, workspace);
    if (!done.ok()) return done;
  }
  return {};
}

void Bench::copy() {
  for (const Piece& piece : pieces) {
    for (size_t at = 0; at < piece.raw.size(); at += codec::kMaxLeafBytes) {
      std::memcpy(piece.decoded.data() + at, piece.raw.data() + at,
                  std::min<size_t>(codec::kMaxLeafBytes, piece.raw.size() - at));
    }
  }
}

// Returns bytes per second. The clock is read after 1, 2, 4, .. calls, so that it does not affect the measurement.
template <class Work>
Result<double> Bench::rate(Work&& work) const {
  const benchmark::ThreadStopwatch watch;
  uint64_t made = 0;
  double seconds = 0;
  for (uint64_t next = 1; made < passes && seconds < kSampleSeconds; next = std::min(2 * next, passes)) {
    for (; made < next; ++made) {
      Status done = work();
      if (!done.ok()) return done;
    }
    seconds = watch.seconds();
  }
  return static_cast<double>(bytes * made) / std::max(seconds, 1e-9);
}

Status Bench::measure(ModeRow& row, int rounds, std::vector<double>& copies, terminal::Progress& progress) {
  std::vector<double> encodes;
  std::vector<double> decodes;
  for (int round = 0; round < rounds; ++round) {
    const auto coding = rate([&] { return encode(row.mode); });
    if (!coding.ok()) return coding.status();
    const auto copying = rate([&] {
      copy();
      return asked(stop) ? stopped() : Status();
    });
    if (!copying.ok()) return copying.status();
    const auto decoding = rate([&] { return decode(); });
    if (!decoding.ok()) return decoding.status();
    encodes.push_back(coding.value());
    decodes.push_back(decoding.value());
    copies.push_back(copying.value());
    progress.advance(1);
  }
  row.raw_bytes = bytes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto view = codec::StreamView::parse(pieces[i].coded.first(stored[i]));
    if (!view.ok()) return view.status();
    const codec::StreamInfo& info = view.value().info();
    row.coded_bytes += stored[i];
    row.lossy = row.lossy || info.lossy;
    row.difference += info.difference;
    row.value += info.value;
    row.kept.add(pieces[i].tensor, pieces[i].form, view.value(), pieces[i].raw);
    if (!info.lossy && std::memcmp(pieces[i].raw.data(), pieces[i].decoded.data(), pieces[i].raw.size()) != 0) {
      return Status(Code::internal, "what was coded does not decode to the same bytes",
                    std::string(codec::mode_name(row.mode)));
    }
  }
  row.compress = benchmark::median(encodes);
  row.decompress = benchmark::median(decodes);
  return {};
}

}  // namespace

Result<ModeTable> measure_modes(const Input& input, const TensorFile& file, const TableOptions& options, Stop stop) {
  ModeTable table;
  for (const Tensor& tensor : file.tensors) table.tensor_bytes += tensor.bytes;
  if (table.tensor_bytes == 0) return Status(Code::invalid_argument, "the file has no values");
  Bench bench;
  bench.stop = stop;
  const uint64_t limit = std::max<uint64_t>(options.limit_bytes, codec::kMaxLeafBytes);
  Status loaded = bench.load(input, make_index(file, options.row), limit);
  if (!loaded.ok()) return loaded;
  table.measured_bytes = bench.bytes;
  terminal::Progress progress("codecs", options.modes.size() * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<double> copies;
  for (const codec::Mode mode : options.modes) {
    ModeRow row;
    row.mode = mode;
    Status done = bench.measure(row, options.rounds, copies, progress);
    if (!done.ok()) return done;
    table.rows.push_back(row);
  }
  progress.finish();
  table.memcpy = benchmark::median(copies);
  return table;
}

}  // namespace kvbm::tensor
