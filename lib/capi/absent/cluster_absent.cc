// Stands in for nodes, pools and shared tier sets in a build without them. A manager that asks for one of
// them is not made, so no object of their classes exists.
#include "capi/absent/absent.h"
#include "capi/join.h"
#include "cluster/mesh/survey.h"
#include "cluster/same_host/mapped_pools.h"
#include "manager/node/node.h"
#include "manager/node/node_metrics.h"
#include "manager/operation/ask_other_sizes.h"
#include "manager/operation/lend.h"
#include "manager/operation/load.h"
#include "manager/share/share.h"
#include "manager/stack/unflushed.h"

namespace kvbm::cluster {

uint64_t MappedPools::bytes() const { return 0; }
bool MappedPools::empty() const { return true; }

}  // namespace kvbm::cluster

namespace kvbm::manager {

Status Node::start(const std::shared_ptr<TierStack>&, Namespaces&, const std::shared_ptr<CodingTerms>&) {
  return capi::absent(capi::kNoCluster);
}
void Node::stop() {}
copy::Completion Node::run_and_wait(Operation&) { return {}; }
void Node::ask_and_wait(std::vector<Identity>, uint64_t) {}
void Node::survey(std::vector<Identity>, uint64_t, UniqueFunction<void(std::vector<cluster::NodeAnswer>)>) {}
std::string node_metrics_text(Node&) { return {}; }

Status Share::start(const std::shared_ptr<TierStack>&, Namespaces&, ShareState&) {
  return capi::absent(capi::kNoCluster);
}
void Share::stop() {}
void Share::ask(std::vector<Identity>, uint64_t, UniqueFunction<void()>) {}
bool Share::can_ask() const noexcept { return false; }
void Share::flush(bool, FlushDone) {}

// Its callers ask nodes or an owner about what is left, and there are none.
void keep_unknown(LowerTiers&, std::vector<Identity>& ids) { ids.clear(); }

std::vector<Identity> AskOtherSizes::first() { return {}; }
std::vector<Identity> AskOtherSizes::rest() { return {}; }

// No process shares the tiers, so no flush asks an owner.
void Unflushed::stored(std::span<const Identity>) {}
void Unflushed::forget(std::span<const Identity>) {}
void Unflushed::forget(FamilyId) {}
void Unflushed::forget_all() {}
void Unflushed::add_to(FamilyTable::Named&) const {}

// No tier has records in the memory of other processes: all are read.
void LoadOperation::find_in_place() {
  below_.insert(below_.end(), in_place_.begin(), in_place_.end());
  in_place_.clear();
}
bool LoadOperation::next_in_place(Item&) { return false; }
void LoadOperation::tell_in_place() {}

}  // namespace kvbm::manager

namespace kvbm::capi {

Status join(const manager::Environment&, manager::Options& options, Tenancy&) {
  return options.share.on || options.node.wanted() ? absent(kNoCluster) : Status();
}

}  // namespace kvbm::capi

using kvbm::capi::absent;
using kvbm::capi::kNoCluster;

extern "C" {

kvbm_status_t kvbm_manager_wait_for_peers(kvbm_manager_t*, uint64_t, kvbm_error_t* err) {
  return absent(err, kNoCluster);
}
kvbm_status_t kvbm_manager_nodes(kvbm_manager_t*, kvbm_node_row_t*, size_t, size_t* out_n) {
  if (out_n != nullptr) *out_n = 0;
  return absent(nullptr, kNoCluster);
}
kvbm_status_t kvbm_manager_node_address(kvbm_manager_t*, char*, size_t, size_t* out_needed) {
  if (out_needed != nullptr) *out_needed = 0;
  return absent(nullptr, kNoCluster);
}
kvbm_status_t kvbm_locate_options_init(kvbm_locate_options_t*, uint32_t) { return absent(nullptr, kNoCluster); }
kvbm_status_t kvbm_manager_locate(kvbm_manager_t*, kvbm_namespace_t*, const kvbm_key_t*, size_t,
                                  const kvbm_locate_options_t*, kvbm_location_t*, size_t, size_t* out_n) {
  if (out_n != nullptr) *out_n = 0;
  return absent(nullptr, kNoCluster);
}
kvbm_status_t kvbm_manager_share(kvbm_manager_t*, kvbm_share_t*) { return absent(nullptr, kNoCluster); }

}  // extern "C"
