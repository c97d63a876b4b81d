// The state of the disk tier. One mutex guards all of it. Events (calls, I/O completions, timers) change state under it
// and record actions in a Work, which is performed after it is released: no lock is held across I/O, callbacks or
// posts. Writer, reader, reclaim and recovery are the parts, one file each. `control_` orders the blocking superblock
// writes and is taken before mutex_, never inside.
//
// Budget per record: put and get allocate per run and per batch, not per record; find takes the
// mutex once per batch.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/thread/mutex.h"
#include "codec/record/record.h"
#include "tier/disk/aligned_buffer.h"
#include "tier/disk/bandwidth.h"
#include "tier/disk/disk_index.h"
#include "tier/disk/disk_tier.h"
#include "tier/disk/segment.h"
#include "tier/disk/superblock.h"

namespace kvbm::tier::disk {

// I/O errors in a row, of any kind, after which the disk is disabled.
inline constexpr uint32_t kFailuresToDisable = 8;
// Limits of one vectored read or write: bytes, and parts.
inline constexpr uint64_t kRunBytes = uint64_t{4} << 20;
inline constexpr size_t kRunVectors = 256;
inline constexpr uint64_t kSlotBytes = uint64_t{256} << 10;  // one slot of a staging ring

struct PutOp {
  static constexpr uint8_t kNoHint = UINT8_MAX;
  std::unique_ptr<PutBatch> batch;
  std::vector<uint32_t> to_write;  // items, in order
  size_t next = 0;                 // in to_write
  std::vector<uint8_t> tries;      // per item
  std::vector<bool> erased;        // per item: erase() was called while it was being written
  std::vector<uint8_t> hints;      // per item, hint() called meanwhile; kNoHint: none
  uint32_t open = 0;               // items without a status
  bool queued = false;
  std::vector<uint32_t> segments;    // written to; a durable batch syncs them
  std::vector<uint32_t> moved_from;  // per item: old location, for records carried by reclaim
  [[nodiscard]] bool carry() const { return !moved_from.empty(); }
};

// A caller that waits until segments are synced.
struct SyncWait {
  uint32_t open = 0;  // segments
  bool ok = true;
  std::shared_ptr<PutOp> put;          // a durable batch, which ends with the sync,
  UniqueFunction<void(bool ok)> done;  // or this runs, in perform(); it must not own the core, in which it waits
};

struct GetOp {
  struct Place {
    uint32_t segment = 0, location = 0;
    RecordPlace record;
    uint32_t open = 0;   // its reads that are outstanding: of the head, and of the payload
    uint64_t bytes = 0;  // of the payload that are read here, in whole pages: all or none
    bool leaves = true;  // the leaves are checked here
  };
  std::unique_ptr<GetBatch> batch;
  std::vector<Place> places;  // per item
  uint32_t open = 0;
  bool internal = false;
};

// A contiguous read for items of one batch.
struct ReadRun {
  std::shared_ptr<GetOp> op;
  uint32_t segment = 0;
  uint64_t offset = 0, bytes = 0;
  std::vector<IoRun> runs;
  // Items that this reads the head and the payload of. Heads on one page follow each other; the page is read into the
  // target of the first of them.
  std::vector<uint32_t> heads, payloads;
};

struct WriteRun {
  struct Item {
    std::shared_ptr<PutOp> op;
    uint32_t item = 0;
    uint32_t row = 0;  // of the segment
    RecordPlace place;
    uint64_t sequence = 0;
    std::byte* area = nullptr;          // head and envelope are laid out here
    std::byte* payload_copy = nullptr;  // copy of a payload that is not aligned for direct I/O
  };
  uint32_t segment = 0;
  uint64_t offset = 0, bytes = 0;
  uint64_t sent = 0;  // bytes of it that are on the medium
  std::vector<IoRun> runs;
  std::vector<Item> items;
  std::byte* shared = nullptr;  // the page of small heads that was begun last
  uint32_t shared_page = 0;
  uint32_t shared_used = 0;      // units of it that are taken
  std::byte* staging = nullptr;  // a slot of the staging ring,
  AlignedBuffer own;             // or the run's own memory, if one record needs more than a slot
};

// Actions that an event decided on under the mutex, to be performed after it.
struct Work {
  std::vector<std::unique_ptr<ReadRun>> reads;
  std::vector<std::unique_ptr<WriteRun>> writes;
  std::vector<std::shared_ptr<PutOp>> puts_done;
  std::vector<std::shared_ptr<GetOp>> gets_done;
  std::vector<std::shared_ptr<SyncWait>> syncs_done;
  std::vector<uint32_t> seals, syncs, prepares;
  std::vector<Identity> evicted, damaged;
  uint64_t not_durable = 0;  // of `evicted`: lost with a sync that failed
  uint64_t wake_at = 0;
  uint64_t patient_until = 0;  // like wake_at, for a wake-up that is requested once
  bool grow = false, reclaim = false, offer = false, disabled = false;
  Status warning;  // a condition that the user should see to
  UniqueFunction<void()> shutdown_done;
};

class DiskCore : public std::enable_shared_from_this<DiskCore> {
 public:
  DiskCore(const DiskTierOptions& options, Executor& executor, FamilyTable& families, TierListener* listener,
           TierIndex tier);
  // Opens the directory and recovers its records (recovery.cc). Blocks.
  Status open(FileSystem& fs, Random& random);

