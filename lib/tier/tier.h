// The interface of every tier below host memory: disks, object stores, plug-ins and other nodes. A tier stores records
// (codec/record/record.h) by identity and returns them. It may lose any of them at any time (KV cache is soft state)
// but must never return wrong ones: the caller checks what it gets leaf by leaf, whatever the tier promises.
//
// Batch calls never block: they take ownership of the batch, and `done` runs exactly once on the tier's executor with a
// status per item, in any order with other batches. If the receiver checks leaves, `done` of a get runs on any thread
// that is not the caller's. Memory named by a batch stays borrowed until then. `deadline_ns` is on the executor's
// clock. An item that cannot be finished by then completes promptly as Code::deadline, and its memory is no longer
// touched.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/family/family_table.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/record/opened_leaf.h"

namespace kvbm::tier {

// A record on its way down. `head` and `payload` as in codec/record/record.h. For direct I/O the payload's
// address is kIoAlign-aligned and readable up to its length rounded up to kIoAlign.
struct PutItem {
  Identity id;
  Identity parent;  // same family; used only if has_parent
  bool has_parent = false;
  uint8_t priority = 0;  // policy::Hint
  uint16_t uses = 0;
  ConstBytes head;
  ConstBytes payload;
};

struct PutBatch {
  std::vector<PutItem> items;
  std::vector<Code> status;  // ok: stored (or there already); else disk_full, no_room, io_error, deadline, ...
  uint64_t deadline_ns = kNever;
  bool durable = false;  // ok only after the bytes survive a power cut
  // The batch holds records that another tier evicted, in the form in which that tier stored them. Coded or sealed
  // records are written unchanged; where all must be sealed, no other record is written.
  bool as_stored = false;
  UniqueFunction<void(PutBatch&)> done;
};

// Facts that a tier knows of a record without reading it.
struct Found {
  bool present = false;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;  // as stored: bytes to be read
  uint64_t location = 0;       // the tier's own; records stored together have neighbouring locations
  // Room that get() needs for the payload if that is more than its stored size, as in a tier that codes. 0: it is not.
  uint64_t room_bytes = 0;
  [[nodiscard]] uint64_t room() const noexcept { return room_bytes > payload_bytes ? room_bytes : payload_bytes; }
};

// Largest number of identities in one find(): a tier holds its lock meanwhile.
inline constexpr size_t kFoundAtOnce = 1024;

// Place of a payload in a file of the tier.
struct FilePlace {
  int fd = -1;          // -1: the payload cannot be read from a file
  uint64_t offset = 0;  // a multiple of kIoAlign; readable up to the payload's length rounded up to kIoAlign
  // While this is held the bytes do not change. Holders release it soon: the tier reclaims nothing around them
  // meanwhile.
  std::shared_ptr<void> hold;
};

// A record on its way up. The tier fills head[0, head_bytes) and payload[0, payload_bytes); both targets are
// kIoAlign-aligned with room rounded up to kIoAlign. The tier checks the head's identity and root hash, and every leaf
// (unless the receiver does). A mismatch is reported as damaged, counted and quarantined.
struct GetItem {
  Identity id;
  uint64_t location = 0;  // from find(); 0 = look it up. out: where it was read from
  MutableBytes head;
  MutableBytes payload;
  uint32_t head_bytes = 0;     // out; in: as stored, if that is known
  uint64_t payload_bytes = 0;  // out; in: as stored, if known
  // out, if the receiver borrows: the payload, in the tier's own memory, valid while `lender` is held. `payload` was
  // not written then.
  ConstBytes lent;
  std::shared_ptr<void> lender;
  // out, if the receiver reads files: where the payload can be read. `payload` was not written.
  FilePlace file;
  // out, if the receiver decodes: the leaves of a record that is handed on coded, at their offsets in `payload` or in
  // `lent`. `head` is then that of the plain record (codec::open_record), and payload_bytes its plain size. Empty: the
  // payload is plain.
  std::vector<codec::OpenedLeaf> coded;
};

// Returns true if a receiver can decode a leaf that the given codec coded; at least the first 64 coded bytes are given.
// Thread: any.
using DecodesLeaf = std::function<bool(codec::LeafCodec, ConstBytes)>;

// Abilities of the receiver of a batch. A tier may make use of them and need not. All others need `verifies`.
struct Accepts {
  // Compares every leaf with its hash as it copies, and calls reject() for damaged ones. So the tier may skip its own
  // pass over the payload; it still checks heads.
  bool verifies = false;
  // Reads each payload once and releases it soon, so a tier that has it in memory may lend it.
  bool borrows = false;
  // Reads the payloads itself (GetItem::file); the tier reads heads only. Only for a tier that reads_from_files().
  // Coded records are returned as they are stored: their head says so.
  bool files = false;
  // Says which leaves the receiver decodes itself; it compares them as codec::open_record() requires. A tier may hand
  // on a record if the receiver decodes most of it. Null: the receiver decodes none.
  DecodesLeaf decodes;
};

struct GetBatch {
  std::vector<GetItem> items;  // in the order wanted; neighbours are read together
  std::vector<Code> status;    // ok, miss, damaged, io_error, deadline, ...
  uint64_t deadline_ns = kNever;
  Accepts accepts;
  UniqueFunction<void(GetBatch&)> done;
};

// Counters of a tier that codes (tier/coded). Bytes are of payloads.
struct CodecStats {
  uint64_t coded = 0;          // records stored coded
  uint64_t plain_bytes = 0;    // their bytes before coding
  uint64_t stored_bytes = 0;   // and after coding
  uint64_t sealed = 0;         // of records stored, coded or not
  uint64_t left_plain = 0;     // records stored as they were
  uint64_t encode_ns = 0;      // of all threads together, as decode_ns
  uint64_t decoded = 0;        // records that were read and decoded
  uint64_t decoded_bytes = 0;  // plain
  uint64_t decode_ns = 0;
  uint64_t refused_lossy = 0;  // coded with loss, but readers here allow no loss
  uint64_t missing_keys = 0;   // sealed with a key that is not here, or not sealed where all must be
  uint64_t damaged = 0;        // records that failed to decode or open
  uint64_t stepped_down = 0;   // times that encoding held up writing, and was made faster or stopped
  uint64_t probes = 0;         // records coded only to measure
  double difference = 0;       // of records coded with loss: sum of squared differences,
  double value = 0;            // and of squared values
  uint32_t mode = 0;           // codec::Mode of the record stored last
  uint32_t automatic = 0;      // 1: chosen by measuring
  uint32_t setting = 0;        // codec::Mode of the configuration; 0: none, or automatic
  uint32_t seals = 0;          // 1: records are stored sealed
};

// Counters of a tier over a store (tier/store).
struct StoreStats {
  uint64_t requests = 0;  // sent, tries included
  uint64_t retries = 0;
  uint64_t failures = 0;    // tries that failed; "not found" is no failure
  uint64_t refused = 0;     // not sent, in back-off
  uint64_t overdue = 0;     // ended at their deadline without an answer
  uint64_t unanswered = 0;  // overdue requests that the store has not answered to this moment
  uint64_t back_offs = 0;   // times that a back-off began
  uint64_t sent_bytes = 0, received_bytes = 0;
  // Records that were read before a load asked for them; of these, those that one asked for then, and those dropped.
  uint64_t ahead_bytes = 0, ahead_used_bytes = 0, ahead_unused_bytes = 0;
  uint64_t packs = 0;      // known to be in the store
  uint64_t is_store = 0;   // 1: this tier is over a store
  uint64_t backs_off = 0;  // 1: in back-off now
};

struct TierStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;  // everything on the medium that counts against the capacity
  uint64_t records = 0;
  uint64_t payload_bytes = 0;
  uint64_t index_bytes = 0;    // memory for the index
  uint64_t staging_bytes = 0;  // the tier's own memory that reads land in now, or that a late read may still write to
  uint64_t puts = 0, put_bytes = 0, put_errors = 0;
  uint64_t gets = 0, get_bytes = 0, get_errors = 0, misses = 0;
  uint64_t damaged = 0, evicted = 0, reclaimed_bytes = 0, rewritten_bytes = 0, dropped_full = 0;
  // Records evicted from this tier that a lower tier asked for: accepted by it, and lost.
  uint64_t moved_down = 0, moves_lost = 0;
  uint64_t full = 0;                        // times that a disk's file system had no space within the capacity
  uint64_t faults = 0, second_answers = 0;  // of plug-ins: all, and repeated answers alone
  CodecStats codec;
  StoreStats store;
};

