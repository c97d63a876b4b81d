#include "manager/lower/open_disk.h"

#include <utility>

#include "tier/disk/disk_tier.h"

namespace kvbm::manager {

Result<std::unique_ptr<tier::Tier>> open_disk(const TierOptions& options, const Environment& env, FamilyTable& families,
                                              tier::TierListener* listener, TierIndex index) {
  tier::disk::DiskTierOptions disk;
  disk.path = options.path;
  disk.capacity_bytes = options.capacity_bytes;
  disk.write_bytes_per_s = options.write_bytes_per_s;
  disk.read_bytes_per_s = options.read_bytes_per_s;
  auto opened = tier::disk::DiskTier::open(disk, *env.files, *env.executor, families, *env.random, listener, index);
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<tier::Tier>(std::move(opened).value());
}

}  // namespace kvbm::manager