  [[nodiscard]] std::string describe() const;
  void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept KVBM_EXCLUDES(mutex_);
  bool pin(const Identity& id) noexcept KVBM_EXCLUDES(mutex_);
  void unpin(const Identity& id) noexcept KVBM_EXCLUDES(mutex_);
  void put(std::unique_ptr<PutBatch> batch, std::vector<uint32_t> moved_from) KVBM_EXCLUDES(mutex_);
  void get(std::unique_ptr<GetBatch> batch, bool internal) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] bool reads_from_files() const noexcept KVBM_EXCLUDES(mutex_);
  void erase(std::span<const Identity> ids) KVBM_EXCLUDES(mutex_);
  void hint(std::span<const Identity> ids, uint8_t priority) KVBM_EXCLUDES(mutex_);
  void reject(const Identity& id, uint64_t location) KVBM_EXCLUDES(mutex_);
  Status erase_families(std::span<const FamilyId> ids) KVBM_EXCLUDES(mutex_, control_);
  void families(FamilyTable::Named& named) KVBM_EXCLUDES(mutex_);
  size_t scan(uint64_t& cursor, std::span<ScanRow> out) KVBM_EXCLUDES(mutex_);
  TierStats stats() const KVBM_EXCLUDES(mutex_);
  uint64_t epoch(const NamespaceId& base_id) KVBM_EXCLUDES(mutex_);
  Status set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> forgotten,
                    std::span<const EpochRow> floored) KVBM_EXCLUDES(control_, mutex_);
  std::vector<EpochRow> epochs() KVBM_EXCLUDES(mutex_);
  std::vector<uint64_t> epoch_floors() KVBM_EXCLUDES(mutex_);
  void sync(UniqueFunction<void(const Status&)> done) KVBM_EXCLUDES(mutex_);
  void shutdown(UniqueFunction<void()> done) KVBM_EXCLUDES(mutex_);

 private:
  struct Pin {
    uint32_t count = 0;
    uint32_t segment = 0;
  };
  struct Reclaim {
    uint32_t segment = 0;
    uint32_t cursor = 0;          // in the index
    std::vector<Identity> ids;    // all records of the segment
    std::vector<Identity> carry;  // records worth carrying, hottest first
    std::vector<bool> followed;   // by entry number: chains now being written, or written last, depend on it
    size_t next = 0;
    // State of the take-over by a lower tier (demote.cc): of the records that are not carried, those that it wants.
    bool offering = false;
    bool reading = false;  // a part is being read, or taken over
    std::vector<Identity> wanted;
    size_t offered = 0;                // number of `wanted` that were read
    uint64_t patient_until = kNever;   // set when writing begins to wait for the take-over
    bool draining = false;             // emptied, waits for its readers
    std::vector<uint32_t> carried_to;  // segments
  };
  // A segment's next life, while its header is being written.
  struct NextLife {
    SegmentLife life;
    bool done = false;
    bool ok = false;
  };

  // Members in disk_core.cc: the event loop, and the families.
  void pump() KVBM_EXCLUDES(mutex_);
  void advance(Work& work) KVBM_REQUIRES(mutex_);
  void perform(Work& work, bool on_executor = false) KVBM_EXCLUDES(mutex_);
  void finish_shutdown(Work& work) KVBM_REQUIRES(mutex_);
  void fail(Work& work) KVBM_REQUIRES(mutex_);
  void full(Work& work) KVBM_REQUIRES(mutex_);
  void check_free_space() KVBM_EXCLUDES(mutex_);
  void drop_entry(uint32_t entry) KVBM_REQUIRES(mutex_);
  void wake_at(uint64_t when_ns);
  void expire(Work& work) KVBM_REQUIRES(mutex_);
  [[nodiscard]] uint32_t seconds() const { return static_cast<uint32_t>(executor_.clock().now_ns() / 1'000'000'000); }
  [[nodiscard]] uint32_t segment_of(uint32_t location) const { return location / segment_pages_; }
  [[nodiscard]] uint32_t page_of(uint32_t location) const { return location % segment_pages_; }
  void drop_families(const std::map<FamilyId, Family>& ids) KVBM_REQUIRES(mutex_);
  [[nodiscard]] uint64_t last_life_with(const Family& family) const KVBM_REQUIRES(mutex_);
  void bury(const std::vector<Tombstone>& dead, std::vector<Tombstone>& tombstones) const KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool is_erased(const Family& family, uint64_t life) const KVBM_REQUIRES(mutex_);
  void unlist(const Segment& segment) KVBM_REQUIRES(mutex_);

  // Members in writer.cc: writing records.
  void note_unsynced(PutOp& op, uint32_t segment) KVBM_REQUIRES(mutex_);
  void fill_writes(Work& work) KVBM_REQUIRES(mutex_);
  bool open_segment() KVBM_REQUIRES(mutex_);
  std::unique_ptr<WriteRun> next_write(Work& work, uint64_t most) KVBM_REQUIRES(mutex_);
  bool start_run(WriteRun& run, const PutItem& item, uint64_t& room) KVBM_REQUIRES(mutex_);
  // Returns the bytes of `staging` used.
  uint64_t add_record(WriteRun& run, const std::shared_ptr<PutOp>& op, uint32_t item, std::byte* staging)
      KVBM_REQUIRES(mutex_);
  void encode(WriteRun& run) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] bool loads_are_near(uint64_t now) const KVBM_REQUIRES(mutex_);
  bool yields(uint64_t now, Work& work) KVBM_REQUIRES(mutex_);
  void next_piece(std::unique_ptr<WriteRun> run) KVBM_EXCLUDES(mutex_);
  void write_on(std::unique_ptr<WriteRun> run) KVBM_EXCLUDES(mutex_);
  void written(std::unique_ptr<WriteRun> run, const Status& status) KVBM_EXCLUDES(mutex_);
  void publish(const WriteRun::Item& item, uint32_t segment, Work& work) KVBM_REQUIRES(mutex_);
  void settle(const std::shared_ptr<PutOp>& op, uint32_t item, Code code, Work& work) KVBM_REQUIRES(mutex_);
  void finish_put(const std::shared_ptr<PutOp>& op, Work& work) KVBM_REQUIRES(mutex_);
  void begin_seal(uint32_t segment, Work& work) KVBM_REQUIRES(mutex_);
  void seal(uint32_t segment) KVBM_EXCLUDES(mutex_);
  void write_footer(uint32_t segment) KVBM_EXCLUDES(mutex_);
  Segment& segment(uint32_t number) KVBM_EXCLUDES(mutex_);
  void sealed(uint32_t segment, bool footer) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] bool is_stopping() const KVBM_EXCLUDES(mutex_);
  void expire_puts(uint64_t now, Work& work) KVBM_REQUIRES(mutex_);
  void refuse_puts(Code code, Work& work, size_t most = SIZE_MAX) KVBM_REQUIRES(mutex_);
  void link(uint32_t entry, const PutItem& item) KVBM_REQUIRES(mutex_);

  // Members in sync.cc: making records durable.
  void wait_for_sync(const std::vector<uint32_t>& segments, std::shared_ptr<SyncWait> wait, Work& work)
      KVBM_REQUIRES(mutex_);
  void sync_segment(uint32_t segment) KVBM_EXCLUDES(mutex_);
  void synced(uint32_t segment, uint64_t life, std::vector<std::shared_ptr<SyncWait>> waits, uint64_t covers,
              const Status& status) KVBM_EXCLUDES(mutex_);
  void sync_failed(uint32_t segment, Work& work) KVBM_REQUIRES(mutex_);

  // Members in reader.cc: reading records.
  struct FileHold;
  void lend_file(GetItem& item, const GetOp::Place& place) KVBM_REQUIRES(mutex_);
  void release_file(uint32_t segment) noexcept KVBM_EXCLUDES(mutex_);
  void fill_reads(Work& work) KVBM_REQUIRES(mutex_);
  Code place_read(GetOp& op, uint32_t item) KVBM_REQUIRES(mutex_);
  void read_apart(const ReadRun& run) KVBM_REQUIRES(mutex_);
  void read_done(std::unique_ptr<ReadRun> run, const Result<size_t>& moved) KVBM_EXCLUDES(mutex_);
  Code verify(const GetItem& item, const GetOp::Place& place) const;
  void queue_reads(const std::shared_ptr<GetOp>& op, std::vector<uint32_t> items) KVBM_REQUIRES(mutex_);
  ReadRun& run_at(const std::shared_ptr<GetOp>& op, uint32_t segment, uint64_t offset, const IoRun& piece)
      KVBM_REQUIRES(mutex_);
  static void part_heads(const ReadRun& run);
  template <typename Which>
  void end_reads(Code code, Work& work, Which which) KVBM_REQUIRES(mutex_);
  void item_read(const std::shared_ptr<GetOp>& op, uint32_t item, Code code, Work& work) KVBM_REQUIRES(mutex_);
  void found_damaged(const Identity& id, uint32_t location, Work& work) KVBM_REQUIRES(mutex_);
  void settle_read(const std::shared_ptr<GetOp>& op, uint32_t item, Code code, Work& work) KVBM_REQUIRES(mutex_);
  void refuse_reads(Code code, Work& work) KVBM_REQUIRES(mutex_);
  void cancel_reads(Work& work) KVBM_REQUIRES(mutex_);
  void expire_reads(uint64_t now, Work& work) KVBM_REQUIRES(mutex_);

  // Members in reclaim.cc: emptying segments and making new ones.
  void maybe_reclaim(Work& work) KVBM_REQUIRES(mutex_);
  // Entries that some records depend on as their prefix, and the bytes of these in each segment.
  struct Followed {
    std::vector<bool> entries;
    std::vector<uint64_t> bytes;
    [[nodiscard]] bool add(uint32_t entry) {
      if (entry >= entries.size() || entries[entry]) return false;
      entries[entry] = true;
      return true;
    }
  };
  [[nodiscard]] bool next_follows_refused() const KVBM_REQUIRES(mutex_);
  void follow(uint32_t entry, Followed& out) const KVBM_REQUIRES(mutex_);
  void follow_next_of(const PutItem& item, Followed& out) const KVBM_REQUIRES(mutex_);
  void follow_written(Followed& out) const KVBM_REQUIRES(mutex_);
  [[nodiscard]] Followed followed_by_next() const KVBM_REQUIRES(mutex_);
  [[nodiscard]] uint32_t victim(std::vector<bool>& followed) KVBM_REQUIRES(mutex_);
  void reclaim_collect() KVBM_EXCLUDES(mutex_);
  void reclaim_choose(Reclaim& r) KVBM_REQUIRES(mutex_);
  void reclaim_abort() KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool carried_whole(const Segment& emptied) const KVBM_REQUIRES(mutex_);
  void reclaim_carry() KVBM_EXCLUDES(mutex_);
  void reclaim_store(std::unique_ptr<GetBatch> batch, std::shared_ptr<AlignedBuffer> memory, std::vector<uint32_t> from)
      KVBM_EXCLUDES(mutex_);
  void reclaim_drop() KVBM_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<PutItem> items_of(const GetBatch& got, std::vector<size_t>* which) const
      KVBM_REQUIRES(mutex_);
  void reclaim_drained(Work& work) KVBM_REQUIRES(mutex_);
  void prepare(uint32_t segment) KVBM_EXCLUDES(mutex_);
  void prepared(const SegmentLife& life, bool ok) KVBM_EXCLUDES(mutex_);
  uint32_t add_read(const Identity& id, uint32_t segment, GetBatch& batch, uint64_t& bytes) const KVBM_REQUIRES(mutex_);
  void begin_next_life(Work& work) KVBM_REQUIRES(mutex_);
  [[nodiscard]] uint32_t enough_free() const;
  [[nodiscard]] uint32_t to_grow() const KVBM_REQUIRES(mutex_);
  void grow() KVBM_EXCLUDES(mutex_);

  // Members in demote.cc: offering evicted records to a lower tier.
  void demote() KVBM_EXCLUDES(mutex_);
  void offer(Work& work) KVBM_REQUIRES(mutex_);
  void offer_next() KVBM_EXCLUDES(mutex_);
  uint64_t choose_part(Reclaim& r, GetBatch& batch) KVBM_REQUIRES(mutex_);
  void give_away(const GetBatch& got, const std::shared_ptr<AlignedBuffer>& memory, uint64_t bytes)
      KVBM_EXCLUDES(mutex_);
  void moved(const PutBatch& batch, uint64_t bytes) KVBM_EXCLUDES(mutex_);

  // Members in recovery.cc: opening a directory.
  Status check_directory(const std::vector<std::string>& names);
  Status load_superblock(const std::vector<std::string>& names, Random& random);
  Status load_segments(const std::vector<std::string>& names);
  void adopt(uint32_t number, const std::vector<Row>& rows) KVBM_REQUIRES(mutex_);
  Result<std::unique_ptr<Segment>> make_segment(uint32_t number, uint64_t sequence);
  Result<std::unique_ptr<Segment>> make_file(uint32_t number);
  std::vector<std::unique_ptr<Segment>> make_files(uint32_t first, uint32_t n, Status& why_not);
  Status open_segment_file(uint32_t number, std::unique_ptr<Segment>& out, bool& valid);
  std::map<uint32_t, FooterTail> reserve_index(const std::vector<uint32_t>& used);
  Status recover_segment(uint32_t number, const FooterTail* tail, AlignedBuffer& buffer);
  Status renew_segment(uint32_t number);
  void prune_tombstones() KVBM_REQUIRES(mutex_, control_);

  const DiskTierOptions options_;
  Executor& executor_;
  FamilyTable& families_;
  TierListener* const listener_;
  const TierIndex tier_;
  DirectoryLock directory_lock_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<File> superblock_file_;
  // Set by open() and constant after it.
  uint64_t segment_bytes_ = 0;
  uint64_t directory_id_ = 0;
  uint32_t segment_pages_ = 1;
  uint32_t max_segments_ = 0;
  uint32_t epoch_ = 0;
  std::shared_ptr<std::byte[]> staging_;

  mutable Mutex control_;
  Superblock superblock_ KVBM_GUARDED_BY(control_);

  mutable Mutex mutex_;
  // A copy of superblock_.epochs for callers that must not wait for a write.
  std::map<NamespaceId, EpochEntry> epochs_ KVBM_GUARDED_BY(mutex_);
  std::vector<uint64_t> floors_ KVBM_GUARDED_BY(mutex_);  // as Superblock::floors
  DiskIndex index_ KVBM_GUARDED_BY(mutex_);
  // Reserved for max_segments_ at open: a pointer in it stays valid without the mutex.
  std::vector<std::unique_ptr<Segment>> segments_ KVBM_GUARDED_BY(mutex_);
  std::deque<uint32_t> free_ KVBM_GUARDED_BY(mutex_);  // first in, first out, so that sequences stay in order
  uint32_t open_ KVBM_GUARDED_BY(mutex_) = UINT32_MAX;
  uint32_t preparing_ KVBM_GUARDED_BY(mutex_) = 0;           // segments in the state `preparing`
  std::deque<NextLife> next_lives_ KVBM_GUARDED_BY(mutex_);  // by sequence
  uint32_t closing_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t next_life_ KVBM_GUARDED_BY(mutex_) = 1;
  uint64_t next_record_ KVBM_GUARDED_BY(mutex_) = 1;
  // Families erased before the directory was opened, up to which life. Emptied when open() is done.
  std::map<Family, uint64_t> erased_ KVBM_GUARDED_BY(mutex_);
  // Families that segments hold records of, findable or not, and the number of these segments.
  std::map<Family, uint32_t> listed_ KVBM_GUARDED_BY(mutex_);
  // Families of listed_ that were erased, but a restart may find them again: the tombstone could not be written.
  std::set<Family> unwritten_ KVBM_GUARDED_BY(mutex_);
  bool crowded_ KVBM_GUARDED_BY(mutex_) = false;  // too many tombstones: one segment must go
  // Entries without their parent, by its identity: writes end in any order, so the parent may be published later. A
  // hint.
  static constexpr size_t kUnlinked = 1024;
  std::map<Identity, uint32_t> unlinked_ KVBM_GUARDED_BY(mutex_);
  // Records refused since the last segment was begun: their children are refused, too.
  static constexpr size_t kRefused = 4096;
  std::set<Identity> refused_ KVBM_GUARDED_BY(mutex_);
  bool nothing_to_reclaim_ KVBM_GUARDED_BY(mutex_) = false;  // for the record that is next in the queue
  std::unordered_map<Identity, Pin, IdentityHash> pins_ KVBM_GUARDED_BY(mutex_);  // looked up, never walked
  std::unique_ptr<Reclaim> reclaim_ KVBM_GUARDED_BY(mutex_);
  uint64_t moving_bytes_ KVBM_GUARDED_BY(mutex_) = 0;  // memory of records that lower tiers are taking over
  bool growing_ KVBM_GUARDED_BY(mutex_) = false;
  uint32_t syncs_open_ KVBM_GUARDED_BY(mutex_) = 0;  // sync() calls that have not ended
  uint64_t grow_again_at_ KVBM_GUARDED_BY(mutex_) = 0;

  std::deque<std::shared_ptr<PutOp>> put_queue_ KVBM_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<PutOp>> puts_ KVBM_GUARDED_BY(mutex_);  // all unfinished
  std::deque<std::unique_ptr<ReadRun>> read_queue_ KVBM_GUARDED_BY(mutex_);
  uint64_t next_deadline_ KVBM_GUARDED_BY(mutex_) = kNever;  // lower bound of the deadlines of queued items
  uint64_t write_bytes_ KVBM_GUARDED_BY(mutex_) = 0;         // in flight
  uint64_t read_bytes_ KVBM_GUARDED_BY(mutex_) = 0;
  uint32_t gets_open_ KVBM_GUARDED_BY(mutex_) = 0;
  // Open gets of callers, without those of reclaim; and the time at which the last one ended, 0: none did.
  uint32_t loads_open_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t last_load_ns_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t yields_until_ KVBM_GUARDED_BY(mutex_) = 0;                     // time that a timer is set for
  uint64_t last_piece_ns_ KVBM_GUARDED_BY(mutex_) = 0;                    // time at which the last write ended
  std::vector<std::unique_ptr<WriteRun>> begun_ KVBM_GUARDED_BY(mutex_);  // between two pieces; counted in write_bytes_
  std::vector<std::byte*> staging_free_ KVBM_GUARDED_BY(mutex_);
  Bandwidth read_cap_ KVBM_GUARDED_BY(mutex_);
  Bandwidth write_cap_ KVBM_GUARDED_BY(mutex_);
  uint32_t failures_ KVBM_GUARDED_BY(mutex_) = 0;  // I/O errors in a row
  bool full_ KVBM_GUARDED_BY(mutex_) = false;      // the file system was full, and no file was made since
  bool disabled_ KVBM_GUARDED_BY(mutex_) = false;
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
  UniqueFunction<void()> shutdown_done_ KVBM_GUARDED_BY(mutex_);
  TierStats stats_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::tier::disk