// One row of scan(): a record of the tier.
struct ScanRow {
  Identity id;
  uint64_t payload_bytes = 0;
  uint32_t idle_seconds = 0;  // since its last use
  uint16_t uses = 0;
};

// Is notified of records that leave a tier on the tier's own account (evicted, damaged). Called on the tier's executor,
// without the tier's locks held.
class TierListener {
 public:
  virtual ~TierListener() = default;
  virtual void removed(TierIndex tier, std::span<const Identity> ids, bool damaged) = 0;
  // Notes that so many of the records removed last were stored, and then lost because a sync failed.
  virtual void not_durable(TierIndex /*tier*/, uint64_t /*records*/) {}
  virtual void disabled(TierIndex tier, const Status& why) = 0;
  // Another process that uses the same store has ended all epochs of a namespace that precede this one. May block.
  virtual void epoch_raised(TierIndex /*tier*/, const NamespaceEpoch& /*row*/) {}
  // Reports a condition that the user should see to; the tier goes on. Also called while the tier is being opened.
  virtual void warns(TierIndex /*tier*/, const Status& /*why*/) {}
  // Offers records before the tier evicts them. The listener removes from `ids` those that no lower tier wants, and
  // keeps the order. The tier reads and checks the rest, passes them to take_over() part by part, and evicts each after
  // that.
  virtual void wanted(TierIndex /*tier*/, std::vector<Identity>& ids) { ids.clear(); }
  // Passes evicted records to the next tier; batches are as_stored. Until `done` runs, every record of the batch is
  // still found in `tier`, unless it was erased there or is damaged. `done` runs once, maybe before this returns, on
  // any thread of the executor.
  virtual void take_over(TierIndex /*tier*/, std::unique_ptr<PutBatch> batch) {
    batch->status.assign(batch->items.size(), Code::unsupported);
    batch->done(*batch);
  }
};

