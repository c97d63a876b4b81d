// The state of a store's tier and its paths: write_path.cc (records into packs, packs into the store, index objects),
// read_path.cc (ranges of packs, checked), follow.cc (objects of other processes), collect.cc (age and capacity),
// epochs.cc. ahead.cc reads ranges before a load asks for them.
//
// Lock: mutex_ is a leaf. No call of the store, of `done`, of the listener or of the log is made under it.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/thread/gate.h"
#include "base/thread/mutex.h"
#include "tier/store/found_names.h"
#include "tier/store/requests.h"
#include "tier/store/store_index.h"
#include "tier/store/store_tier.h"
#include "tier/store/unpublished_rows.h"

namespace kvbm::tier::store {

// Largest difference of hosts' clocks, plus the time of a put: index objects are looked for again this far back.
inline constexpr uint64_t kOverlapMs = 15'000;
// An index object that took longer to be written is written again under a new name.
inline constexpr uint64_t kLatePublishMs = 5'000;
// Largest gap between two records that are read by one request, and the largest request (except for a single larger
// record).
inline constexpr uint64_t kMaxGap = 128 << 10;
inline constexpr uint64_t kMaxRange = 8 << 20;
// Namespaces with an epoch in a store.
inline constexpr uint64_t kMaxEpochs = 65'536;
// Hosts that write at the same time may exceed kMaxEpochs a little. A store that lists more than twice as many does not
// hold what this library wrote: nothing is found in it.
inline constexpr uint64_t kMaxListedEpochs = 2 * kMaxEpochs;

// Memory of the name of an index object that was read: a node of std::set with the overhead of malloc.
inline constexpr uint64_t kKnownBytes = 80;
// Records that are erased or compared, or names that are followed, in one hold of the lock. Lookups that wait for it
// get it before the next hold.
inline constexpr size_t kRecordsAtOnce = 16'384;

class StoreCore : public std::enable_shared_from_this<StoreCore> {
 public:
  StoreCore(std::unique_ptr<ObjectStore> store, StoreTierOptions options, Executor& executor,
            const FamilyTable& families, Random& random, Log* log, TierIndex index, TierListener* listener);

  void start(uint64_t open_ns);
  void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept;
  void unwanted(const Identity& id) noexcept;
  void put(std::unique_ptr<PutBatch> batch);
  void get(std::unique_ptr<GetBatch> batch);
  void erase(std::span<const Identity> ids);
  void reject(const Identity& id, uint64_t location);
  void erase_family(FamilyId family);
  [[nodiscard]] TierStats stats() const;
  [[nodiscard]] std::string describe() const { return description_; }
  uint64_t epoch(const NamespaceId& base);
  [[nodiscard]] bool writes() const noexcept { return options_.write; }
  Status set_epochs(std::span<const EpochRow> rows);
  void sync(UniqueFunction<void(const Status&)> done);
  void shutdown(UniqueFunction<void()> done);
  // Called before the listener ends. Begins the shutdown of a core that was given up without one. Blocks for calls of
  // the listener.
  void leave_listener();

 private:
  // ---- Writing (write_path.cc) ----
  struct PutOp {
    std::unique_ptr<PutBatch> batch;
    std::vector<RecordName> names;
    std::vector<uint8_t> decided;
    size_t next = 0;  // of the items that are in no pack yet
    size_t open = 0;  // items that are not decided
    size_t copying = 0;
    bool over = false;  // the deadline has passed, or all are decided
  };
  using PutRef = std::shared_ptr<PutOp>;
  struct Sync {
    size_t left = 0;
    bool failed = false;
    UniqueFunction<void(const Status&)> done;
  };
  struct Pack {
    Buffer buffer;    // empty until something is copied into it
    size_t full = 0;  // sent when it has this many bytes of payloads
    size_t room = 0;  // limit of its size, heads included
    size_t payload = 0;
    size_t used = 0;
    size_t copying = 0;
    bool closed = false;
    PackRow row;
    std::vector<std::pair<PutRef, size_t>> owners;   // notified when it is in the store
    std::vector<std::pair<PutRef, size_t>> durable;  // notified when other processes can find it too
    std::vector<std::shared_ptr<Sync>> syncs;
  };
  using PackRef = std::shared_ptr<Pack>;
  // Actions to be done after the lock is released.
  struct After {
    std::vector<PutRef> puts;
    std::vector<PackRef> packs;  // to be sent
    std::vector<std::shared_ptr<Sync>> syncs;
  };
  void pump_puts();
  std::byte* memory_of(Pack& pack);
  bool place_next(PutRef& op, size_t& item, PackRef& pack, size_t& at, After& after) KVBM_REQUIRES(mutex_);
  PackRef room_for(uint64_t bytes, After& after) KVBM_REQUIRES(mutex_);
  void close_pack(After& after) KVBM_REQUIRES(mutex_);
  void decide(const PutRef& op, size_t item, Code code, After& after) KVBM_REQUIRES(mutex_);
  void expire_put(const PutRef& op);
  void send_pack(const PackRef& pack);
  void pack_sent(const PackRef& pack, Code code);
  void publish_soon();
  void publish();
  void lose_rows();
  void published(uint64_t ms, Code code);
  void settle_syncs(const PackRef& pack, bool failed, After& after) KVBM_REQUIRES(mutex_);
  void run(After& after);
  Stamp next_stamp() KVBM_REQUIRES(mutex_);

