// Other nodes as a tier: their records are found by asking, read by fetching, and written by offering.
//
// find() knows only what has been learnt: ask() asks the connected nodes and remembers the holders (a bounded cache;
// the record proves itself when it arrives, so a stale location is a miss and forgotten). In small pools all nodes
// are asked. In larger ones a key's homes and the next in rank are, and for records that none of them has, the ranks
// after them: the homes before members joined or left. get() fetches into staging of its own and copies from there,
// verified leaf by leaf in the same pass, into the caller's memory. At the deadline the caller's memory is free, and
// only staging waits for late data. put() offers records to the home nodes of each key, which fetch the wanted ones
// while they are held here. ok means that one of them reports the record; an item that no node wants is no_room.
//
// Thread: any. Work happens on the links' thread; copies and completions on the core's executor. Parts: peer_places
// (known holders), peer_ask, peer_fetch, peer_offer; they share peer_tier_context.h.
#pragma once

#include <memory>
#include <vector>

#include "cluster/tier/peer_tier_context.h"
#include "tier/tier.h"

namespace kvbm::cluster {

class PeerAsk;
class PeerFetch;
class PeerInPlace;
class PeerOffer;

class PeerTier final : public tier::Tier {
 public:
  static constexpr std::string_view kKind = "peers";
  // `mesh` is used on its own thread only and outlives this tier's shutdown().
  PeerTier(const PeerTierOptions& options, Executor& core, FamilyTable& families, Peers& mesh);
  ~PeerTier() override;

  // Asks the nodes for records without a known place. `done` runs once, on the links' thread, when all have answered
  // or the deadline has passed; find() then returns what was learnt. `done` must be short: links wait for it.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);
  // Notes that a node has reported these records.
  void learn(const NodeFacts& node, std::span<const Offered> offered);
  // Returns the node of a record, as far as known.
  [[nodiscard]] bool locate(const Identity& id, NodeId& node) const;

  [[nodiscard]] const OfferCounts& offers() const noexcept;

  // Forgets the places of a node's records, because its process has ended.
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
  // Places of other nodes' records are hints, and name no family.
  void forget_families(std::span<const FamilyId> gone) override;
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> out) override;
  [[nodiscard]] tier::TierStats stats() const override;
  // Returns 0, because nothing is stored here. Asks every connected node without waiting: a node that knows a later
  // epoch reports it, as if it had been raised just now.
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  // Sends the epoch to every connected node, without waiting. Others receive it when they connect
  // (Mesh::tell_epochs), and a node with the new epoch asks for no older blocks anyway.
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  void shutdown(UniqueFunction<void()> done) override;

 private:
  // The shared parts outlive the tier while they have work in flight.
  const std::shared_ptr<PeerTierContext> context_;
  const std::unique_ptr<const PeerInPlace> in_place_;
  const std::shared_ptr<PeerAsk> ask_;
  const std::shared_ptr<PeerFetch> fetch_;
  const std::shared_ptr<PeerOffer> offer_;
};

}  // namespace kvbm::cluster
