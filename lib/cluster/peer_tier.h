// Other nodes as a tier: what they have is found by asking, read by fetching, and written by offering.
//
// find() knows only what has been learnt: ask() asks the nodes that are connected and remembers who has what (a bounded
// cache; the record proves itself when it arrives, so a stale location is a miss and forgotten). Small pools are asked
// whole; in larger ones a key's homes and the next in rank, then, for what nobody had, the ranks after them: where
// homes were before members came or went. get() fetches into staging of its own and copies from there, verified leaf by
// leaf in the same pass, into the caller's memory: at the deadline the caller's memory is free, and only staging waits
// for what may still arrive. put() offers records to the home nodes of each key, which fetch those that they want while
// they are held here; ok means that one of them says that it has it, and an item that nobody wants is no_room.
//
// Thread: any. Work happens on the links' thread; copies and completions on the core's executor.
// Parts: peer_places (who has what), peer_ask, peer_fetch, peer_offer; what they share is peer_commons.h.
#pragma once

#include <memory>
#include <vector>

#include "cluster/peer_commons.h"
#include "tier/tier.h"

namespace kvbm::cluster {

class PeerTier final : public tier::Tier {
 public:
  static constexpr std::string_view kKind = "peers";
  // `mesh` is used on its own thread alone and outlives this tier's shutdown().
  PeerTier(const PeerTierOptions& options, Executor& core, FamilyTable& families, Peers& mesh);
  ~PeerTier() override;

  // Asks the nodes for what is not known to be anywhere. `done` runs once, on the links' thread, when all have
  // answered or the deadline has passed; find() then tells what was learnt. It does little: links wait for it.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);
  // Somebody says that it has these records.
  void learn(const NodeFacts& node, std::span<const Offered> offered);
  // Where a record is, as far as is known.
  [[nodiscard]] bool locate(const Identity& id, NodeId& node) const;

  [[nodiscard]] const OfferCounts& offers() const noexcept;

  // Its process has ended: nothing of it is known to be anywhere.
  void forget_node(const NodeId& node);

  [[nodiscard]] std::string_view kind() const noexcept override { return kKind; }
  [[nodiscard]] std::string describe() const override;
  void find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept override;
  bool pin(const Identity& id) noexcept override;
  void unpin(const Identity&) noexcept override {}
  void put(std::unique_ptr<tier::PutBatch> batch) override;
  void get(std::unique_ptr<tier::GetBatch> batch) override;
  void in_place(std::span<tier::InPlace> items) noexcept override;
  void read_in_place(std::span<const tier::InPlace> items) noexcept override;
  void erase(std::span<const Identity> ids) override;
  void reject(const Identity& id, uint64_t location) override;
  Status erase_family(FamilyId family) override;
  // Where records of other nodes are is a hint, and names no family.
  void forget_families(std::span<const FamilyId> gone) override;
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> out) override;
  [[nodiscard]] tier::TierStats stats() const override;
  // Nothing is known here. Asks every node that is connected, and does not wait: who knows a later epoch than 0 says so, as
  // of one that was raised just now.
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  // Tells every node that is connected; does not wait for them. Others hear of it when they are (Mesh::tell_epochs), and
  // who has the new epoch asks for no older blocks anyway.
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  void shutdown(UniqueFunction<void()> done) override;

 private:
  struct Core;
  const std::unique_ptr<Core> core_;
};

}  // namespace kvbm::cluster
