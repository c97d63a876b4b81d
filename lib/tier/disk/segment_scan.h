// Reads a segment back: by its footer, or record by record if it has none. Shared by recovery and inspect. Blocks
// (control plane).
#pragma once

#include <vector>

#include "base/io/file.h"
#include "tier/disk/aligned_buffer.h"
#include "tier/disk/segment_format.h"

namespace kvbm::tier::disk {

// Distance past the last good record in which a scan looks for another: writes of one life are in flight out of order,
// at most this far apart.
inline constexpr uint64_t kScanAhead = uint64_t{24} << 20;

// Reads the footer's tail; its table is not read.
Result<FooterTail> read_footer_tail(File& file, const SegmentLife& life);
// Reads into `buffer`, which grows if it must.
Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life, const FooterTail& tail,
                                     AlignedBuffer& buffer);
Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life);

struct ScanResult {
  std::vector<Row> rows;
  uint64_t damaged = 0;  // records with a good head and a bad payload
};
// Returns all records of this life with a head and leaves that verify, in order of their place.
Result<ScanResult> scan_records(File& file, const SegmentLife& life);

// Returns true if the record at `row` verifies in full.
Result<bool> verify_record(File& file, const Row& row);

}  // namespace kvbm::tier::disk
