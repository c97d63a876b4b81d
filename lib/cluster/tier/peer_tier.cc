#include "cluster/tier/peer_tier.h"

#include <utility>

#include "cluster/tier/peer_ask.h"
#include "cluster/tier/peer_fetch.h"
#include "cluster/tier/peer_in_place.h"
#include "cluster/tier/peer_offer.h"

namespace kvbm::cluster {

// The parts outlive the tier while they have work in flight.
struct PeerTier::Core {
  Core(const PeerTierOptions& options, Executor& executor, FamilyTable& families, Peers& mesh)
      : context(std::make_shared<PeerTierContext>(options, executor, families, mesh)),
        in_place(context),
        ask(std::make_shared<PeerAsk>(context)),
        fetch(std::make_shared<PeerFetch>(context)),
        offer(std::make_shared<PeerOffer>(context)) {}
  const std::shared_ptr<PeerTierContext> context;
  const PeerInPlace in_place;
  const std::shared_ptr<PeerAsk> ask;
  const std::shared_ptr<PeerFetch> fetch;
  const std::shared_ptr<PeerOffer> offer;
};

PeerTier::PeerTier(const PeerTierOptions& options, Executor& core, FamilyTable& families, Peers& mesh)
    : core_(std::make_unique<Core>(options, core, families, mesh)) {}
PeerTier::~PeerTier() = default;

void PeerTier::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  core_->ask->ask(std::move(ids), deadline_ns, std::move(done));
}
void PeerTier::learn(const NodeFacts& node, std::span<const Offered> offered) {
  core_->context->places.learn(node, offered);
}
bool PeerTier::locate(const Identity& id, NodeId& node) const {
  PeerPlaces::Place known;
  if (!core_->context->places.locate(id, known)) return false;
  node = known.node;
  return true;
}
const OfferCounts& PeerTier::offers() const noexcept { return core_->context->offers; }
std::string PeerTier::describe() const { return "other nodes"; }
void PeerTier::find(std::span<const Identity> ids, std::span<tier::Found> out, bool /*touch*/) noexcept {
  core_->context->places.find(ids, out);
}
// Always true: the owning node may evict the record meanwhile, and then a get misses.
bool PeerTier::pin(const Identity& /*id*/) noexcept { return true; }
void PeerTier::put(std::unique_ptr<tier::PutBatch> batch) { core_->offer->put(std::move(batch)); }
void PeerTier::get(std::unique_ptr<tier::GetBatch> batch) { core_->fetch->get(std::move(batch)); }
void PeerTier::in_place(std::span<tier::InPlace> items) noexcept { core_->in_place.find(items); }
void PeerTier::read_in_place(std::span<const tier::InPlace> items) noexcept {
  core_->context->places.count_gets(items);
  core_->in_place.ended(items);
}
void PeerTier::forget_node(const NodeId& node) { core_->context->places.forget_node(node); }
void PeerTier::erase(std::span<const Identity> ids) { core_->context->places.forget(ids); }
void PeerTier::reject(const Identity& id, uint64_t /*location*/) { core_->context->places.reject(id); }
Status PeerTier::erase_family(FamilyId family) {
  core_->context->places.forget_family(family);
  return {};
}
void PeerTier::forget_families(std::span<const FamilyId> gone) { core_->context->places.forget_families(gone); }
size_t PeerTier::scan(uint64_t& cursor, std::span<tier::ScanRow> /*out*/) {
  cursor = 0;
  return 0;
}
tier::TierStats PeerTier::stats() const {
  tier::TierStats out = core_->context->places.stats();
  out.staging_bytes = core_->fetch->staging_used();
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
  tell_all(core_->context, base_id, 0);
  return uint64_t{0};
}
Status PeerTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  tell_all(core_->context, base_id, epoch);
  return {};
}
void PeerTier::shutdown(UniqueFunction<void()> done) { core_->context->shutdown(std::move(done)); }

}  // namespace kvbm::cluster
