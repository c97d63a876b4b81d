// The one interface of every tier below host memory: disks here, peers, object stores, caches and
// plug-ins later. A tier stores records (codec/record.h) by identity and gives them back; it may
// lose any of them at any time (KV cache is soft state) and must never give wrong ones: what it
// returns is checked by the caller leaf by leaf, whatever the tier promises.
//
// Batch calls never block: they take ownership of the batch, and `done` runs exactly once on the
// tier's executor (a get whose receiver checks leaves: on any thread that is not the caller's) with a status per item,
// in any order with other batches. Memory named by a batch stays borrowed until then. `deadline_ns` is on the
// executor's clock; an item that cannot be finished by then completes as Code::deadline, promptly, and its memory is no
// longer touched.
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
#include "base/family_table.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/opened_leaf.h"

namespace kvbm::tier {

// A record on its way down. `head` and `payload` as in codec/record.h. For direct I/O the payload's
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
  // Another tier let them go, and they are as it had them: what is coded or sealed is written as it is, and where all
  // must be sealed nothing else is written.
  bool as_stored = false;
  UniqueFunction<void(PutBatch&)> done;
};

// What a tier knows of a record without reading it.
struct Found {
  bool present = false;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;  // as stored: what reading it takes
  uint64_t location = 0;       // the tier's own; records stored together have neighbouring locations
  // Room that get() needs for the payload where that is more than what is stored: a tier that codes. 0: it is not.
  uint64_t room_bytes = 0;
  [[nodiscard]] uint64_t room() const noexcept { return room_bytes > payload_bytes ? room_bytes : payload_bytes; }
};

// find() is asked about at most so many at once: a tier holds its lock meanwhile.
inline constexpr size_t kFoundAtOnce = 1024;

// A record on its way up. The tier fills head[0, head_bytes) and payload[0, payload_bytes); both
// targets are kIoAlign-aligned with room rounded up to kIoAlign. With first_leaf/n_leaves set, only the bytes
// of those leaves need to be filled, at their place. The tier checks the head's identity and
// root hash and, for whole payloads, every leaf it read (unless the receiver does); mismatch = damaged, counted and
// quarantined.
// Where a payload lies in a file of the tier's.
struct FilePlace {
  int fd = -1;  // -1: nowhere that could be read like that
  uint64_t offset = 0;  // a multiple of kIoAlign; readable up to the payload's length rounded up to kIoAlign
  // The bytes stay what they are as long as this is kept: soon, for the tier reclaims nothing around them meanwhile.
  std::shared_ptr<void> hold;
};

struct GetItem {
  Identity id;
  uint64_t location = 0;  // from find(); 0 = look it up. out: where it was read from
  MutableBytes head;
  MutableBytes payload;
  uint64_t payload_offset = 0;  // the part of the payload wanted; payload_wanted = 0 means all of it
  uint64_t payload_wanted = 0;
  uint32_t head_bytes = 0;     // out
  uint64_t payload_bytes = 0;  // out
  // out, where the batch allows it: the payload, in memory of the tier's own, for as long as `lender` is kept;
  // `payload` was not written then.
  ConstBytes lent;
  std::shared_ptr<void> lender;
  // out, where the batch asks for it: the payload is there to be read; `payload` was not written.
  FilePlace file;
  // out, where the batch allows it: the leaves of a record that is handed on coded, at their offsets in `payload` or in
  // what is lent; `head` is that of the plain record (codec::open_record), and payload_bytes what it takes plain. Empty:
  // the payload is plain.
  std::vector<codec::OpenedLeaf> coded;
};

// Whether a receiver decodes a leaf of that codec, of whose coded bytes at least the first 64 are there. Thread: any.
using DecodesLeaf = std::function<bool(codec::LeafCodec, ConstBytes)>;