  // ---- Reading (read_path.cc) ----
  struct GetOp {
    std::unique_ptr<GetBatch> batch;
    std::vector<Family> families;
    enum State : uint8_t { waiting, copying, decided };
    std::vector<State> state;
    size_t open = 0;
    bool borrows = false;  // the receiver copies and checks
  };
  using GetRef = std::shared_ptr<GetOp>;
  struct Want {
    GetRef op;
    size_t item = 0;
    StorePlace place;
    Stamp stamp;
    std::shared_ptr<ObjectRequest> from = nullptr;  // the range that has its bytes; null: it is not read yet
    uint64_t begin = 0;                             // offset of the range in the pack
  };
  // A range of a pack that is being read, and the items that wait for it.
  struct Flight {
    Stamp stamp;
    uint64_t begin = 0, end = 0;
    uint64_t deadline_ns = 0;
    std::vector<Want> wants;
    // True for a read made ahead of any load.
    bool ahead = false;
    std::vector<StorePlace> unasked;      // records in it that no load has asked for
    uint64_t asked_bytes = 0;             // bytes of records that a load has asked for
    std::shared_ptr<ObjectRequest> from;  // the answer; null: it is in flight
  };
  using FlightRef = std::shared_ptr<Flight>;
  // In these functions `ready` gets the items of which the bytes were read ahead.
  void plan_flights(std::vector<Want>& wants, uint64_t deadline_ns, std::vector<Want>& ready) KVBM_REQUIRES(mutex_);
  bool join(const Want& want, uint64_t deadline_ns, std::vector<Want>& ready) KVBM_REQUIRES(mutex_);
  void pump_gets();
  void landed(const FlightRef& flight, Code code, std::unique_ptr<ObjectRequest> request);
  void failed(const FlightRef& flight, Code code, std::vector<Want>& wants, std::vector<GetRef>& over,
              std::vector<Want>& ready) KVBM_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<ObjectRequest> hold(std::unique_ptr<ObjectRequest> request, uint64_t bytes);
  void hand_out(std::vector<Want> ready);
  void forget_flight(const FlightRef& flight) KVBM_REQUIRES(mutex_);
  void take(std::span<const Want> ready);
  static Code copy_out(const Want& want);
  // Returns true if that was the batch's last item.
  bool decide(GetOp& op, size_t item, Code code) KVBM_REQUIRES(mutex_);
  void expire_get(const GetRef& op);

  // ---- Reading ahead (ahead.cc) ----
  void pump_ahead();
  [[nodiscard]] bool may_read_ahead() const KVBM_REQUIRES(mutex_);
  FlightRef next_ahead() KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool is_read(const Stamp& stamp, const StorePlace& place) const KVBM_REQUIRES(mutex_);
  void asked(const FlightRef& flight, const Want& want, std::vector<Want>& ready) KVBM_REQUIRES(mutex_);
  bool keep_ahead(const FlightRef& flight, const std::shared_ptr<ObjectRequest>& from) KVBM_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<ObjectRequest> drop_ahead(const FlightRef& flight) KVBM_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<ObjectRequest> drop_oldest_ahead() KVBM_REQUIRES(mutex_);
  void end_ahead();

