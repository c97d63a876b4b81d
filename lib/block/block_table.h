// The life cycle of the blocks of one memory tier: which slot holds which block, its references, and the choice of
// victims. It owns no bytes and does no I/O: a slot is an index, the manager keeps the bytes of slot i.
//
//   reset -> partial -> complete -> registered -> (evicting) -> reset
//
// Invariants: a block is findable only while registered and not withdrawn. A parent is evicted before its resident
// children only if a tier below has it. A reference keeps the bytes unchanged.
//
// Locks: that of a pool (slot_pool.h: free list, policies, counts), once per batch; a partition lock of the index, once
// per partition and batch. Order: partition, then pool (a lookup under a partition lock may have to release a slot that
// changed meanwhile). Never two pools. Lookups, retain and release take neither lock. They take the pool's lock once
// per batch only if a policy must be notified (`hears_uses`, or a slot that it gave up became evictable).
//
// Budget: no allocation per block after construction (vectors that the caller passes may grow).
// Determinism: equal calls in equal order give equal slots and evictions. With several pools this holds only if the
// calls come from the same threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "block/deferred_work.h"
#include "block/prefix_index.h"
#include "block/quotas.h"
#include "block/slot.h"
#include "block/slot_marks.h"
#include "block/slot_pool.h"
#include "policy/eviction.h"

namespace kvbm::block {

// Tick of a lookup that does not count as a use of the blocks it finds.
inline constexpr uint32_t kNoUse = UINT32_MAX;

// Handling of a key that is published while it is registered already.
// reject: the caller's slot is freed and the caller gets a reference to the existing block.
// keep: the caller keeps its slot as a private duplicate: registered, never found by a lookup, freed when its last
// reference ends. Lookups still find the existing block.
enum class DuplicateMode : uint8_t { reject, keep };

// Decides about a block that is registered already under the key of the i-th published one. True: it is withdrawn, as
// by erase(), and the new block gets the key. Both blocks are held. Runs under a lock of the index: it must take no
// lock, and may only read facts of the table.
class Precedence {
 public:
  virtual bool gives_way(SlotId there, size_t i) noexcept = 0;

 protected:
  ~Precedence() = default;
};

enum class Lineage : uint8_t {
  none,   // no parents: blocks may be evicted in any order
  chain,  // keys[i]'s parent is keys[i-1]; first_parent is the parent of keys[0]
  given,  // parents[i]
};

struct Publication {
  FamilyId family = 0;
  std::span<const Key> keys{};
  Lineage lineage = Lineage::none;
  SlotId first_parent = kNoSlot;      // the caller holds a reference to it for the call
  std::span<const SlotId> parents{};  // `given`: a held, registered slot for each key; kNoSlot: a root
  DuplicateMode duplicates = DuplicateMode::reject;
  Precedence* precedence = nullptr;  // null: the existing block stays
  uint8_t priority = 0;              // policy::Facts::priority
  uint32_t tick = 0;
};

// A block that lost its slot to an allocation.
struct Evicted {
  Identity identity;
  SlotId slot = kNoSlot;
  AccountId account = kSharedAccount;
  uint8_t flags = 0;        // set by the manager
  uint32_t generation = 0;  // of the slot while it had the block
};

// One slot as seen by a scan; the members may stem from slightly different moments.
struct SlotInfo {
  SlotId slot = kNoSlot;
  Identity identity;  // meaningful when registered
  SlotState state = SlotState::reset;
  bool withdrawn = false;
  uint8_t flags = 0;
  AccountId account = kSharedAccount;
  uint32_t references = 0;
  uint32_t children = 0;
  uint32_t pins = 0;
  uint32_t uses = 0;
  uint32_t last_use = 0;
  uint32_t payload_bytes = 0;
  uint32_t generation = 0;
};

struct AccountUse {
  uint32_t used = 0;  // slots that are not reset
  uint32_t limit = kNoLimit;
  OverQuota mode = OverQuota::reject;
};

class BlockTable final {
 public:
  using MakePolicy = policy::MakePolicy;
  struct Options {
    uint32_t slots = 0;
    std::string policy{policy::kDefaultPolicy};
    MakePolicy make;  // policy::make_eviction_policy
    // One word per slot in memory that outlives the table (slot_marks.h); empty: none. It must outlive the table. Words
    // keep their value until the slot is given a block, or is found to have none.
    std::span<uint64_t> marks{};
    // Number of pools that the slots are divided into, kMaxPools at most; 0: one for each 65,536. One pool if the
    // policy cannot be divided.
    uint32_t pools = 0;
  };
  static constexpr uint32_t kMaxPools = 16;

