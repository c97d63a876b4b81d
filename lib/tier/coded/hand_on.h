// Hands coded records on to a receiver that decodes them itself. The record is opened, checked as far as possible
// without decoding, and placed at the end of its target, so that it can be decoded there later (codec::decode_opened).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded/coded_record.h"
#include "tier/tier.h"

namespace kvbm::tier::coded {

// Offset in `target` at which a payload of `stored_bytes` is read so that it can be handed on from there: at its end,
// aligned for direct I/O. kNoLanding: it does not fit.
inline constexpr uint64_t kNoLanding = UINT64_MAX;
[[nodiscard]] uint64_t landing_of(MutableBytes target, uint64_t stored_bytes) noexcept;

// Turns a coded record into what the receiver of `item` wants. If `decodes` takes at least half of the coded bytes, its
// leaves go to item.coded; else it is decoded here, into item.payload. `stored` lies at landing_of() in item.payload or
// anywhere else; if `lender` keeps it valid, it is lent on. `coded` does not lie in item.head. Returns the codes of
// codec::decode_record(). After a failure item.payload must not be used.
Status hand_on(GetItem& item, const codec::HeadView& coded, ConstBytes stored, const std::shared_ptr<void>& lender,
               const codec::DecodeRules& rules, const DecodesLeaf& decodes, codec::Workspace& workspace);

}  // namespace kvbm::tier::coded
