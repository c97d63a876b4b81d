#include "layout/reslice.h"

#include <algorithm>
#include <string>

namespace kvbm::layout {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

struct Interval {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] bool holds(const Interval& o) const noexcept { return begin <= o.begin && o.end <= end; }
};

// A rectangle of one layer: which source holds these heads of these tokens.
struct Cell {
  uint32_t source = kNone;
  Interval heads;   // of the whole model
  Interval tokens;  // from the common origin
};

Interval heads_of(const RecordShape& s) noexcept {
  return {s.shard().first_head, uint64_t{s.shard().first_head} + s.heads()};
}
Interval layers_of(const RecordShape& s) noexcept {
  return {s.shard().first_layer, uint64_t{s.shard().first_layer} + s.layers()};
}
Interval tokens_of(const PlacedRecord& r) noexcept {
  return {r.first_token, r.first_token + uint64_t{r.shape.tokens()} * r.shape.units()};
}

Status check_pair(size_t i, const PlacedRecord& source, const PlacedRecord& target) {
  const RecordShape& s = source.shape;
  const RecordShape& t = target.shape;
  const auto same = [&](const char* what, uint64_t a, uint64_t b) -> Status {
    if (a == b) return {};
    return Status(Code::mismatch, "records cannot be re-sliced into each other",
                  "source " + std::to_string(i) + ": " + what + " is " + std::to_string(a) + ", the target has " +
                      std::to_string(b));
  };
  if (auto st = same("kind", static_cast<uint64_t>(s.kind()), static_cast<uint64_t>(t.kind())); !st.ok()) return st;
  if (auto st = same("element", static_cast<uint64_t>(s.element()), static_cast<uint64_t>(t.element())); !st.ok()) {
    return st;
  }
  if (auto st = same("planes", s.planes(), t.planes()); !st.ok()) return st;
  if (auto st = same("bytes of a head of a token", s.row_bytes(), t.row_bytes()); !st.ok()) return st;
  if (source.first_token > UINT64_MAX / 2 || target.first_token > UINT64_MAX / 2) {
    return Status(Code::invalid_argument, "first token out of range");
  }
  // A state is whole or nothing: its bytes are no tokens.
  if (t.kind() == ComponentKind::state &&
      (s.tokens() != t.tokens() || s.units() != t.units() || source.first_token != target.first_token)) {
    return Status(Code::unsupported, "a state cannot be cut", "source " + std::to_string(i));
  }
  return {};
}

void add_cut(std::vector<uint64_t>& cuts, const Interval& within, uint64_t at) {
  if (at > within.begin && at < within.end) cuts.push_back(at);
}

std::vector<uint64_t> finish_cuts(std::vector<uint64_t> cuts, const Interval& within) {
  cuts.push_back(within.begin);
  cuts.push_back(within.end);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void add_unit_cuts(std::vector<uint64_t>& cuts, const Interval& within, const PlacedRecord& r) {
  for (uint32_t u = 0; u <= r.shape.units(); ++u) {
    add_cut(cuts, within, r.first_token + uint64_t{u} * r.shape.tokens());
  }
}

uint32_t first_holder(std::span<const PlacedRecord> sources, const std::vector<uint32_t>& candidates,
                      const Interval& heads, const Interval& tokens) {
  for (const uint32_t i : candidates) {
    if (heads_of(sources[i].shape).holds(heads) && tokens_of(sources[i]).holds(tokens)) return i;
  }
  return kNone;
}

// The target's heads and tokens cut where any unit or head range begins or ends.
std::vector<Cell> cells_of(std::span<const PlacedRecord> sources, const std::vector<uint32_t>& candidates,
                           const PlacedRecord& target) {
  const Interval all_heads = heads_of(target.shape);
  const Interval all_tokens = tokens_of(target);
  std::vector<uint64_t> heads;
  std::vector<uint64_t> tokens;
  add_unit_cuts(tokens, all_tokens, target);
  for (const uint32_t i : candidates) {
    add_cut(heads, all_heads, heads_of(sources[i].shape).begin);
    add_cut(heads, all_heads, heads_of(sources[i].shape).end);
    add_unit_cuts(tokens, all_tokens, sources[i]);
  }
  heads = finish_cuts(std::move(heads), all_heads);
  tokens = finish_cuts(std::move(tokens), all_tokens);
  std::vector<Cell> cells;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    const Interval span{tokens[t], tokens[t + 1]};
    const size_t row = cells.size();
    for (size_t h = 0; h + 1 < heads.size(); ++h) {
      const Interval range{heads[h], heads[h + 1]};
      const uint32_t source = first_holder(sources, candidates, range, span);
      if (cells.size() > row && cells.back().source == source) {
        cells.back().heads.end = range.end;
      } else {
        cells.push_back({source, range, span});
      }
    }
  }
  return cells;
}

// Offset of a head and token in one plane of a payload.
uint64_t offset_in_plane(const PlacedRecord& r, uint64_t head, uint64_t token) noexcept {
  const RecordShape& s = r.shape;
  const uint64_t local = token - r.first_token;
  return local / s.tokens() * s.unit_bytes() + (head - s.shard().first_head) * s.head_bytes() +
         local % s.tokens() * s.row_bytes();
}