  // Errors: bad_config (no slots, no factory, or an unknown policy name).
  [[nodiscard]] static Result<std::unique_ptr<BlockTable>> create(const Options& options);
  ~BlockTable();

  [[nodiscard]] uint32_t slots() const noexcept { return slot_count_; }

  // ---- Lookups. Thread: any; no lock (see above). A hit adds one reference to its slot. ----
  // The longest present prefix: returns its length, out[0..length) are its slots. out.size() >= keys.size().
  size_t acquire_prefix(FamilyId family, std::span<const Key> keys, std::span<SlotId> out, uint32_t tick) noexcept;
  // Every key on its own: out[i] is a slot or kNoSlot; returns the number of hits.
  size_t acquire_each(FamilyId family, std::span<const Key> keys, std::span<SlotId> out, uint32_t tick) noexcept;
  // Sets present[i] to 1 or 0, without a reference and without counting a use. The answer may be outdated at once.
  void probe(FamilyId family, std::span<const Key> keys, std::span<uint8_t> present) const noexcept;
  // Takes a reference to the block that a slot held at that generation; false when it is gone or withdrawn.
  [[nodiscard]] bool acquire_weak(SlotId slot, uint32_t generation) noexcept;
  [[nodiscard]] uint32_t generation(SlotId slot) const noexcept;

  // Adds a reference to each. The caller holds one already, and may do this only a few times for one block.
  void retain(std::span<const SlotId> slots) noexcept;
  // Like retain(), for callers without such a limit. False: a slot has the largest count of references; nothing
  // changed.
  [[nodiscard]] bool try_retain(std::span<const SlotId> slots) noexcept;
  // Ends one reference to each. A partial or complete slot is freed, a registered one stays resident, a withdrawn one
  // is freed when nothing keeps it. `tick` is passed to the policy. A slot without a reference is not changed, and
  // counted in underflows().
  void release(std::span<const SlotId> slots, uint32_t tick = 0) noexcept;
  // Pins keep a block without a reference (SlotWord::kMaxPins a slot); the caller holds a reference. at_limit beyond.
  [[nodiscard]] Code pin(SlotId slot) noexcept;
  void unpin(std::span<const SlotId> slots, uint32_t tick = 0) noexcept;

  // ---- Writing ----
  // All or nothing: reset -> partial with one reference each. Evicts if the free list is short; evicted blocks are
  // appended to *evicted (may be null), also if the call fails in the end. no_room: too little is evictable.
  // over_quota: the account's limit. invalid_argument: no such account. Without `evicting` it uses free slots only,
  // within the present limit.
  [[nodiscard]] Code allocate(AccountId account, std::span<SlotId> out, std::vector<Evicted>* evicted,
                              uint32_t tick = 0, bool evicting = true);
  // partial -> complete, all or nothing; wrong_state otherwise.
  [[nodiscard]] Code complete(std::span<const SlotId> slots) noexcept;
  // complete -> registered; the caller's reference stays. Per item (codes may be empty): ok; exists:
  // a duplicate, see DuplicateMode; wrong_state: the slot was not complete; no_room: the index has no
  // place (practically never); invalid_argument. Returns ok when all are ok or exists, else partial.
  // An item that failed is no parent: the next of a chain has none.
  [[nodiscard]] Code publish(std::span<SlotId> inout, const Publication& what, std::span<Code> codes);
  // Marks the block of this registered slot with `value` (> 1): the next process may find it, until it is evicted or
  // forgotten. No effect on a withdrawn block. The caller holds a reference.
  void keep(SlotId slot, uint64_t value) noexcept {
    if (word(slot).findable()) marks_.kept(slot, value);
  }
  // Drops the caller's reference to partial or complete slots: they are freed.
  void abandon(std::span<const SlotId> slots) noexcept { release(slots); }

