// Loading: copies matched blocks into the engine's blocks and verifies every byte on the way.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/record/record.h"
#include "manager/device/layer_waits.h"
#include "manager/operation/cache.h"
#include "manager/operation/leaf_mover.h"
#include "manager/operation/match.h"
#include "manager/operation/operation.h"
#include "manager/stack/delivery.h"
#include "manager/stack/onboard.h"

namespace kvbm::device {
class StreamPoint;
}

namespace kvbm::manager {

struct LoadRequest {
  std::shared_ptr<Cache> cache;
  std::shared_ptr<Match> match;
  std::vector<uint32_t> block_ids;  // [parts][n_ids]
  size_t n_ids = 0;
  size_t first_key = 0;
  bool any_position = false;
  uint32_t first_layer = 0;
  uint32_t n_layers = 0;  // 0 = all
  bool keep_below = false;
  std::vector<codec::Position> positions;  // empty, or one per key from first_key on
  uint64_t deadline_ns = kNever;
  uint64_t compute_block_ns = 0;  // time the engine needs to compute one of its blocks; 0 = unknown
  // For a cache on a device: the load begins after this point of a stream. Null: at once.
  std::shared_ptr<device::StreamPoint> after;
  std::shared_ptr<LayerMarks> layers;  // null: no stream waits for layers
  std::span<int32_t> item_status;      // one per key from first_key on
};

class LoadOperation final : public Operation {
 public:
  explicit LoadOperation(LoadRequest request);

 protected:
  Next step() override;
  [[nodiscard]] bool quiet() noexcept override;
  Next move_some();
  Next what_next();
  void conclude(Code why, copy::Completion& completion) override;
  [[nodiscard]] bool expects() override;

 private:
  struct StorageTrip;
  class Origin;
  // Kinds of places of records (load_origin.cc).
  struct Origins;
  class InPlaceOrigin;
  class DeviceOrigin;
  // One part of one key that must be moved.
  struct Item {
    size_t part = 0;
    size_t key = 0;                  // in the match
    const Origin* origin = nullptr;  // of the record that has arrived; set anew each time that one does
    bool from_file = false;          // the device reads it from a file
    Delivery got = {};               // until the record has arrived, only the tier that it comes from
  };
  // An item from the time it is next until it is settled.
  struct Entry {
    Entry() = default;
    Entry(const Entry&) = delete;  // its record points to its head
    Entry& operator=(const Entry&) = delete;
    Item item;
    std::optional<codec::HeadView> head;  // none: a managed block without a head
    LeafRecord record;                    // for the mover, once it is opened
    bool all_checked = false;             // leaves that are not wanted must be right, too
    size_t number = 0;                    // for the mover
    uint64_t moved = 0;                   // bytes that were copied at once
    uint32_t checked = 0;                 // leaves of the head that are checked, if it is cut otherwise
    uint32_t next_leaf = 0;
    uint32_t away = 0;  // leaves in flight
    Code code = Code::ok;
    bool cut_otherwise = false;  // the head's leaves have other boundaries than the part's
    bool opened = false;
    bool sent = false;    // all its leaves are sent
    bool closed = false;  // settled too; only if a stream waits for layers may leaves still be overwritten
    // Begins with another item, which is in place.
    void begin() noexcept {
      head.reset();
      record = {};
      all_checked = false;
      moved = 0;
      checked = next_leaf = away = 0;
      code = Code::ok;
      cut_otherwise = opened = sent = closed = false;
    }
  };
  // The entries that are not settled, in the order in which the walk passes over them.
  class Entries {
   public:
    // Returns the next entry to pass over; null: none has arrived. `past`: the one before is done with in this pass.
    virtual Entry* next(LoadOperation& load, bool past) = 0;
    // Ends those that are not closed, when nothing is in flight. As Origin::leave().
    virtual void end(LoadOperation& load, std::vector<SlotId>& left) = 0;

   protected:
    ~Entries() = default;
  };
  // One at a time, for a mover that works at once.
  class OneByOne final : public Entries {
   public:
    OneByOne() { entry_.closed = true; }
    Entry* next(LoadOperation& load, bool past) override;
    void end(LoadOperation& load, std::vector<SlotId>& left) override;

   private:
    Entry entry_;  // the one that the mover works on, unless closed
  };
  // Where records of a load lie. That decides how a record is opened, and what happens to it at the end of its use. An
  // item gets its origin once, when it is known. There is one object for each kind of place.
  class Origin {
   public:
    // Finds head and payload of the entry's record, and checks that the record is what the cache part expects.
    virtual Code open(LoadOperation& load, Entry& e) const = 0;
    // Ends the use of the entry's record. A damaged one is rejected at its source. False: the item is asked for again.
    virtual bool close(LoadOperation& load, Entry& e) const = 0;
    // Ends it for a record that is not used. Adds its slot, if the load owns that, to those that the caller releases.
    virtual void leave(LoadOperation& load, const Item& item, std::vector<SlotId>& slots) const;

