// Checks that bytes from outside are the record that was asked for: for tiers that return what another process or
// machine stored.
#pragma once

#include "base/family/family_table.h"
#include "base/ids.h"
#include "codec/record/record.h"

namespace kvbm::tier {

// Checks the head as a whole, and that it has that identity and payload size. ok | damaged.
Code check_head(const Family& family, const Key& key, ConstBytes head, uint64_t payload_bytes,
                codec::HeadView* out = nullptr);
// Checks every leaf of the payload against the head's table. ok | damaged.
Code check_leaves(const codec::HeadView& head, ConstBytes payload);

}  // namespace kvbm::tier
