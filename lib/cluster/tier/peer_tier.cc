#include "cluster/tier/peer_tier.h"

#include <utility>

#include "cluster/tier/peer_ask.h"
#include "cluster/tier/peer_fetch.h"
#include "cluster/tier/peer_in_place.h"
#include "cluster/tier/peer_offer.h"

namespace kvbm::cluster {

PeerTier::PeerTier(const PeerTierOptions& options, Executor& core, FamilyTable& families, Peers& mesh)
    : context_(std::make_shared<PeerTierContext>(options, core, families, mesh)),
      in_place_(std::make_unique<PeerInPlace>(context_)),
      ask_(std::make_shared<PeerAsk>(context_)),
      fetch_(std::make_shared<PeerFetch>(context_)),
      offer_(std::make_shared<PeerOffer>(context_)) {}
PeerTier::~PeerTier() = default;

void PeerTier::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  ask_->ask(std::move(ids), deadline_ns, std::move(done));
}
void PeerTier::learn(const NodeFacts& node, std::span<const Offered> offered) { context_->places.learn(node, offered); }
bool PeerTier::locate(const Identity& id, NodeId& node) const {
  PeerPlaces::Place known;
  if (!context_->places.locate(id, known)) return false;
  node = known.node;
  return true;
}
const OfferCounts& PeerTier::offers() const noexcept { return context_->offers; }
std::string PeerTier::describe() const { return "other nodes"; }
void PeerTier::find(std::span<const Identity> ids, std::span<tier::Found> out, bool /*touch*/) noexcept {
  context_->places.find(ids, out);
}
// Always true: the owning node may evict the record meanwhile, and then a get misses.
bool PeerTier::pin(const Identity& /*id*/) noexcept { return true; }
void PeerTier::put(std::unique_ptr<tier::PutBatch> batch) { offer_->put(std::move(batch)); }
void PeerTier::get(std::unique_ptr<tier::GetBatch> batch) { fetch_->get(std::move(batch)); }
void PeerTier::in_place(std::span<tier::InPlace> items) noexcept { in_place_->find(items); }
void PeerTier::read_in_place(std::span<const tier::InPlace> items) noexcept {
  context_->places.count_gets(items);
  in_place_->ended(items);
}
void PeerTier::forget_node(const NodeId& node) { context_->places.forget_node(node); }
void PeerTier::erase(std::span<const Identity> ids) { context_->places.forget(ids); }
void PeerTier::reject(const Identity& id, uint64_t /*location*/) { context_->places.reject(id); }
Status PeerTier::erase_family(FamilyId family) {
  context_->places.forget_family(family);
  return {};
}
void PeerTier::forget_families(std::span<const FamilyId> gone) { context_->places.forget_families(gone); }
size_t PeerTier::scan(uint64_t& cursor, std::span<tier::ScanRow> /*out*/) {
  cursor = 0;
  return 0;
}
tier::TierStats PeerTier::stats() const {
  tier::TierStats out = context_->places.stats();
  out.staging_bytes = fetch_->staging_used();
  return out;
}
namespace {

void tell_all(const std::shared_ptr<PeerTierContext>& context, const NamespaceId& base_id, uint64_t epoch) {
  if (!context->enter()) return;
  context->mesh.executor().post([context, base_id, epoch] {
    for (PeerLink* const link : context->mesh.ready()) {
      link->invalidate(base_id, epoch, context->latest_ns(), [](Code) {});
    }
    context->leave();
  });
}

}  // namespace

Result<uint64_t> PeerTier::epoch(const NamespaceId& base_id) {
  tell_all(context_, base_id, 0);
  return uint64_t{0};
}
Status PeerTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  tell_all(context_, base_id, epoch);
  return {};
}
void PeerTier::shutdown(UniqueFunction<void()> done) { context_->shutdown(std::move(done)); }

}  // namespace kvbm::cluster
