// Records that go on to their receiver coded, because it decodes them itself: opened, checked as far as that goes without
// decoding, and laid at the end of their target, so that they can be decoded there later (codec::decode_opened).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded_record.h"
#include "tier/tier.h"

namespace kvbm::tier::coded {

// Where in `target` a payload of so many bytes is to be read so that it can be handed on from there: at its end, as direct
// I/O wants it. kNoLanding: it does not fit.
inline constexpr uint64_t kNoLanding = UINT64_MAX;
[[nodiscard]] uint64_t landing_of(MutableBytes target, uint64_t stored_bytes) noexcept;

// Makes what the receiver of `item` wants of a coded record: its leaves in item.coded, where `decodes` takes at least half
// of its coded bytes; else the plain record in item.payload, decoded here. `stored` lies at landing_of() in item.payload
// or anywhere else; where `lender` keeps it, it is lent on. `coded` does not lie in item.head.
// Codes as of codec::decode_record(). Where it fails nothing of item.payload may be used.
Status hand_on(GetItem& item, const codec::HeadView& coded, ConstBytes stored, const std::shared_ptr<void>& lender,
               const codec::DecodeRules& rules, const DecodesLeaf& decodes, codec::Workspace& workspace);

}  // namespace kvbm::tier::coded