  // Makes blocks unfindable at once; a slot is freed when its last reference, pin and resident child end. Returns the
  // number that were present.
  size_t erase(FamilyId family, std::span<const Key> keys);
  size_t erase_family(FamilyId family);
  size_t erase_all();

  // Passes the caller's hints about resident blocks to the policies (policy/hints.h). The caller holds references.
  void set_priority(std::span<const SlotId> slots, uint8_t priority, uint32_t tick = 0);
  // Reads the hints: out[i] is that of held slots[i].
  void priorities(std::span<const SlotId> slots, std::span<uint8_t> out) const;

  // ---- Demotion ahead of need ----
  // Returns the blocks that would be evicted next, coldest first, with a reference each; still findable. `account`:
  // kSharedAccount for blocks of all accounts; else only those of this one, if it has a limit. `followed`: if the
  // policies have none, parents of resident blocks too.
  size_t select_cold(std::span<SlotId> out, uint32_t tick, AccountId account = kSharedAccount, bool followed = false);
  // Ends the caller's reference to each. A block that nothing else keeps is evicted and its slot freed; children keep a
  // block only if no tier below has it. Returns the number evicted.
  size_t evict_held(std::span<const SlotId> slots, std::vector<Evicted>* evicted, uint32_t tick = 0);

  // ---- Accounts ----
  // Creates the account, or changes its limit. Slots beyond a lower limit are evicted as far as nothing keeps them; the
  // rest follows in time. The caller serialises calls.
  [[nodiscard]] Code set_limit(AccountId account, uint32_t slots, OverQuota mode,
                               std::vector<Evicted>* evicted = nullptr, uint32_t tick = 0);
  [[nodiscard]] AccountUse account_use(AccountId account) const;

  // ---- Facts ----
  // Eight bits per slot for the manager, zero when the slot is allocated. Thread: any.
  [[nodiscard]] uint8_t flags(SlotId slot) const noexcept { return meta_[slot].flags.load(std::memory_order_acquire); }
  uint8_t set_flags(SlotId slot, uint8_t bits) noexcept { return meta_[slot].flags.fetch_or(bits); }
  uint8_t clear_flags(SlotId slot, uint8_t bits) noexcept {
    return meta_[slot].flags.fetch_and(static_cast<uint8_t>(~bits));
  }
  // Sets the payload's length, before the slot is registered. Readable by any thread.
  void set_payload_bytes(SlotId slot, uint32_t bytes) noexcept {
    meta_[slot].bytes.store(bytes, std::memory_order_release);  // look_at() (held.h)
    if (one_size_.load(std::memory_order_relaxed) != bytes) note_size(bytes);
  }
  [[nodiscard]] uint32_t payload_bytes(SlotId slot) const noexcept {
    return meta_[slot].bytes.load(std::memory_order_acquire);
  }
  // The sum over slots that the caller holds; kNoSlot counts nothing.
  [[nodiscard]] uint64_t payload_bytes(std::span<const SlotId> slots) const noexcept;
  // The identity of a registered slot that the caller holds.
  [[nodiscard]] Identity identity(SlotId slot) const noexcept { return table_[slot].identity(); }
  // Sets the flags that say that a tier below has the block, so that it may be evicted before its children. Initially
  // none.
  void set_below_flags(uint8_t flags) noexcept {
    below_.store(flags, std::memory_order_relaxed);
    for (const auto& pool : pools_) pool->stir();
  }
  [[nodiscard]] bool lies_below(SlotId slot) const noexcept {
    return (flags(slot) & below_.load(std::memory_order_relaxed)) != 0;
  }
  // Returns the resident parent of a registered slot that the caller holds; kNoSlot if it has none, or the parent is
  // gone.
  [[nodiscard]] SlotId parent(SlotId slot) const noexcept {
    const Parent parent = parents_.unpack(table_[slot].parent.load(std::memory_order_relaxed));
    return parent.slot != kNoSlot && parents_.is_there(parent, generation(parent.slot)) ? parent.slot : kNoSlot;
  }
  // True if a held slot has children in the host.
  [[nodiscard]] bool is_followed(SlotId slot) const noexcept { return word(slot).children() != 0; }
  // Makes `parent` the parent of a registered block that was published before it. The caller holds both, and calls this
  // from one thread at a time. False: the block has a parent in the host, would become its own ancestor, or the chain
  // is too long to check.
  bool adopt(SlotId slot, SlotId parent) noexcept;
  // Number of ancestors that a held block had in the host when it was published.
  [[nodiscard]] uint32_t depth(SlotId slot) const noexcept {
    return facts_[slot].depth.load(std::memory_order_relaxed);
  }
  [[nodiscard]] SlotState state(SlotId slot) const noexcept { return word(slot).state(); }
  // Lists slots from `first` on that are not reset. Returns the slot to continue from, slots() at the end. No lock.
  SlotId scan(SlotId first, std::vector<SlotInfo>& out, size_t limit) const;
  // Calls f(family) for each slot with a named block, findable or not. Thread: any.
  template <class F>
  void each_family(F&& f) const {
    for (SlotId slot = 0; slot < slot_count_; ++slot) {
      const SlotState state = word(slot).state();
      if (state == SlotState::registered || state == SlotState::evicting) {
        f(table_[slot].family.load(std::memory_order_relaxed));
      }
    }
  }
  [[nodiscard]] SlotInfo info(SlotId slot) const noexcept;
  [[nodiscard]] Counters counters() const;
  // Number of releases, unpins and lost children without a count to match; each was refused. Such a call is a fault of
  // this library, or its memory was overwritten. Thread: any.
  [[nodiscard]] uint64_t underflows() const noexcept { return underflows_.load(std::memory_order_relaxed); }
  // All metadata: slots, facts, index, policies.
  [[nodiscard]] size_t bytes() const;

