// The other processes of a shared tier set as a tier: for a client the owner's records, for the owner the records
// that its clients offer.
//
// A cluster::PeerTier asks, fetches and offers; this class adds guarantees between processes of one host. A client's
// put is ok when the owner has the block in its memory, and owner_gone without an owner: then the block stays where
// it is. Records in the owner's memory are read there, if that is mapped. Erasing and epochs reach the owner before
// the call returns, or kWaitNs have passed. Knowledge about an owner is used only while it is connected. The owner
// itself does not search this tier (LowerTiers::stands_by). Thread: any but the links'; erase, erase_family, epoch and
// set_epoch block.
#pragma once

#include <atomic>
#include <memory>

#include "cluster/tier/peer_tier.h"
#include "manager/share/share_links.h"
#include "manager/share/share_state.h"
#include "tier/tier.h"

namespace kvbm::manager {

class SharedTier final : public tier::Tier {
 public:
  static constexpr std::string_view kKind = "share";
  // Limit of the owner's time to process a message that must arrive before a call returns.
  static constexpr uint64_t kWaitNs = 2'000'000'000;

  SharedTier(const cluster::PeerTierOptions& options, Executor& core, FamilyTable& families, ShareLinks& links);

  // Sets the manager's state. Must be the first call except epoch(), which returns 0 until then.
  void attach(ShareState& state) { state_.store(&state, std::memory_order_release); }
  [[nodiscard]] cluster::PeerTier& peers() noexcept { return peers_; }
  // Returns how many blocks a client could not give to an owner that was connected: no space, or too late.
  [[nodiscard]] uint64_t refused() const noexcept { return refused_->load(std::memory_order_relaxed); }
  // Drops everything known about an earlier owner.
  void forget_all();

  [[nodiscard]] std::string_view kind() const noexcept override { return kKind; }
  [[nodiscard]] std::string describe() const override { return "the tier set's other processes"; }
  void find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept override;
  bool pin(const Identity& id) noexcept override { return peers_.pin(id); }
  void unpin(const Identity& id) noexcept override { peers_.unpin(id); }
  void put(std::unique_ptr<tier::PutBatch> batch) override;
  void get(std::unique_ptr<tier::GetBatch> batch) override { peers_.get(std::move(batch)); }
  void in_place(std::span<tier::InPlace> items) noexcept override { peers_.in_place(items); }
  void read_in_place(std::span<const tier::InPlace> items) noexcept override { peers_.read_in_place(items); }
  void erase(std::span<const Identity> ids) override;
  void reject(const Identity& id, uint64_t location) override { peers_.reject(id, location); }
  Status erase_family(FamilyId family) override;
  void forget_families(std::span<const FamilyId> gone) override { peers_.forget_families(gone); }
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> out) override { return peers_.scan(cursor, out); }
  [[nodiscard]] tier::TierStats stats() const override { return peers_.stats(); }
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  void shutdown(UniqueFunction<void()> done) override { peers_.shutdown(std::move(done)); }

 private:
  [[nodiscard]] ShareRole role() const noexcept;
  [[nodiscard]] bool connected() const noexcept;
  Code ask_and_wait(ShareMessage message, uint64_t& value);

  Executor& core_;
  FamilyTable& families_;
  ShareLinks& links_;
  cluster::PeerTier peers_;
  std::atomic<const ShareState*> state_{nullptr};
  const std::shared_ptr<std::atomic<uint64_t>> refused_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace kvbm::manager
