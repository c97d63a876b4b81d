// Which of two blocks of one key the host keeps.
//
// The first that came, unless it may not stand for the one that comes: it was coded with loss and the other was not, for
// somebody who takes no loss; or, of blocks that callers bring, it was computed at another position. Then it gives way
// (block::Precedence): nobody is given bytes that he did not ask for, or told that what he brought is there when it
// is not.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "block/block_table.h"
#include "codec/record.h"

namespace kvbm::manager {

class Manager;

class Newcomers final : public block::Precedence {
 public:
  // A record from a tier below.
  Newcomers(Manager& manager, bool lossy) : manager_(manager), takes_lossy_(lossy), knows_positions_(false) {}
  // Blocks as a caller made them: `takes_lossy` as NamespaceOptions::allow_lossy; positions are empty or one for each.
  Newcomers(Manager& manager, bool takes_lossy, std::span<const codec::Position> positions)
      : manager_(manager), takes_lossy_(takes_lossy), knows_positions_(true), positions_(positions) {}

  // Whether a held block may stand for the i-th that comes.
  [[nodiscard]] bool stands_in(SlotId there, size_t i) const noexcept;
  bool gives_way(SlotId there, size_t i) noexcept override;
  [[nodiscard]] bool are_callers() const noexcept { return knows_positions_; }
  // Whether what a tier below has under their keys may be another block. It is not looked at; whoever had wanted it
  // would have loaded it.
  [[nodiscard]] bool doubt_what_is_below() const noexcept;
  // Those that something gave way to.
  [[nodiscard]] const std::vector<size_t>& replaced() const noexcept { return replaced_; }

 private:
  Manager& manager_;
  const bool takes_lossy_;
  const bool knows_positions_;
  const std::span<const codec::Position> positions_;
  std::vector<size_t> replaced_;
};

}  // namespace kvbm::manager
