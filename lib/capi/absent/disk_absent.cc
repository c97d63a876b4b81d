// Stands in for the disk tier, and for io_uring, in a build without them. The host's file is read and written by pread.
#include "base/io/io_engine.h"
#include "capi/absent/absent.h"
#include "manager/lower/open_disk.h"

namespace kvbm {

Result<std::shared_ptr<IoEngine>> make_uring_engine(Executor&, const UringOptions&) {
  return capi::absent(capi::kNoDisk);
}

namespace manager {

Result<std::unique_ptr<tier::Tier>> open_disk(const TierOptions&, const Environment&, FamilyTable&, tier::TierListener*,
                                              TierIndex) {
  return capi::absent(capi::kNoDisk);
}

}  // namespace manager

}  // namespace kvbm
