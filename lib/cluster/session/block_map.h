// Where a rank keeps its part of one component: an engine arrangement and the request's block ids.
// Engine memory and arrangement are borrowed: they outlive the session that uses the map.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"
#include "cluster/session/facts.h"
#include "layout/arrangement.h"

namespace kvbm::cluster::session {

class SliceMover;

struct BlockMap {
  const layout::Arrangement* arrangement = nullptr;
  // blocks[i] holds the positions from first + i * arrangement->tokens(). A state has one block, first 0.
  std::vector<layout::BlockId> blocks;
  uint64_t first = 0;
  // Of memory that is a device's: who copies it, borrowed as the arrangement is. Null: the CPU reads and writes it.
  SliceMover* mover = nullptr;
};

// A part and where it is. As source it is read, as target written.
struct LocalPart {
  Part part;
  BlockMap map;
};

enum class Use : uint8_t { source, target };

// The arrangement has the part's layers, heads and row size; the blocks exist and cover the range; a
// target's blocks are all different, for two positions cannot share memory.
Status check_local(const Facts& facts, std::span<const LocalPart> parts, Use use);

// A rectangle of one layer of the model: what one slice or leaf is about.
struct Extent {
  Component component = 0;
  uint16_t layer = 0;
  uint16_t first_head = 0;
  uint16_t heads = 0;
  Range range;
  // Of a slice: no leaf of it reaches over a multiple of this position. 0: leaves are as long as they may be.
  uint32_t grain = 0;
  bool operator==(const Extent&) const = default;
};

// What divides both the length of the map's blocks and where they begin: between two multiples of it, all heads of a
// layer are one run of memory. 0: of a state.
uint32_t block_grain(const layout::ComponentGeometry& c, const BlockMap& map) noexcept;

// Whether the rectangle lies in the part.
bool inside(const Part& part, const Extent& extent) noexcept;

// Appends the runs of plane `plane` of heads [first_head, first_head + heads) at `range`, in the order
// [head][position]. The rectangle lies inside the part.
void append_runs(const LocalPart& local, const Extent& extent, uint32_t plane, std::vector<StridedRun>& runs);

}  // namespace kvbm::cluster::session