   protected:
    ~Origin() = default;
  };
  // An item that could not be read.
  struct Failed {
    size_t part;
    size_t key;
    Code code;
  };
  // Sizes of a batch from the tiers below, and of all batches in flight of one operation. Towards the end both
  // shrink: the last bytes are copied while no read overlaps, and some disks report their reads only once nothing is
  // left to read. They do not shrink for a store, where a request costs more than that copy.
  static constexpr uint64_t kLandingBytes = 4ULL << 20;
  static constexpr uint64_t kLeastLandingBytes = 1ULL << 20;
  static constexpr size_t kLandingItems = 256;
  static constexpr uint64_t kWindowBytes = 32ULL << 20;
  static constexpr uint64_t kLeastWindowBytes = 4ULL << 20;
  // On a small host the window is at most an eighth of the memory, or this if larger.
  static constexpr uint64_t kSmallWindowBytes = 16ULL << 20;
  // Number of heads read together, of at most one step's blocks, because a slot may be reused meanwhile. And the size
  // of each buffer: 14 leaves. Measured with `kvbm bench node`.
  static constexpr size_t kHeads = 16;
  static constexpr size_t kHeadRoom = 512;

  void begin();
  void plan();
  void request_more();
  [[nodiscard]] LandingRoom find_places(std::vector<Item>& items, std::vector<tier::GetItem>& wanted);
  void landed(std::vector<Item> items, uint64_t bytes, std::vector<Delivery> results);
  void receive(std::vector<Item> items, uint64_t bytes, uint64_t places);
  bool next_item(Item& item);
  bool next_in_place(Item& item);
  void find_in_place();
  void tell_in_place();
  void take_heads();
  void ask_for_heads(size_t first, size_t n) const;
  [[nodiscard]] size_t head_bytes(size_t index) const noexcept;
  Code take_head(const tier::InPlace& place, MutableBytes room, std::optional<codec::HeadView>& out) const;
  [[nodiscard]] Identity identity(const Item& item) const noexcept;
  void settle(size_t key, Code code);
  void settle_failed() KVBM_REQUIRES(mutex_);
  // load_walk.cc
  bool walk_all();
  bool walk(Entry& e, uint64_t& spent);
  [[nodiscard]] uint32_t wanted_block(std::span<const uint32_t> ids, uint32_t unit, uint32_t layer) const noexcept;
  bool overwrite(Entry& e);
  void open(Entry& e);
  [[nodiscard]] bool is_cut_alike(const codec::HeadView& head, const Item& item) const noexcept;
  [[nodiscard]] static bool check_whole(const codec::HeadView& head, const std::byte* payload, uint32_t& next,
                                        uint64_t& hashed, Code& code);
  Code check_head(const codec::HeadView& head, const Item& item) const;
  Code check_position(bool content, const std::optional<codec::Position>& has, size_t key) const;
  void fail(Entry& e, Code code);
  void close_if_back(Entry& e);
  void close(Entry& e);
  // load_origin.cc
  [[nodiscard]] static const Origin& origin_of_match() noexcept;
  [[nodiscard]] const Origin& origin_of(const Delivery& got) const noexcept;
  Code accept_head(Entry& e, const Result<codec::HeadView>& head, bool hashable) const;
  void reject(const Item& item);
  // load_device.cc; for a cache on a device
  struct Flight;
  void begin_flight();
  void take_back();
  [[nodiscard]] bool all_are_here();
  // Members for reads from a disk straight into a device's memory, past host memory (load_storage.cc).
  void find_files();
  bool request_from_storage(std::vector<Item>& items);
  void read_payloads(const std::shared_ptr<StorageTrip>& trip, tier::GetBatch& batch);
  void landed_on_device(StorageTrip& trip);
  // How much of a load is asked for at once, and how long it waits for that. Chosen once, when the load is made. This
  // one waits for everything.
  class Pace {
   public:
    ~Pace() = default;  // not virtual, so that the one of all loads is never destroyed; no other is deleted as a Pace
    // Begins when it is planned where all records are read from.
    virtual void begin(LoadOperation& /*load*/) {}
    // Returns the largest size of the next batch, which begins with `first`; `left` bytes are still to be read.
    virtual uint64_t batch_bytes(const LoadOperation& load, const Item& first, uint64_t left);
    virtual size_t batch_items(const LoadOperation& /*load*/) { return kLandingItems; }
    // Returns true if a batch may be asked for beside those in flight.
    virtual bool may_ask(const LoadOperation& load) KVBM_REQUIRES(load.mutex_);
    // Returns the time on the clock after which the load waits for no batch.
    virtual uint64_t give_up_ns() { return kNever; }
    // Returns true if nothing still missing is worth waiting for. `idle`: everything that was read has been copied.
    virtual bool out_of_time(LoadOperation& /*load*/, bool /*idle*/) { return false; }
    // Wakes the load when it is too late to wait longer.
    virtual void wait_at_most(LoadOperation& /*load*/) {}
    // Returns true if keys that are pending at the end are left to the engine.
    virtual bool leaves_rest() { return false; }
    // Counts the outcome of a load that ran to its end.
    virtual void account(LoadOperation& /*load*/) {}
  };
  class Weighing;
  static Pace& steady() noexcept;
  void begin_weighing();
  std::vector<Item> take_batch(tier::GetBatch& batch, uint64_t left);
  [[nodiscard]] bool in_store(TierIndex tier) const noexcept;
  [[nodiscard]] uint64_t bytes_of(const Item& item) const noexcept;
  [[nodiscard]] uint64_t bytes_left() const noexcept KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool may_ask() const KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool beyond_match(size_t key, std::span<const uint32_t> ids) const noexcept;
  [[nodiscard]] std::span<const uint32_t> ids_of(size_t part, size_t key) const noexcept;