  // ---- Following other processes (follow.cc) ----
  struct Listing {
    std::string prefix, after;
    uint64_t names = 0;
    std::function<void(std::string_view)> take;
    std::function<void(Code)> done;
  };
  void list(std::shared_ptr<Listing> listing);
  static Code take_page(Listing& listing, const ObjectRequest& page);
  // `first`: the first page of their listing, if it is there already.
  void read_epochs(const ObjectRequest* first = nullptr);
  void epochs_listed(std::vector<NamespaceEpoch> rows);
  void drop_implausible(std::vector<NamespaceEpoch>& rows);
  void poll();
  void poll_indexes();
  void poll_later();
  void follow(const std::vector<Stamp>& found, uint64_t whole_ns);
  // An index object that is to be read, or is being read.
  enum class ToRead : uint8_t {
    start,  // the first kListBytes
    whole,  // has more than kListBytes: that much was read in vain
    requested
  };
  struct Arrived {
    std::unique_ptr<IndexObject> index;  // null: it could not be read
    uint64_t bytes = 0;
  };
  void forget_others(std::set<Stamp> StoreCore::*names, const std::vector<Stamp>& listed);
  void read_indexes();
  std::pair<const Stamp, ToRead>* next_to_read() KVBM_REQUIRES(mutex_);
  bool note_large(const Stamp& stamp);
  void note_opaque(const Stamp& stamp) KVBM_REQUIRES(mutex_);
  void index_read(const Stamp& stamp, bool large, Code code, std::unique_ptr<ObjectRequest> request);
  void apply_in_order();
  void apply(const Stamp& stamp, const IndexObject& index);
  void erase_families(FamilyErasure& erasure);
  // `listed`: the rows are those of a listing of all epochs.
  bool learn_epochs(std::vector<NamespaceEpoch> rows, bool listed);

  // ---- Removing old packs (collect.cc) ----
  void collect_later();
  void sign();
  void elect(std::vector<Stamp> signs);
  using Packs = std::vector<std::pair<Stamp, uint64_t>>;  // with their bytes
  void collect();
  void find_old(Packs& packs, std::vector<Stamp>& indexes) KVBM_REQUIRES(mutex_);
  void collected();
  [[nodiscard]] bool exceeds_capacity(uint64_t bytes) const noexcept {
    return options_.capacity_bytes != 0 && bytes > options_.capacity_bytes;
  }
  void collect_unnamed();
  void remove(std::string name, bool listed, std::function<void(Code)> done);

  [[nodiscard]] uint64_t unix_ms() const { return options_.unix_ms(); }
  [[nodiscard]] uint64_t now() const { return executor_.clock().now_ns(); }
  [[nodiscard]] std::unique_ptr<ObjectRequest> request(Verb verb, std::string name) const;
  void say(LogLevel level, const std::string& text);
  // Memory for packs and ranges. Buffers are reused, the last one first: a fresh one costs a fault for each page, and
  // the last one may still be in a CPU cache. The sizes are few, so that a returned buffer fits; they are what staged_
  // counts.
  [[nodiscard]] static size_t buffer_bytes(size_t bytes) noexcept;
  [[nodiscard]] Buffer take_buffer(size_t bytes);
  void give_buffer(Buffer buffer);
  // Ends a batch, on the executor.
  template <class Op>
  void give_back(const std::shared_ptr<Op>& op) {
    executor_.post([self = shared_from_this(), op] {
      op->batch->done(*op->batch);
      op->batch.reset();
      {
        MutexLock lock(self->mutex_);
        --self->batches_;
      }
      self->end_shutdown();
    });
  }
  void end_shutdown();
  // Called between two pages of work, without the lock: a thread that takes it again at once would take it from lookups
  // and loads that wait for it.
  void let_finds_in() const noexcept {
    const uint64_t begun = finds_begun_.load(std::memory_order_relaxed);
    while (finds_ended_.load(std::memory_order_relaxed) < begun) std::this_thread::yield();
  }

  // Calls work(i) for every i below n, for kRecordsAtOnce in one hold of the lock.
  template <class Work>
  void in_pages(size_t n, const Work& work) {
    for (size_t at = 0; at < n;) {
      let_finds_in();
      MutexLock lock(mutex_);
      for (const size_t end = std::min(at + kRecordsAtOnce, n); at < end; ++at) work(at);
    }
  }

  std::unique_ptr<ObjectStore> store_;  // null once it was left
  const std::string description_;
  StoreTierOptions options_;
  Executor& executor_;
  const FamilyTable& families_;
  Random& random_;
  Log* const log_;
  const TierIndex index_number_;
  TierListener* const listener_;
  Gate listening_;  // calls of listener_ by tasks of this object's own
  const uint64_t writer_;
  const std::shared_ptr<Requests> requests_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> epochs_known_{false};  // nothing is found before it is true