 private:
  static constexpr size_t kBatch = PrefixIndex::kMaxBatch;  // blocks with overlapping cache misses

  struct Search {
    uint64_t low, high;
    PrefixIndex::Place place;
  };
  struct Fresh;
  // State of the threads with one thread number: the pool that they take slots from.
  static constexpr size_t kLanes = 16;
  struct alignas(64) Lane {
    std::atomic<uint32_t> home{UINT32_MAX};
    std::atomic<uint32_t> pool{0};
    std::atomic<int32_t> left{0};    // slots that it takes there before it looks at other pools
    std::atomic<int32_t> waited{0};  // slots of these taken while another thread had the pool
    std::atomic<uint32_t> met{0};    // consecutive stints with contention at home
    std::atomic<uint32_t> times{0};  // number of such series

    // Ends a stint. Returns true if the lane should move to another pool. If both of two contending lanes moved, they
    // might meet again. So a bit decides that differs between lanes and from time to time: the topmost of a
    // multiplicative hash.
    [[nodiscard]] bool parts(bool now, uint32_t number) noexcept {
      constexpr uint32_t kMany = 8;
      const uint32_t stints = now ? met.load(std::memory_order_relaxed) + 1 : 0;
      met.store(stints % kMany, std::memory_order_relaxed);
      if (stints < kMany) return false;
      const uint32_t time = times.load(std::memory_order_relaxed) + 1;
      times.store(time, std::memory_order_relaxed);
      return ((number * 0x9E3779B9U ^ time * 0x85EBCA6BU) * 0xC2B2AE35U) >> 31 != 0;
    }
  };

  explicit BlockTable(const Options& options);

  [[nodiscard]] SlotWord word(SlotId slot) const noexcept {
    return SlotWord(table_[slot].word.load(std::memory_order_acquire));
  }
  enum class Intent : uint8_t { read, write };
  void prepare(FamilyId family, std::span<const Key> keys, Search* out, Intent intent = Intent::read) const noexcept;
  [[nodiscard]] bool take(SlotId slot, const Search& key, FamilyId family) noexcept;
  [[nodiscard]] SlotId find_and_take(const Search& key, FamilyId family) noexcept;
  template <bool kStopAtMiss>
  size_t acquire(FamilyId family, std::span<const Key> keys, std::span<SlotId> out, uint32_t tick) noexcept;
  void note_use(SlotId slot, uint32_t tick) noexcept;
  void tell_used(std::span<const SlotId> slots, uint32_t tick) noexcept;
  void drop(std::span<const SlotId> slots, uint64_t what, uint32_t tick) noexcept;
  void give_back(SlotId slot, uint64_t what, DeferredWork& deferred) noexcept;
  void settle(DeferredWork& deferred, uint32_t tick) noexcept;