struct GetBatch {
  std::vector<GetItem> items;  // in the order wanted; neighbours are read together
  std::vector<Code> status;    // ok, miss, damaged, io_error, deadline, ...
  uint64_t deadline_ns = kNever;
  // The receiver compares every leaf with its hash as it copies, and calls reject() for what is wrong: the
  // tier may leave that second pass over the payload out. It checks heads all the same.
  bool receiver_checks_leaves = false;
  // With it: the receiver reads each payload once and gives it back soon, so a tier that has it in memory may lend it.
  bool receiver_borrows = false;
  // With it: only heads are read, payloads by the receiver himself, past the tier (GetItem::file). Only of a tier that
  // reads_from_files(). What is coded comes so too, as it is: the head says it.
  bool receiver_reads = false;
  // With receiver_checks_leaves: the receiver decodes leaves itself, where this says so, and compares them as
  // codec::open_record() wants it. A tier may hand on records of which it decodes most. Null: it decodes none.
  DecodesLeaf receiver_decodes;
  UniqueFunction<void(GetBatch&)> done;
};

// What a tier that codes (tier/coded) made of what it was given. Bytes are of payloads.
struct CodecStats {
  uint64_t coded = 0;          // records stored coded,
  uint64_t plain_bytes = 0;    // their bytes before
  uint64_t stored_bytes = 0;   // and after
  uint64_t sealed = 0;         // of records stored, coded or not
  uint64_t left_plain = 0;     // records stored as they were
  uint64_t encode_ns = 0;      // of all threads together, as decode_ns
  uint64_t decoded = 0;        // records that came back
  uint64_t decoded_bytes = 0;  // plain
  uint64_t decode_ns = 0;
  uint64_t refused_lossy = 0;  // records that no reader here allows
  uint64_t missing_keys = 0;   // records sealed with a key that is not here, or not sealed where all must be
  uint64_t damaged = 0;        // records that did not decode or open
  uint64_t stepped_down = 0;   // times that encoding held up writing, and was made faster or left
  uint64_t probes = 0;         // records coded only to measure
  double difference = 0;       // of what was coded with loss: squared differences,
  double value = 0;            // and squared values
  uint32_t mode = 0;           // codec::Mode of what was stored last
  uint32_t automatic = 0;      // 1: chosen by measuring
  uint32_t setting = 0;        // codec::Mode of the configuration; 0: none, or automatic
  uint32_t seals = 0;          // 1: what is stored is sealed
};

// Of a tier over a store (tier/store): what was asked of it.
struct StoreStats {
  uint64_t requests = 0;  // sent, tries included
  uint64_t retries = 0;
  uint64_t failures = 0;    // tries that failed; that something is not there is none
  uint64_t refused = 0;     // not sent, in back-off
  uint64_t overdue = 0;     // given up at their deadline
  uint64_t unanswered = 0;  // of these, those that the store has not given back: now
  uint64_t back_offs = 0;   // times that one began
  uint64_t sent_bytes = 0, received_bytes = 0;
  uint64_t packs = 0;     // known to be in the store
  uint64_t is_store = 0;  // 1: it is one
  uint64_t backs_off = 0;  // 1: now
};

struct TierStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;  // everything on the medium that counts against the capacity
  uint64_t records = 0;
  uint64_t payload_bytes = 0;
  uint64_t index_bytes = 0;  // memory for the index
  uint64_t staging_bytes = 0;  // memory of its own that reads land in now, and what a late one may still touch
  uint64_t puts = 0, put_bytes = 0, put_errors = 0;
  uint64_t gets = 0, get_bytes = 0, get_errors = 0, misses = 0;
  uint64_t damaged = 0, evicted = 0, reclaimed_bytes = 0, rewritten_bytes = 0, dropped_full = 0;
  // Of the records that somebody below wanted when this tier let them go: those that were taken over, and not.
  uint64_t moved_down = 0, moves_lost = 0;
  uint64_t full = 0;  // times that a disk's file system had no room within the capacity
  uint64_t faults = 0, second_answers = 0;  // of plug-ins: hangs, lies and second answers; and the last of these alone
  CodecStats codec;
  StoreStats store;
};

