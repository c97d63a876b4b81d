#include "cluster/session/plan.h"

#include <algorithm>

namespace kvbm::cluster::session {
namespace {

constexpr size_t kMaxGaps = 64;  // enough for a message about missing parts

// A part of one source with something of the component.
struct Candidate {
  uint32_t source = 0;
  const Part* part = nullptr;
};

// Heads of a range of positions, and the numbers of the sources that hold them.
struct Cell {
  uint16_t first_head = 0;
  uint16_t heads = 0;
  Range range;
  std::vector<uint32_t> holders;
};

// Layers over which the holders stay the same.
struct Band {
  uint16_t first_layer = 0;
  uint32_t end_layer = 0;
  std::vector<Cell> cells;
};

void add_cut(std::vector<uint64_t>& cuts, uint64_t begin, uint64_t end, uint64_t at) {
  if (at > begin && at < end) cuts.push_back(at);
}

void finish_cuts(std::vector<uint64_t>& cuts, uint64_t begin, uint64_t end) {
  cuts.push_back(begin);
  cuts.push_back(end);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
}

std::vector<Cell> cells_of(const Part& target, std::span<const Candidate> candidates) {
  const uint64_t head_begin = target.shard.first_head;
  const uint64_t head_end = head_begin + target.shard.heads;
  std::vector<uint64_t> heads;
  std::vector<uint64_t> positions;
  for (const Candidate& c : candidates) {
    const Shard& s = c.part->shard;
    add_cut(heads, head_begin, head_end, s.first_head);
    add_cut(heads, head_begin, head_end, uint64_t{s.first_head} + s.heads);
    add_cut(positions, target.range.begin, target.range.end, c.part->range.begin);
    add_cut(positions, target.range.begin, target.range.end, c.part->range.end);
  }
  finish_cuts(heads, head_begin, head_end);
  finish_cuts(positions, target.range.begin, target.range.end);
  std::vector<Cell> cells;
  for (size_t p = 0; p + 1 < positions.size(); ++p) {
    for (size_t h = 0; h + 1 < heads.size(); ++h) {
      Cell cell{static_cast<uint16_t>(heads[h]),
                static_cast<uint16_t>(heads[h + 1] - heads[h]),
                {positions[p], positions[p + 1]},
                {}};
      for (const Candidate& c : candidates) {
        const Shard& s = c.part->shard;
        if (s.first_head <= heads[h] && heads[h + 1] <= uint64_t{s.first_head} + s.heads &&
            c.part->range.holds(cell.range)) {
          cell.holders.push_back(c.source);
        }
      }
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

std::vector<Band> bands_of(const PlanInput& input, const Part& target) {
  const uint64_t begin = target.shard.first_layer;
  const uint64_t end = begin + target.shard.layers;
  std::vector<Candidate> all;
  std::vector<uint64_t> cuts;
  for (uint32_t i = 0; i < input.sources.size(); ++i) {
    for (const Part& p : input.sources[i]) {
      if (p.component != target.component) continue;
      all.push_back({i, &p});
      add_cut(cuts, begin, end, p.shard.first_layer);
      add_cut(cuts, begin, end, uint64_t{p.shard.first_layer} + p.shard.layers);
    }
  }
  finish_cuts(cuts, begin, end);
  std::vector<Band> bands;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::vector<Candidate> here;
    for (const Candidate& c : all) {
      const Shard& s = c.part->shard;
      if (s.first_layer <= cuts[i] && cuts[i + 1] <= uint64_t{s.first_layer} + s.layers) here.push_back(c);
    }
    bands.push_back({static_cast<uint16_t>(cuts[i]), static_cast<uint32_t>(cuts[i + 1]), cells_of(target, here)});
  }
  return bands;
}

void add_gaps(std::vector<Part>& gaps, Component component, const Band& band) {
  for (const Cell& cell : band.cells) {
    if (!cell.holders.empty() || gaps.size() == kMaxGaps) continue;
    const Shard gap{band.first_layer, static_cast<uint16_t>(band.end_layer - band.first_layer), cell.first_head,
                    cell.heads};
    if (!gaps.empty()) {  // heads of one gap may be cut only by sources of other layers or positions
      Part& last = gaps.back();
      if (last.component == component && last.shard.first_layer == gap.first_layer && last.range == cell.range &&
          last.shard.first_head + last.shard.heads == gap.first_head) {
        last.shard.heads = static_cast<uint16_t>(last.shard.heads + gap.heads);
        continue;
      }
    }
    gaps.push_back({component, gap, cell.range});
  }
}

// Cuts one rectangle into slices of at most slice_bytes, at the target's block boundaries where it can.
Status cut(const PlanInput& input, uint32_t source, const Extent& whole, const BlockMap& target,
           std::vector<Slice>& out) {
  const layout::ComponentGeometry& c = input.facts->components[whole.component];
  const uint64_t column = uint64_t{c.planes} * row_bytes(c);  // one head at one position
  const auto heads = static_cast<uint32_t>(std::clamp<uint64_t>(input.slice_bytes / column, 1, whole.heads));
  const uint64_t most = std::max<uint64_t>(input.slice_bytes / (column * heads), 1);
  const uint64_t block = target.arrangement->tokens();
  for (uint32_t h = 0; h < whole.heads; h += heads) {
    Extent e = whole;
    e.first_head = static_cast<uint16_t>(whole.first_head + h);
    e.heads = static_cast<uint16_t>(std::min(heads, whole.heads - h));
    for (uint64_t at = whole.range.begin; at < whole.range.end; at = e.range.end) {
      e.range = {at, std::min(whole.range.end, at + most)};
      if (e.range.end < whole.range.end) {
        const uint64_t aligned = e.range.end - (e.range.end - target.first) % block;
        if (aligned > at) e.range.end = aligned;
      }
      if (out.size() == Plan::kMaxSlices) {
        return Status(Code::no_room, "the session's plan would be too large; use larger slices or fewer tokens");
      }
      out.push_back({source, static_cast<uint32_t>(column * e.heads * e.range.size()), e});
    }
  }
  return {};
}

Status cut_layer(const PlanInput& input, const LocalPart& target, const Band& band, uint32_t layer,
                 std::vector<Slice>& out) {
  Extent open;
  uint32_t open_source = 0;
  const auto flush = [&]() -> Status {
    return open.heads == 0 ? Status{} : cut(input, open_source, open, target.map, out);
  };
  for (const Cell& cell : band.cells) {
    if (cell.holders.empty()) continue;
    const uint32_t source = cell.holders[(layer + input.sink_rank) % cell.holders.size()];
    if (open.heads != 0 && source == open_source && cell.range == open.range &&
        uint32_t{open.first_head} + open.heads == cell.first_head) {
      open.heads = static_cast<uint16_t>(open.heads + cell.heads);
      continue;
    }
    if (auto s = flush(); !s.ok()) return s;
    open_source = source;
    open = {target.part.component, static_cast<uint16_t>(layer), cell.first_head, cell.heads, cell.range};
  }
  return flush();
}

bool before(const Plan::Layer& a, uint32_t layer, Component component) noexcept {
  return a.layer != layer ? a.layer < layer : a.component < component;
}

}  // namespace

std::string gap_text(const Part& gap) {
  const auto span = [](uint64_t begin, uint64_t count) {
    return std::to_string(begin) + " to " + std::to_string(begin + count);
  };
  return "component " + std::to_string(gap.component) + ", layers " + span(gap.shard.first_layer, gap.shard.layers) +
         ", heads " + span(gap.shard.first_head, gap.shard.heads) + ", positions " +
         span(gap.range.begin, gap.range.size());
}

Result<Plan> Plan::make(const PlanInput& input) {
  Plan plan;
  std::vector<std::vector<Band>> bands;
  uint32_t begin = UINT32_MAX;
  uint32_t end = 0;
  for (const LocalPart& t : input.targets) {
    bands.push_back(bands_of(input, t.part));
    for (const Band& band : bands.back()) add_gaps(plan.gaps_, t.part.component, band);
    begin = std::min<uint32_t>(begin, t.part.shard.first_layer);
    end = std::max<uint32_t>(end, uint32_t{t.part.shard.first_layer} + t.part.shard.layers);
  }
  std::vector<size_t> at(bands.size());
  for (uint32_t layer = begin; layer < end; ++layer) {
    for (size_t t = 0; t < input.targets.size(); ++t) {
      const std::vector<Band>& of = bands[t];
      if (layer < of.front().first_layer || layer >= of.back().end_layer) continue;
      while (of[at[t]].end_layer <= layer) ++at[t];
      const auto first = static_cast<uint32_t>(plan.slices_.size());
      if (auto s = cut_layer(input, input.targets[t], of[at[t]], layer, plan.slices_); !s.ok()) return s;
      plan.layers_.push_back({input.targets[t].part.component, static_cast<uint16_t>(layer), first,
                              static_cast<uint32_t>(plan.slices_.size()) - first});
    }
  }
  for (const Slice& s : plan.slices_) plan.payload_bytes_ += s.payload_bytes;
  return plan;
}

size_t Plan::find_layer(Component component, uint32_t layer) const noexcept {
  const auto it = std::lower_bound(layers_.begin(), layers_.end(), layer,
                                   [&](const Layer& a, uint32_t l) { return before(a, l, component); });
  if (it == layers_.end() || it->layer != layer || it->component != component) return layers_.size();
  return static_cast<size_t>(it - layers_.begin());
}

}  // namespace kvbm::cluster::session