  LoadRequest request_;
  TierStack& stack_;
  HostTier& host_;
  // Abilities of this load, decided when it is made.
  tier::Accepts accepts_;        // of records that are read through host memory
  bool reads_in_place_ = false;  // where another process has them
  bool reads_files_ = false;     // its device reads payloads from files
  size_t n_keys_ = 0;
  std::vector<Code> status_;       // per key from first_key on
  std::vector<uint16_t> pending_;  // parts of the key that are not settled
  bool planned_ = false;
  std::deque<Item> below_;  // not asked for yet
  // placed_: items that have a place to be read into, in flight or read. too_many_: with so many the load asks for no
  // more, because no free place was found (landing_room.h). A load without any place is always given one.
  std::atomic<uint64_t> placed_{0};
  uint64_t too_many_ = UINT64_MAX;
  // Items read in place. next_in_place_ is the next one; items before told_in_place_ are reported to their tier, those
  // before ended_in_place_ can be.
  std::vector<Item> in_place_;
  std::vector<tier::InPlace> places_;  // parallel to in_place_
  size_t next_in_place_ = 0;
  size_t ended_in_place_ = 0;
  size_t told_in_place_ = 0;
  // Heads of the next items that are read in place. They are copied and checked before the first item is copied: a
  // head read after a copy would wait until the copy's streaming stores have drained. Indexed as in_place_ modulo
  // their number, up to next_head_.
  struct Head {
    std::array<std::byte, kHeadRoom> room;
    std::optional<codec::HeadView> view;
    Code code;
  };
  std::vector<Head> heads_;
  size_t next_head_ = 0;
  std::vector<std::byte> large_head_room_;  // for a head that does not fit there, when its item is current
  std::shared_ptr<Flight> flight_;          // null: the tensors are host memory
  HostScatter host_mover_;
  OneByOne one_by_one_;
  LeafMover* mover_ = &host_mover_;   // or that of flight_
  Entries* entries_ = &one_by_one_;   // or flight_
  const uint32_t end_layer_;          // the layer behind the last one wanted
  uint32_t last_layer_ = UINT32_MAX;  // of this pass over the entries
  uint64_t loads_ = 0;
  uint64_t bytes_ = 0;
  uint64_t timed_bytes_ = 0;            // of bytes_, as far as their time is in copy_ns_
  uint64_t began_ns_ = 0;               // when the mover had nothing away last, and a step began
  uint64_t copy_ns_ = 0;                // from submission until work began, plus the time of the steps
  uint32_t asked_ = 0;                  // batches requested
  std::shared_ptr<Weighing> weighing_;  // null: this load is not weighed
  Pace* pace_ = &steady();              // or weighing_

  std::vector<Failed> never_came_;  // streams that wait for layers must not take their pages for loaded
  // True if ready_ or failed_ is not empty. Read without the lock, which is then taken to look.
  std::atomic<bool> arrived_{false};
  Mutex mutex_;
  std::deque<Item> ready_ KVBM_GUARDED_BY(mutex_);
  std::vector<Failed> failed_ KVBM_GUARDED_BY(mutex_);
  std::vector<Item> to_host_ KVBM_GUARDED_BY(mutex_);  // reads that were to bypass host memory and failed
  uint32_t landing_ KVBM_GUARDED_BY(mutex_) = 0;       // batches in flight
  uint64_t landing_bytes_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t landing_blocks_ KVBM_GUARDED_BY(mutex_) = 0;  // blocks in these batches
  uint64_t landed_ KVBM_GUARDED_BY(mutex_) = 0;          // batches that have been read
  bool over_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::manager