// A record in memory of this process that another process owns and may write at any moment. A reader copies the head
// out, checks it, and compares each leaf as it is copied (copy/local/fetch.h).
struct InPlace {
  Identity id;
  uint64_t location = 0;  // from find(); 0 = look it up
  // Set by in_place(). Without memory the record can be read by get() only.
  ConstBytes head;
  ConstBytes payload;
  std::shared_ptr<const void> memory;  // stays mapped for as long as this is kept
  // Set by the reader: ok and the bytes copied, or that the record was not there (any more).
  Code code = Code::ok;
  uint64_t bytes = 0;
};

// Largest epoch that is taken from other hosts, by a peer's word or from a store: a larger one would leave no room to
// end it.
inline constexpr uint64_t kMaxSharedEpoch = uint64_t{1} << 63;

// The epoch of a namespace, as a tier writes it down.
struct EpochRow {
  NamespaceId base;  // of epoch 0
  uint64_t epoch = 0;
  uint64_t raised = 0;   // orders the rows of one process by when they were raised
  bool foreign = false;  // reported by a peer: no process here ever had a handle of the namespace
  bool operator==(const EpochRow&) const = default;
};

// Number of namespaces with epochs that a manager knows, and that a disk keeps, at most.
inline constexpr size_t kEpochRows = 4096;

// Number of floors. They keep ended epochs ended after the row of their namespace was dropped: each namespace belongs
// to one floor, and without a row it is at the epoch that its floor was raised to. So a namespace that was never
// invalidated also begins at that epoch if it shares a floor with a dropped row; it loses hits only.
inline constexpr size_t kEpochFloors = 4032;
[[nodiscard]] inline size_t epoch_floor_of(const NamespaceId& base) noexcept {
  uint64_t hash;  // ids are hashes
  std::memcpy(&hash, base.bytes.data(), sizeof hash);
  return hash % kEpochFloors;
}

class Tier {
 public:
  virtual ~Tier() = default;                                         // does not wait: call shutdown() first
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;  // "disk", "plugin", ...
  [[nodiscard]] virtual std::string describe() const = 0;            // one line for people

  // Answers from memory, never blocks. Fills out[i]; absent records have present = false. Counts as a use if `touch`.
  virtual void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept = 0;
  // True if the tier offers its listener what it evicts (TierListener::wanted).
  [[nodiscard]] virtual bool offers_what_it_lets_go() const noexcept { return false; }
  // While pinned, a found record is not reclaimed; pins nest; the identity must have been found. Returns false if the
  // record is no longer there (or the tier cannot pin: then a get may miss).
  virtual bool pin(const Identity& id) noexcept = 0;
  virtual void unpin(const Identity& id) noexcept = 0;

