// Whether bytes that came from outside are the record that was asked for: for tiers that give what another process or
// machine kept.
#pragma once

#include "base/family_table.h"
#include "base/ids.h"
#include "codec/record.h"

namespace kvbm::tier {

// The head as a whole, and that it is of that identity and that payload. ok | damaged.
Code check_head(const Family& family, const Key& key, ConstBytes head, uint64_t payload_bytes,
                codec::HeadView* out = nullptr);
// Every leaf of the payload against the head's table. ok | damaged.
Code check_leaves(const codec::HeadView& head, ConstBytes payload);

}  // namespace kvbm::tier
