// The host tier over the tiers below it, as operations see them: what allocating, publishing and dropping blocks means
// for all tiers at once.
//
// Thread: any, after the tiers are open. Lock order: lib/README.md.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "block/block_table.h"
#include "manager/host/host_tier.h"
#include "manager/lower/lower_tiers.h"
#include "manager/stack/coded_landing.h"
#include "manager/stack/delivery.h"
#include "manager/stack/unflushed.h"

namespace kvbm::manager {

class DuplicateResolver;

class TierStack {
 public:
  TierStack(HostTier& host, LowerTiers& lower);

  [[nodiscard]] HostTier& host() noexcept { return host_; }
  [[nodiscard]] LowerTiers& lower() noexcept { return lower_; }
  [[nodiscard]] BackgroundDecoder& background_decoder() noexcept { return background_decoder_; }
  // Blocks that the next flush of a shared tier set covers.
  [[nodiscard]] Unflushed& unflushed() noexcept { return unflushed_; }
  // Returns an owner of this object and of the whole manager.
  [[nodiscard]] std::shared_ptr<TierStack> keep() noexcept { return host_.lifetime().keep(*this); }

  // ---- Slots ----
  // Allocates host slots for blocks of an account, all or none; evictions are reported and counted. `evicted` (may be
  // null) receives the evicted identities. Without `evicting` takes only free slots, within the account's present
  // limit.
  Code allocate(block::AccountId account, std::span<SlotId> out, std::vector<block::Evicted>* evicted,
                bool evicting = true);
  // Allocates as many leading slots as possible; `got` is their number. ok, or why there was none.
  Code allocate_leading(block::AccountId account, std::span<SlotId> out, size_t& got, bool evicting = true);
  // Returns how many of `n` slots can be filled from below without losing a last copy. If a tier gets only blocks
  // that the host evicts, these are the free slots: the blocks in other slots must be written there first.
  [[nodiscard]] size_t slots_to_land_in(size_t n);
  // Returns how many of `n` slots a store can fill now without losing a last copy; the store waits for more. If there
  // are none, `why` has the reason.
  [[nodiscard]] size_t slots_to_store_in(block::AccountId account, size_t n, Code& why);
  // Counts and reports blocks evicted to make space, whether a tier below has them or not.
  void report_displaced(std::span<const block::Evicted> gone);

  // ---- Blocks ----
  struct Bringer {
    TierIndex apart = kNoTier;  // a tier that the caller sends the blocks to itself
    bool waits = false;         // the caller waits for slots, so blocks to be offloaded stay until they are written
  };
  // Publishes completed slots, and notifies event subscribers and offloaders. `parents_of_events` may be empty.
  // `resolver`: what.precedence, which then knows the replaced blocks.
  Code publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
               std::span<Code> codes, const Bringer& bringer, const DuplicateResolver* resolver = nullptr);
  Code publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
               std::span<Code> codes) {
    return publish(inout, what, parents_of_events, codes, Bringer{});
  }
  // Registers the record of a private slot, after its leaves were verified, unless its family was invalidated since the
  // mark. If the block is there already, the reference moves to that one, which payload and head do not show. `waits`:
  // as Bringer::waits.
  Code register_landed(const Identity& id, Delivery& one, bool waits = false);
  // Takes over a reference to blocks that another node pushed: they stay for a while (received_blocks.h).
  void keep_received(std::span<const SlotId> slots);
  // Returns true if no tier has the block. False if that is not known, because other processes or nodes own a tier
  // below.
  [[nodiscard]] bool is_nowhere(const Identity& id);
  // Drops blocks from all tiers; returns how many the host had.
  size_t drop(FamilyId family, std::span<const Key> keys);
  void hint(FamilyId family, std::span<const Key> keys, uint8_t priority);
  // Erases a family, or everything, in the host and in every tier below.
  Status erase_family(FamilyId family);
  Status erase_all();
  // Adds the families that have records in the host, or in a tier that can list them. Visits every slot.
  void add_stored(FamilyTable::Named& named);

 private:
  void erase_replaced(const block::Publication& what, const DuplicateResolver& resolver, std::span<const Code> codes);

  HostTier& host_;
  LowerTiers& lower_;
  Unflushed unflushed_;
  BackgroundDecoder background_decoder_;
};

}  // namespace kvbm::manager
