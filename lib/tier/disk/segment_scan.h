// Reading a segment back: by its footer, or, where it has none, record by record. Shared by
// recovery and inspect. Blocks (control plane).
#pragma once

#include <vector>

#include "base/file.h"
#include "tier/disk/aligned_buffer.h"
#include "tier/disk/segment_format.h"

namespace kvbm::tier::disk {

// Writes of one life are in flight out of order, at most this far apart: how far past the last
// good record a scan looks for another.
inline constexpr uint64_t kScanAhead = uint64_t{24} << 20;

// What the footer says of itself; its table is not looked at.
Result<FooterTail> read_footer_tail(File& file, const SegmentLife& life);
// Into `buffer`, which grows where it must.
Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life, const FooterTail& tail, AlignedBuffer& buffer);
Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life);

struct ScanResult {
  std::vector<Row> rows;
  uint64_t damaged = 0;  // records whose head verified and whose payload did not
};
// All records of this life whose head and every leaf verify, in order of their place.
Result<ScanResult> scan_records(File& file, const SegmentLife& life);

// Whether the record at `row` verifies in full.
Result<bool> verify_record(File& file, const Row& row);

}  // namespace kvbm::tier::disk