  // Times that a lookup or a load was about to take the lock, and had it: let_finds_in().
  std::atomic<uint64_t> finds_begun_{0}, finds_ended_{0};
  mutable Mutex mutex_;
  StoreIndex index_ KVBM_GUARDED_BY(mutex_);
  TierStats counts_ KVBM_GUARDED_BY(mutex_);
  uint32_t seq_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t staged_ KVBM_GUARDED_BY(mutex_) = 0;
  size_t batches_ KVBM_GUARDED_BY(mutex_) = 0;         // that have not ended
  std::vector<Buffer> spare_ KVBM_GUARDED_BY(mutex_);  // within what staged_ leaves of staging_bytes
  uint64_t spare_bytes_ KVBM_GUARDED_BY(mutex_) = 0;
  // Fields for writing (write_path.cc).
  std::deque<PutRef> puts_ KVBM_GUARDED_BY(mutex_);
  PackRef open_ KVBM_GUARDED_BY(mutex_);
  std::map<RecordName, PackRef> on_their_way_ KVBM_GUARDED_BY(mutex_);  // in a pack that is not in the store yet
  std::set<RecordName> erased_on_their_way_ KVBM_GUARDED_BY(mutex_);
  size_t sending_ KVBM_GUARDED_BY(mutex_) = 0;          // packs that are closed and not in the store yet
  uint64_t sending_bytes_ KVBM_GUARDED_BY(mutex_) = 0;  // memory of these packs
  std::vector<PackRef> unpublished_ KVBM_GUARDED_BY(mutex_);
  UnpublishedRows unpublished_rows_ KVBM_GUARDED_BY(mutex_);
  std::vector<PackRef> telling_ KVBM_GUARDED_BY(mutex_);  // packs in the index object that is being written
  UnpublishedRows telling_rows_ KVBM_GUARDED_BY(mutex_);
  bool rows_lost_ KVBM_GUARDED_BY(mutex_) = false;  // some were left out since the last index object
  bool publishing_ KVBM_GUARDED_BY(mutex_) = false;
  bool publish_planned_ KVBM_GUARDED_BY(mutex_) = false;
  bool publish_failed_ KVBM_GUARDED_BY(mutex_) = false;  // the last one failed: the next is not made at once
  // Fields for reading (read_path.cc).
  std::deque<FlightRef> waiting_ KVBM_GUARDED_BY(mutex_);
  // All reads by their pack: those that wait, those in flight, and results read ahead.
  std::map<Stamp, std::vector<FlightRef>> flights_ KVBM_GUARDED_BY(mutex_);
  size_t loading_ KVBM_GUARDED_BY(mutex_) = 0;  // reads in flight that were asked for
  // Fields for reading ahead (ahead.cc).
  std::unique_ptr<FoundNames> found_ KVBM_GUARDED_BY(mutex_);  // null: nothing is read ahead
  std::deque<FlightRef> ahead_ KVBM_GUARDED_BY(mutex_);        // that were read, the oldest first
  uint64_t ahead_bytes_ KVBM_GUARDED_BY(mutex_) = 0;           // memory of those in flight and of ahead_
  std::atomic<bool> takes_ahead_{false};                       // found_ has names that may be taken
  // Fields for following other processes (follow.cc).
  std::map<NamespaceId, uint64_t> epochs_ KVBM_GUARDED_BY(mutex_);  // at most 2 * kMaxListedEpochs
  uint64_t epochs_read_ns_ KVBM_GUARDED_BY(mutex_) = 0;             // time of the last listing of all epochs
  bool too_many_epochs_ KVBM_GUARDED_BY(mutex_) = false;            // in that listing
  bool said_implausible_ KVBM_GUARDED_BY(mutex_) = false;           // an epoch beyond kMaxSharedEpoch was reported
  std::set<Stamp> known_indexes_ KVBM_GUARDED_BY(mutex_);           // index objects that were read, or are being read
  std::map<Stamp, ToRead> to_read_ KVBM_GUARDED_BY(mutex_);
  std::map<Stamp, Arrived> arrived_ KVBM_GUARDED_BY(mutex_);
  uint64_t arrived_bytes_ KVBM_GUARDED_BY(mutex_) = 0;  // of the objects in arrived_
  bool reading_large_ KVBM_GUARDED_BY(mutex_) = false;
  size_t reading_ KVBM_GUARDED_BY(mutex_) = 0;
  // Index objects that could not be understood, for instance of a newer version, or that name packs for which the index
  // had no place: some of what they name is not known here. None is in known_indexes_ too.
  std::set<Stamp> opaque_indexes_ KVBM_GUARDED_BY(mutex_);
  bool missed_index_ KVBM_GUARDED_BY(mutex_) = false;  // one was not understood
  bool applying_ KVBM_GUARDED_BY(mutex_) = false;
  uint64_t last_whole_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // time of the last full listing; 0: never
  uint64_t failed_reads_ KVBM_GUARDED_BY(mutex_) = 0;   // of index objects
  // Fields for removing old packs (collect.cc).
  bool elected_ KVBM_GUARDED_BY(mutex_) = false;
  bool collecting_ KVBM_GUARDED_BY(mutex_) = false;
  uint64_t last_sign_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t unnamed_at_ KVBM_GUARDED_BY(mutex_) = 0;  // earliest time to look for unnamed packs

  UniqueFunction<void()> shut_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::tier::store
