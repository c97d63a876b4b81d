#include "cluster/session/block_map.h"

#include <algorithm>
#include <numeric>

namespace kvbm::cluster::session {
namespace {

Status refuse(const Part& part, const std::string& why) {
  return Status(Code::invalid_argument, "the blocks of a session are refused",
                "component " + std::to_string(part.component) + ": " + why);
}

Status check_arrangement(const layout::ComponentGeometry& c, const Part& part, const layout::Arrangement& a) {
  const auto same = [&](const char* what, uint64_t is, uint64_t must) -> Status {
    if (is == must) return {};
    return refuse(part, std::string("the cache has ") + std::to_string(is) + " " + what + ", the part has " +
                            std::to_string(must));
  };
  if (auto s = same("layers", a.layers(), part.shard.layers); !s.ok()) return s;
  if (auto s = same("planes", a.planes(), c.planes); !s.ok()) return s;
  if (auto s = same("heads", a.heads(), part.shard.heads); !s.ok()) return s;
  if (auto s = same("bytes a head and token", a.row_bytes(), row_bytes(c)); !s.ok()) return s;
  if (c.kind == layout::ComponentKind::state) return same("bytes a state", a.tokens(), c.state_bytes);
  return {};
}

Status check_map(const layout::ComponentGeometry& c, const LocalPart& local, Use use) {
  const BlockMap& map = local.map;
  if (map.arrangement == nullptr) return refuse(local.part, "no attached cache");
  if (auto s = check_arrangement(c, local.part, *map.arrangement); !s.ok()) return s;
  if (auto s = map.arrangement->check_blocks(map.blocks); !s.ok()) return s;
  const uint64_t tokens = map.arrangement->tokens();
  if (map.first > kMaxPosition || map.blocks.size() > kMaxPosition / tokens ||
      !Range{map.first, map.first + map.blocks.size() * tokens}.holds(local.part.range)) {
    return refuse(local.part, std::to_string(map.blocks.size()) + " blocks of " + std::to_string(tokens) +
                                  " positions from " + std::to_string(map.first) + " do not cover " +
                                  std::to_string(local.part.range.begin) + " to " +
                                  std::to_string(local.part.range.end));
  }
  if (use == Use::source) return {};
  std::vector<layout::BlockId> sorted = map.blocks;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return refuse(local.part, "block " + std::to_string(*twice) + " is a target twice");
  return {};
}

}  // namespace

Status check_local(const Facts& facts, std::span<const LocalPart> parts, Use use) {
  std::vector<Part> plain;
  for (const LocalPart& p : parts) plain.push_back(p.part);
  if (auto s = check_parts(facts, plain, use == Use::source ? "source" : "target"); !s.ok()) return s;
  for (const LocalPart& p : parts) {
    if (auto s = check_map(facts.components[p.part.component], p, use); !s.ok()) return s;
  }
  return {};
}

uint32_t block_grain(const layout::ComponentGeometry& c, const BlockMap& map) noexcept {
  if (c.kind == layout::ComponentKind::state) return 0;
  return static_cast<uint32_t>(std::gcd(uint64_t{map.arrangement->tokens()}, map.first));
}

bool inside(const Part& part, const Extent& e) noexcept {
  const Shard& s = part.shard;
  return e.component == part.component && e.layer >= s.first_layer && e.layer - s.first_layer < s.layers &&
         e.heads > 0 && e.first_head >= s.first_head &&
         uint32_t{e.first_head} + e.heads <= uint32_t{s.first_head} + s.heads && !e.range.empty() &&
         part.range.holds(e.range);
}

void append_runs(const LocalPart& local, const Extent& e, uint32_t plane, std::vector<StridedRun>& runs) {
  const layout::Arrangement& a = *local.map.arrangement;
  const layout::PlaneView& v = a.view(e.layer - local.part.shard.first_layer, plane);
  const auto row = static_cast<int64_t>(a.row_bytes());
  const uint64_t tokens = a.tokens();
  const uint64_t first = (e.range.begin - local.map.first) / tokens;
  const uint64_t last = (e.range.end - 1 - local.map.first) / tokens;
  const auto head = static_cast<int64_t>(e.first_head - local.part.shard.first_head);
  // In a single block several heads can be one run, because no other block lies between two of them.
  const uint32_t together = first == last ? e.heads : 1;
  for (uint32_t h = 0; h < e.heads; h += together) {
    for (uint64_t b = first; b <= last; ++b) {
      const uint64_t start = local.map.first + b * tokens;
      const uint64_t from = std::max(e.range.begin, start);
      const uint64_t count = std::min(e.range.end, start + tokens) - from;
      StridedRun run;
      run.data = v.base + int64_t{local.map.blocks[b]} * v.block_stride + (head + h) * v.head_stride +
                 static_cast<int64_t>(from - start) * v.token_stride;
      run.bytes = static_cast<uint64_t>(row);
      run.count0 = together;
      run.stride0 = v.head_stride;
      run.count1 = static_cast<uint32_t>(count);
      run.stride1 = v.token_stride;
      if (count == 1 || v.token_stride == row) {
        run.bytes = static_cast<uint64_t>(row) * count;
        run.count1 = 1;
        if (together == 1 || v.head_stride == static_cast<int64_t>(run.bytes)) {
          run.bytes *= together;
          run.count0 = 1;
        }
      }
      // Neighbouring blocks of one sequence are often adjacent in memory: fewer, longer pieces copy faster.
      if (run.count0 == 1 && run.count1 == 1 && !runs.empty()) {
        StridedRun& before = runs.back();
        if (before.count0 == 1 && before.count1 == 1 && before.data + before.bytes == run.data) {
          before.bytes += run.bytes;
          continue;
        }
      }
      runs.push_back(run);
    }
  }
}

}  // namespace kvbm::cluster::session