// One row of scan(): what a tier holds.
struct ScanRow {
  Identity id;
  uint64_t payload_bytes = 0;
  uint32_t idle_seconds = 0;  // since its last use
  uint16_t uses = 0;
};

// Told of what leaves a tier on its own account (evicted, damaged). Called on the tier's executor,
// without the tier's locks held.
class TierListener {
 public:
  virtual ~TierListener() = default;
  virtual void removed(TierIndex tier, std::span<const Identity> ids, bool damaged) = 0;
  virtual void disabled(TierIndex tier, const Status& why) = 0;
  // Another process that uses the same store has ended the epochs of a namespace before this one. May block.
  virtual void epoch_raised(TierIndex /*tier*/, const NamespaceEpoch& /*row*/) {}
  // Something that its user should see to, while it goes on. Also while the tier is being opened.
  virtual void warns(TierIndex /*tier*/, const Status& /*why*/) {}
  // A tier that is about to let records go to make room offers them first: what stays in `ids`, in order, it reads, checks
  // and gives to take_over(), a part at a time, and forgets it after that.
  virtual void wanted(TierIndex /*tier*/, std::vector<Identity>& ids) { ids.clear(); }
  // Batches are as_stored. While this runs every record of the batch is still found in `tier`, unless it was erased there
  // or is damaged. `done` runs once, maybe before this returns, on any thread of the executor.
  virtual void take_over(TierIndex /*tier*/, std::unique_ptr<PutBatch> batch) {
    batch->status.assign(batch->items.size(), Code::unsupported);
    batch->done(*batch);
  }
};

// A record that lies in memory of this process that another process owns and may write at any moment. Whoever reads
// copies the head out, checks it, and compares each leaf as it is copied (copy/local/fetch.h).
struct InPlace {
  Identity id;
  uint64_t location = 0;  // from find(); 0 = look it up
  // in_place() says where; no memory: it is read by get() alone.
  ConstBytes head;
  ConstBytes payload;
  std::shared_ptr<const void> memory;  // stays mapped for as long as this is kept
  // The reader says what came of it: ok and what was copied, or that it was not there (any more).
  Code code = Code::ok;
  uint64_t bytes = 0;
};

// The epoch that a namespace has come to, as a tier writes it down.
struct EpochRow {
  NamespaceId base;        // of epoch 0
  uint64_t epoch = 0;
  uint64_t raised = 0;     // orders the rows of one process by when they were raised
  bool foreign = false;    // a peer's word: no process here ever had a handle of the namespace
  bool operator==(const EpochRow&) const = default;
};

// Epochs that have ended stay ended also where the row of their namespace had to go: each namespace belongs to one of so many
// floors, and one without a row is at the epoch that its floor has been raised to. A namespace that was never invalidated and
// shares a floor with one whose row went begins at that epoch, too: what it loses are hits.
inline constexpr size_t kEpochFloors = 4032;
[[nodiscard]] inline size_t epoch_floor_of(const NamespaceId& base) noexcept {
  uint64_t hash;  // ids are of a hash
  std::memcpy(&hash, base.bytes.data(), sizeof hash);
  return hash % kEpochFloors;
}

class Tier {
 public:
  virtual ~Tier() = default;  // waits for nothing: shutdown() first
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;  // "disk", "plugin", ...
  [[nodiscard]] virtual std::string describe() const = 0;            // one line for people

  // From memory, never blocks. Fills out[i]; absent ones have present = false. Counts as a use if `touch`.
  virtual void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept = 0;
  // Whether it offers its listener what it lets go (TierListener::wanted).
  [[nodiscard]] virtual bool offers_what_it_lets_go() const noexcept { return false; }
  // While pinned, a found record is not reclaimed; pins nest; the identity must have been found.
  // Returns false if it has gone meanwhile (or the tier cannot pin: then a get may miss).
  virtual bool pin(const Identity& id) noexcept = 0;
  virtual void unpin(const Identity& id) noexcept = 0;

