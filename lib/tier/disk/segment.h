// State of one segment file: its current life, how full it is, and the counts by which the next victim is chosen.
// Lock: DiskCore's mutex, but for `file`, which is set before the segment is shared and then constant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/file.h"
#include "tier/disk/segment_format.h"

namespace kvbm::tier::disk {

enum class SegmentState : uint8_t {
  free,        // prepared: header written and synced, no record of this life
  open,        // records are appended
  closing,     // full; waits for its writes, then gets its footer
  closed,      // immutable
  reclaiming,  // its hot records are carried forward
  preparing,   // emptied; the header of the next life is being written
  lost         // its header could not be written; not used again by this owner
};

struct SyncWait;

struct Segment {
  struct LiveRow {
    Row row;
    uint64_t written = 0;  // 0: not yet; else its position in the order of writes here
  };

  std::unique_ptr<File> file;
  SegmentLife life;
  SegmentState state = SegmentState::free;
  bool footer = false;   // the medium has a footer for this life
  bool sealing = false;  // sync and footer are under way
  bool sync_running = false;
  // A sync of this life failed. The system may treat lost bytes as written, so a later sync that succeeds proves
  // nothing.
  bool sync_failed = false;
  uint64_t written = 0;  // records of this life
  uint64_t synced = 0;   // number of records, from the first, that survive a power cut
  uint32_t writes = 0;   // in flight
  uint32_t reads = 0;    // in flight or queued
  uint32_t pins = 0;
  uint32_t renew_failures = 0;
  uint32_t next_page = 1;  // where the next record is placed
  uint64_t live_bytes = 0;
  uint32_t live_records = 0;
  uint32_t heat = 0;  // finds since the last reclaim round, halved each time
  FooterSize footer_size;
  std::vector<LiveRow> rows;                            // until the footer is written
  std::vector<std::shared_ptr<SyncWait>> sync_waiters;  // for the next sync

  void begin_life(const SegmentLife& next) {
    life = next;
    state = SegmentState::free;
    footer = sealing = sync_failed = false;
    written = synced = 0;
    next_page = 1;
    live_bytes = 0;
    live_records = heat = 0;
    footer_size = FooterSize();
    rows = {};
  }
  [[nodiscard]] bool has_room(uint64_t bytes, const Family& family) const {
    return next_page * kPage + bytes + footer_size.with(family) <= life.segment_bytes;
  }
  void gone(uint64_t bytes) {
    live_bytes -= std::min(live_bytes, bytes);
    if (live_records > 0) --live_records;
  }
};

// Name of a segment's file: "segment-000001.kv" for segment 0; more than six digits only where the number has them.
std::string segment_name(uint32_t segment);
// The number in such a name; UINT32_MAX for any other name.
uint32_t segment_number(std::string_view name);
// True for names that a tier's directory may hold: kvbm's own, with share.sock of manager/share, and lost+found.
bool is_tier_file(std::string_view name);

}  // namespace kvbm::tier::disk