  [[nodiscard]] size_t pool_index(SlotId slot) const noexcept {
    return static_cast<size_t>((uint64_t{slot} * pool_scale_) >> 32);
  }
  // Calls each(pool, run) for every run of slots of one pool.
  template <class T, class Each>
  void each_run(std::span<T> slots, Each&& each) const {
    for (size_t begin = 0; begin < slots.size();) {
      const size_t pool = pool_index(slots[begin]);
      size_t end = begin + 1;
      while (end < slots.size() && pools_[pool]->has(slots[end])) ++end;
      each(pool, slots.subspan(begin, end - begin));
      begin = end;
    }
  }
  [[nodiscard]] Lane& lane() noexcept;
  [[nodiscard]] size_t first_pool(Lane& lane) noexcept;
  void make_pools(uint32_t n);
  // Makes one policy for each of `pools`; empty: no policy has that name, or it cannot be divided.
  [[nodiscard]] std::vector<std::unique_ptr<policy::EvictionPolicy>> new_policies() const;
  void enter_policy(const Publication& what, Fresh& fresh);
  [[nodiscard]] Code list(SlotId slot, const Search& key, const Publication& what, size_t i, uint64_t child,
                          SlotId* existing, Fresh& fresh) noexcept;
  [[nodiscard]] Code list_among(SlotId slot, const Search& key, const Publication& what, size_t i, SlotId* existing,
                                Fresh& fresh) noexcept;
  void set_parent(SlotId slot, SlotId parent) noexcept;
  void link(SlotId& inout, size_t i, SlotId parent, bool counted, const Publication& what, Fresh& fresh) noexcept;
  [[nodiscard]] bool may_be_parent(SlotId parent, SlotId child) const noexcept;
  void publish_batch(std::span<SlotId> inout, const Search* search, size_t begin, const Publication& what,
                     Fresh& fresh);
  void count_erased(size_t n);
  [[nodiscard]] Code reserve(AccountId account, Quota& quota, std::span<SlotId> out, size_t* got,
                             std::vector<Evicted>* evicted, uint32_t tick, bool evicting);
  size_t evict_own(AccountId account, std::span<SlotId> out, uint32_t tick);
  size_t take_some(AccountId account, std::span<SlotId> out, uint32_t tick, bool evicting);
  static void note_taken(Lane& lane, size_t slots, bool waited) noexcept;
  void finish_evicted(std::span<const SlotId> slots, std::vector<Evicted>* evicted) noexcept;
  void free_evicted(std::span<const SlotId> slots, std::vector<Evicted>* evicted);
  void report(SlotId slot, std::vector<Evicted>* evicted) const;
  void unlist(SlotId slot) noexcept;
  [[nodiscard]] bool withdraw(SlotId slot) noexcept;
  void note_size(uint32_t bytes) noexcept;
  template <class Match>
  size_t erase_where(Match&& match);

  const uint32_t slot_count_;
  const Parents parents_;
  const std::string policy_name_;
  const MakePolicy make_policy_;
  std::unique_ptr<Slot[]> table_;
  std::unique_ptr<SlotMeta[]> meta_;
  std::unique_ptr<policy::Facts[]> facts_;
  PrefixIndex index_;
  SlotMarks marks_;
  std::atomic<bool> hears_uses_{false};
  std::atomic<uint64_t> underflows_{0};
  std::atomic<uint8_t> below_{0};
  // Payload size of all blocks so far, so that sums need not look at each; 0: none yet.
  static constexpr uint64_t kSeveralSizes = UINT64_MAX;
  std::atomic<uint64_t> one_size_{0};

  Quotas quotas_;
  uint64_t pool_scale_ = 0;  // pool_index
  std::vector<std::unique_ptr<SlotPool>> pools_;
  std::array<Lane, kLanes> lanes_;
};

}  // namespace kvbm::block