  virtual void put(std::unique_ptr<PutBatch> batch) = 0;
  virtual void get(std::unique_ptr<GetBatch> batch) = 0;
  // Where found records can be read without asking for them. From memory, never blocks. What came of it is told by
  // read_in_place(), soon, also of several calls or of part of one; get() then finds out more of what was not there.
  // Thread: any.
  virtual void in_place(std::span<InPlace> /*items*/) noexcept {}
  virtual void read_in_place(std::span<const InPlace> /*items*/) noexcept {}
  // Whether get() can say where payloads lie in files (GetBatch::receiver_reads).
  [[nodiscard]] virtual bool reads_from_files() const noexcept { return false; }
  // Forgets records; absent ones are ignored. After it returns no get started later finds them.
  virtual void erase(std::span<const Identity> ids) = 0;
  // What is known of records (policy::Hint), said after they were put; absent ones are ignored. From memory, never blocks.
  // Thread: any.
  virtual void hint(std::span<const Identity> /*ids*/, uint8_t /*priority*/) {}
  // A receiver found that the payload read from `location` does not verify: damage, as if the tier had seen it.
  virtual void reject(const Identity& id, uint64_t location) = 0;
  // Forgets every record of a family. Persisted before it returns where the tier persists.
  virtual Status erase_family(FamilyId family) = 0;
  // The same of many; the first error, after all were tried.
  virtual Status erase_families(std::span<const FamilyId> families) {
    Status first;
    for (const FamilyId family : families) {
      Status erased = erase_family(family);
      if (!erased.ok() && first.ok()) first = std::move(erased);
    }
    return first;
  }

  // The families that have records here, into `named`. From memory. Thread: any.
  virtual void families(FamilyTable::Named& named) {
    std::array<ScanRow, 256> rows;
    uint64_t cursor = 0;
    do {
      const size_t n = scan(cursor, rows);
      for (size_t i = 0; i < n; ++i) named.add(rows[i].id.family);
    } while (cursor != 0);
  }
  // These ids mean nothing any more, and have no records: what is kept by them can go. Thread: any.
  virtual void forget_families(std::span<const FamilyId> /*gone*/) {}

  // Rows in a stable order starting after `cursor` (0 = start); sets cursor for the next page, 0 at the end.
  virtual size_t scan(uint64_t& cursor, std::span<ScanRow> out) = 0;
  [[nodiscard]] virtual TierStats stats() const = 0;

  // Persisted counters by namespace (the namespace epoch). A tier that does not persist returns
  // nothing and accepts everything.
  virtual Result<uint64_t> epoch(const NamespaceId& base_id) = 0;
  virtual Status set_epoch(const NamespaceId& base_id, uint64_t epoch) = 0;
  // Several at once, in one write where the tier can; `forgotten`: rows that are not needed any more; `floored`: rows that go
  // and raise their floor to their epoch. Not ok: some of them, or none, may be written; it can be tried again.
  virtual Status set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> /*forgotten*/,
                            std::span<const EpochRow> /*floored*/) {
    for (const EpochRow& row : rows) {
      if (Status status = set_epoch(row.base, row.epoch); !status.ok()) return status;
    }
    return {};
  }
  // All of them that are written down here. Never waits for a write of them.
  virtual std::vector<EpochRow> epochs() { return {}; }
  // The floors that are written down here, kEpochFloors of them; empty: none was ever raised.
  virtual std::vector<uint64_t> epoch_floors() { return {}; }

  // Makes durable what was stored before and is still here: `done` runs once, on the tier's executor or before this
  // returns, with ok if all of it survives a power cut. io_error: some could not be made so and has left the tier.
  virtual void sync(UniqueFunction<void(const Status&)> done) {
    done(Status(Code::unsupported, "this tier cannot promise what survives a power cut"));
  }
  // Stops taking work; `done` runs on the core's executor, and may end the tier, when nothing is in flight any more and
  // everything acknowledged is on the medium.
  virtual void shutdown(UniqueFunction<void()> done) = 0;
};

}  // namespace kvbm::tier
