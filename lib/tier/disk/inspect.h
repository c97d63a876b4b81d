// A read-only walk over a tier directory, for `kvbm inspect`. It changes nothing and does not keep the owner out. If an
// owner is running (`in_use`), records being written may show as damage. Blocks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/function.h"
#include "base/io/file.h"
#include "tier/disk/segment_format.h"
#include "tier/disk/superblock.h"

namespace kvbm::tier::disk {

struct SegmentReport {
  uint32_t number = 0;  // as in the file name, from 1
  std::string state;    // "closed", "open", "free", "unreadable"
  uint32_t generation = 0, epoch = 0;
  uint64_t sequence = 0;
  uint64_t records = 0, damaged = 0;
  uint64_t record_bytes = 0;  // with heads and padding
  uint64_t uses = 0;          // as of when the records were written
};

// Coding and sealing of records, counted from the heads that were read.
struct CodingReport {
  uint64_t heads = 0;
  uint64_t coded = 0, sealed = 0, lossy = 0;
  uint64_t plain_bytes = 0, stored_bytes = 0;  // payload bytes of coded and sealed ones, before and after
  std::map<uint32_t, uint64_t> keys;           // sealed records by the id of their key
};

struct InspectReport {
  Superblock superblock;
  uint64_t file_bytes = 0;
  uint64_t records = 0, damaged = 0, payload_bytes = 0;
  CodingReport coding;
  bool in_use = false;
  std::vector<std::string> foreign;
  std::vector<SegmentReport> segments;
};

// `verify`: every record is read and checked, not only the tables. `heads`: most heads that are read of a segment, for
// InspectReport::coding. `progress` is called with (segments done, segments in all), `record` with each record and
// whether it is damaged. Either may be empty.
Result<InspectReport> inspect(FileSystem& fs, const std::string& path, bool verify, uint64_t heads,
                              UniqueFunction<void(uint64_t, uint64_t)> progress,
                              UniqueFunction<void(const SegmentReport&, const Row&, bool)> record);

}  // namespace kvbm::tier::disk