uint64_t plane_offset(const RecordShape& s, uint64_t layer, uint32_t plane) noexcept {
  return (layer - s.shard().first_layer) * s.layer_bytes() + plane * s.plane_bytes();
}

Move move_of(const Cell& cell, const PlacedRecord& source, const PlacedRecord& target, uint64_t layer, uint32_t plane) {
  Move m;
  m.source = cell.source;
  m.layer = static_cast<uint32_t>(layer - target.shape.shard().first_layer);
  m.source_offset =
      plane_offset(source.shape, layer, plane) + offset_in_plane(source, cell.heads.begin, cell.tokens.begin);
  m.target_offset =
      plane_offset(target.shape, layer, plane) + offset_in_plane(target, cell.heads.begin, cell.tokens.begin);
  m.bytes = (cell.tokens.end - cell.tokens.begin) * target.shape.row_bytes();
  const uint64_t count = cell.heads.end - cell.heads.begin;
  if (count == 1) return m;
  if (source.shape.head_bytes() == m.bytes && target.shape.head_bytes() == m.bytes) {
    m.bytes *= count;
    return m;
  }
  m.count = static_cast<uint32_t>(count);
  m.source_stride = source.shape.head_bytes();
  m.target_stride = target.shape.head_bytes();
  return m;
}

void add_gap(std::vector<Gap>& gaps, const Cell& cell, uint64_t layer) {
  Gap gap;
  gap.first_layer = static_cast<uint32_t>(layer);
  gap.layers = 1;
  gap.first_head = static_cast<uint32_t>(cell.heads.begin);
  gap.heads = static_cast<uint32_t>(cell.heads.end - cell.heads.begin);
  gap.first_token = cell.tokens.begin;
  gap.tokens = cell.tokens.end - cell.tokens.begin;
  for (Gap& g : gaps) {
    if (g.first_layer != layer || g.first_head != gap.first_head || g.heads != gap.heads) continue;
    if (g.first_token + g.tokens != gap.first_token) continue;
    g.tokens += gap.tokens;
    return;
  }
  gaps.push_back(gap);
}

bool extends(const Gap& earlier, const Gap& gap) noexcept {
  return earlier.first_layer + earlier.layers == gap.first_layer && earlier.first_head == gap.first_head &&
         earlier.heads == gap.heads && earlier.first_token == gap.first_token && earlier.tokens == gap.tokens;
}

void merge_gaps(std::vector<Gap>& gaps, const std::vector<Gap>& of_layer) {
  for (const Gap& gap : of_layer) {
    const auto it = std::find_if(gaps.begin(), gaps.end(), [&](const Gap& g) { return extends(g, gap); });
    if (it != gaps.end()) {
      ++it->layers;
    } else {
      gaps.push_back(gap);
    }
  }
}

std::vector<LeafRange> merged(std::vector<LeafRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const LeafRange& a, const LeafRange& b) { return a.first < b.first; });
  std::vector<LeafRange> out;
  for (const LeafRange& r : ranges) {
    if (!out.empty() && r.first <= out.back().first + out.back().count) {
      out.back().count = std::max(out.back().count, r.first + r.count - out.back().first);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

}  // namespace

Result<Reslice> Reslice::make(std::span<const PlacedRecord> sources, const PlacedRecord& target) {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (auto s = check_pair(i, sources[i], target); !s.ok()) return s;
  }
  Reslice r;
  r.leaves_.resize(sources.size());
  const Interval layers = layers_of(target.shape);
  std::vector<uint32_t> known;
  std::vector<Cell> cells;
  for (uint64_t layer = layers.begin; layer < layers.end; ++layer) {
    std::vector<uint32_t> candidates;
    for (uint32_t i = 0; i < sources.size(); ++i) {
      if (layers_of(sources[i].shape).holds({layer, layer + 1})) candidates.push_back(i);
    }
    if (cells.empty() || candidates != known) cells = cells_of(sources, candidates, target);
    known = std::move(candidates);
    if (r.moves_.size() + cells.size() * target.shape.planes() > kMaxMoves) {
      return Status(Code::no_room, "the re-slicing plan would be too large; move fewer blocks at once");
    }
    std::vector<Gap> gaps;
    for (uint32_t plane = 0; plane < target.shape.planes(); ++plane) {
      for (const Cell& cell : cells) {
        if (cell.source != kNone) {
          r.moves_.push_back(move_of(cell, sources[cell.source], target, layer, plane));
        } else if (plane == 0) {
          add_gap(gaps, cell, layer);
        }
      }
    }
    merge_gaps(r.gaps_, gaps);
  }
  for (const Move& m : r.moves_) {
    const RecordShape& shape = sources[m.source].shape;
    for (uint32_t i = 0; i < m.count; ++i) {
      const uint64_t begin = m.source_offset + i * m.source_stride;
      const uint32_t first = shape.leaf_at(begin);
      r.leaves_[m.source].push_back({first, shape.leaf_at(begin + m.bytes - 1) - first + 1});
    }
  }
  for (auto& ranges : r.leaves_) ranges = merged(std::move(ranges));
  return r;
}

}  // namespace kvbm::layout
