// A leaf of a coded record that was opened but not decoded, for decoding leaf by leaf (coded_record.h).
#pragma once

#include <cstdint>

#include "codec/record/record.h"

namespace kvbm::codec {

struct OpenedLeaf {
  uint64_t offset = 0;  // offset of its bytes; its maker defines the origin
  uint32_t bytes = 0;
  LeafCodec codec = LeafCodec::raw;
  bool verified = false;  // these bytes were compared with the stored hash; else they must have `hash`
  uint64_t hash = 0;      // leaf_hash
};

}  // namespace kvbm::codec
