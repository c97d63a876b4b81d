#include <algorithm>
#include <cstring>
#include <vector>

#include "target.h"
#include "tier/disk/segment_format.h"
#include "tier/disk/superblock.h"

namespace superblock_fuzz {

KVBM_FUZZ_TARGET(superblock) {
  if (size == 0) return 0;
  std::vector<std::byte> slot(kvbm::tier::disk::kSuperblockSlotBytes);
  std::memcpy(slot.data(), data, std::min(size, slot.size()));
  const size_t fields = slot.size() - 8;
  // Half of the inputs get a right checksum, so that what lies behind it is reached.
  if (size % 2 == 0) {
    kvbm::store_le<uint64_t>(slot.data() + fields, kvbm::tier::disk::checksum(kvbm::ConstBytes(slot).first(fields),
                                                                              kvbm::tier::disk::kSuperblockMagic));
  }
  (void)kvbm::tier::disk::decode_superblock(slot).ok();
  return 0;
}

}  // namespace superblock_fuzz
