// Place of a rank's part of one component: an engine arrangement and the request's block ids. Engine memory and
// arrangement are borrowed: they outlive the session that uses the map.
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
  // Copier of device memory, borrowed like the arrangement. Null: the CPU reads and writes the memory.
  SliceMover* mover = nullptr;
};

// A part and its place. As source it is read, as target written.
struct LocalPart {
  Part part;
  BlockMap map;
};

enum class Use : uint8_t { source, target };

// Checks that the arrangement has the part's layers, heads and row size, and that the blocks exist and cover the
// range. A target's blocks must all be different, because two positions cannot share memory.
Status check_local(const Facts& facts, std::span<const LocalPart> parts, Use use);

// A rectangle of one layer of the model: the subject of one slice or leaf.
struct Extent {
  Component component = 0;
  uint16_t layer = 0;
  uint16_t first_head = 0;
  uint16_t heads = 0;
  Range range;
  // No leaf of a slice crosses a multiple of this position. 0: leaves are as long as allowed.
  uint32_t grain = 0;
  bool operator==(const Extent&) const = default;
};

// Returns the greatest divisor of both the length of the map's blocks and their first position. Between two multiples
// of it, all heads of a layer are one run of memory. 0: of a state.
uint32_t block_grain(const layout::ComponentGeometry& c, const BlockMap& map) noexcept;

// Returns true if the rectangle lies in the part.
bool inside(const Part& part, const Extent& extent) noexcept;

// Appends the runs of plane `plane` of heads [first_head, first_head + heads) at `range`, in the order
// [head][position]. The rectangle lies inside the part.
void append_runs(const LocalPart& local, const Extent& extent, uint32_t plane, std::vector<StridedRun>& runs);

}  // namespace kvbm::cluster::session