  virtual void put(std::unique_ptr<PutBatch> batch) = 0;
  virtual void get(std::unique_ptr<GetBatch> batch) = 0;
  // Says where found records can be read directly. Answers from memory, never blocks. The reader reports the outcome by
  // read_in_place() soon, also for several calls at once or for a part of one. For records that were not there the
  // reader then calls get(). Thread: any.
  virtual void in_place(std::span<InPlace> /*items*/) noexcept {}
  virtual void read_in_place(std::span<const InPlace> /*items*/) noexcept {}
  // True if get() can say where payloads lie in files (Accepts::files).
  [[nodiscard]] virtual bool reads_from_files() const noexcept { return false; }
  // Forgets records; absent ones are ignored. After it returns no get started later finds them.
  virtual void erase(std::span<const Identity> ids) = 0;
  // Changes the hint (policy::Hint) of stored records; absent ones are ignored. Changes memory only, never blocks.
  // Thread: any.
  virtual void hint(std::span<const Identity> /*ids*/, uint8_t /*priority*/) {}
  // A receiver found that the payload read from `location` does not verify. The tier treats it as damage of its own.
  virtual void reject(const Identity& id, uint64_t location) = 0;
  // Forgets every record of a family. Persisted before it returns where the tier persists.
  virtual Status erase_family(FamilyId family) = 0;
  // Forgets every record of many families. Returns the first error, after all were tried.
  virtual Status erase_families(std::span<const FamilyId> families) {
    Status first;
    for (const FamilyId family : families) {
      Status erased = erase_family(family);
      if (!erased.ok() && first.ok()) first = std::move(erased);
    }
    return first;
  }

  // Adds the families that have records here to `named`. Answers from memory. Thread: any.
  virtual void families(FamilyTable::Named& named) {
    std::array<ScanRow, 256> rows;
    uint64_t cursor = 0;
    do {
      const size_t n = scan(cursor, rows);
      for (size_t i = 0; i < n; ++i) named.add(rows[i].id.family);
    } while (cursor != 0);
  }
  // These ids are no longer in use and have no records: state that is kept by them can be dropped. Thread: any.
  virtual void forget_families(std::span<const FamilyId> /*gone*/) {}

  // Rows in a stable order starting after `cursor` (0 = start); sets cursor for the next page, 0 at the end.
  virtual size_t scan(uint64_t& cursor, std::span<ScanRow> out) = 0;
  [[nodiscard]] virtual TierStats stats() const = 0;

  // Persisted counters by namespace (the namespace epoch). A tier that does not persist returns
  // nothing and accepts everything.
  virtual Result<uint64_t> epoch(const NamespaceId& base_id) = 0;
  virtual Status set_epoch(const NamespaceId& base_id, uint64_t epoch) = 0;
  // False if set_epoch() accepts everything and a later process may find records of an ended epoch here.
  [[nodiscard]] virtual bool keeps_epochs() const noexcept { return true; }
  // Writes several epochs, at once where the tier can. `forgotten`: rows that are no longer needed. `floored`: rows
  // that are dropped and raise their floor to their epoch. On failure some or none of them are written; the call can be
  // repeated.
  virtual Status set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> /*forgotten*/,
                            std::span<const EpochRow> /*floored*/) {
    for (const EpochRow& row : rows) {
      if (Status status = set_epoch(row.base, row.epoch); !status.ok()) return status;
    }
    return {};
  }
  // Returns all epochs that are written down here. Never waits for a write of them.
  virtual std::vector<EpochRow> epochs() { return {}; }
  // Returns the kEpochFloors floors that are written down here; empty: none was ever raised.
  virtual std::vector<uint64_t> epoch_floors() { return {}; }

  // Makes durable what was stored before and is still here. `done` runs once, on the tier's executor or before this
  // returns, with ok if all of it survives a power cut. io_error: some records could not be made durable and were
  // dropped.
  virtual void sync(UniqueFunction<void(const Status&)> done) {
    done(Status(Code::unsupported, "this tier cannot promise what survives a power cut"));
  }
  // Stops accepting work. `done` runs on the core's executor when nothing is in flight any more and everything
  // acknowledged is on the medium. It may destroy the tier.
  virtual void shutdown(UniqueFunction<void()> done) = 0;
};

}  // namespace kvbm::tier
