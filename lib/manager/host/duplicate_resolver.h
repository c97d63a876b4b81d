// Duplicate resolution: which of two blocks of one key the host keeps.
//
// The resident block stays, unless it cannot replace the new one. That is so if it was coded with loss, the new one
// was not, and the owner of the new one accepts no loss. Among blocks that callers store it is also so if the
// resident one was computed at another position. Then it gives way (block::Precedence). So no reader gets bytes that
// it did not ask for, and no caller is notified of a stored block that is missing.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "block/block_table.h"
#include "codec/record/record.h"

namespace kvbm::manager {

class HostTier;

class DuplicateResolver final : public block::Precedence {
 public:
  // Stands for a record from a tier below.
  DuplicateResolver(HostTier& host, bool lossy) : host_(host), takes_lossy_(lossy), knows_positions_(false) {}
  // Stands for blocks that a caller made. `takes_lossy`: see NamespaceOptions::allow_lossy. Positions are empty or one
  // for each.
  DuplicateResolver(HostTier& host, bool takes_lossy, std::span<const codec::Position> positions)
      : host_(host), takes_lossy_(takes_lossy), knows_positions_(true), positions_(positions) {}

  // Returns true if a held block may replace the i-th new one.
  [[nodiscard]] bool stands_in(SlotId there, size_t i) const noexcept;
  bool gives_way(SlotId there, size_t i) noexcept override;
  [[nodiscard]] bool are_callers() const noexcept { return knows_positions_; }
  // Returns true if a tier below may have another block under one of these keys. Those records are not read: a caller
  // that wants one would have loaded it.
  [[nodiscard]] bool doubt_what_is_below() const noexcept;
  // Indices of the new blocks that have replaced a resident one.
  [[nodiscard]] const std::vector<size_t>& replaced() const noexcept { return replaced_; }

 private:
  HostTier& host_;
  const bool takes_lossy_;
  const bool knows_positions_;
  const std::span<const codec::Position> positions_;
  std::vector<size_t> replaced_;
};

}  // namespace kvbm::manager
