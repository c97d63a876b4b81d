#include "manager/namespaces/namespace.h"

#include <utility>

#include "layout/shard.h"
#include "manager/lower/coding_terms.h"

namespace kvbm::manager {

Namespace::Namespace(NamespaceOptions options, FamilyTable& families, Accounts::Lease account, uint64_t epoch,
                     std::shared_ptr<CodingTerms> coding)
    : options_(std::move(options)),
      table_(families),
      coding_(std::move(coding)),
      base_id_(derive(options_, 0)),
      epoch_(epoch) {
  if (coding_ != nullptr) coding_handle_ = coding_->join(base_id_, {options_.codec, options_.allow_lossy});
  id_ = derive(options_, epoch);
  if (account != nullptr) set_account(std::move(account));
}

void Namespace::set_account(Accounts::Lease lease) {
  MutexLock lock(mutex_);
  lease_ = std::move(lease);
  account_.store(*lease_, std::memory_order_relaxed);
}

NamespaceId Namespace::derive(const NamespaceOptions& options, uint64_t epoch) {
  codec::NamespaceDescription description;
  description.tenant = options.tenant;
  description.model = options.model;
  description.adapter = options.adapter;
  description.geometry = options.geometry != nullptr ? options.geometry->fingerprint() : 0;
  description.epoch = epoch;
  return codec::namespace_id(options.secret, description);
}

NamespaceId Namespace::model_id_of(const NamespaceOptions& options) {
  NamespaceOptions model = options;
  model.geometry = nullptr;
  return derive(model, 0);
}

NamespaceId Namespace::id() const {
  MutexLock lock(mutex_);
  return id_;
}

uint64_t Namespace::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

Result<PartPlan> Namespace::shape_of(const Part& part, Family& family, uint32_t& model_layers) const {
  if (part.component == UINT16_MAX) return Status(Code::invalid_argument, "no component has this number");
  PartPlan plan;
  plan.part = part;
  family.component = part.component;
  family.shard = part.shard;
  if (options_.geometry == nullptr) return plan;
  const layout::Geometry& geometry = *options_.geometry;
  const layout::ComponentGeometry* component = geometry.component(part.component);
  if (component == nullptr) return Status(Code::invalid_argument, "the geometry has no such component");
  if (family.shard == Shard{}) family.shard = layout::whole_shard(*component);
  const Status fits = layout::check_shard(geometry, part.component, family.shard);
  if (!fits.ok()) return fits;
  auto shape = layout::RecordShape::make(geometry, part.component, family.shard, geometry.units());
  if (!shape.ok()) return shape.status();
  plan.shape = std::move(shape).value();
  plan.kind = component->kind;
  model_layers = component->layers;
  family.geometry = geometry.fingerprint();
  const uint32_t stored = geometry.tokens_per_stored_block();
  plan.window_blocks = (component->window_tokens + stored - 1) / stored;
  return plan;
}

Result<PartPlan> Namespace::plan(const Part& part) {
  {
    MutexLock lock(mutex_);
    const auto known = plans_.find(part);
    if (known != plans_.end()) return known->second;
  }
  Family family;
  uint32_t model_layers = 0;
  auto plan = shape_of(part, family, model_layers);
  if (!plan.ok()) return plan;
  table_.make_room();
  // Interned and noted under one lock, so that FamilyTable::give_back either sees the id in use, or asked before it
  // existed.
  MutexLock lock(mutex_);
  const auto known = plans_.find(part);
  if (known != plans_.end()) return known->second;
  family.ns = id_;
  const auto interned = table_.intern(family, base_id_);
  if (!interned.ok()) return interned.status();
  plan.value().family = interned.value();
  if (coding_ != nullptr) coding_->add(base_id_, plan.value().family, plan.value().shape, model_layers);
  plans_.emplace(part, plan.value());
  return plan;
}

Result<FamilyId> Namespace::default_family() {
  const FamilyId cached = default_family_.load(std::memory_order_acquire);
  if (cached != kNoFamily) return cached;
  const auto plan_of_default = plan(Part{});
  if (!plan_of_default.ok()) return plan_of_default.status();
  const FamilyId family = plan_of_default.value().family;
  // The family is not cached if its epoch has ended meanwhile.
  MutexLock lock(mutex_);
  const auto now = plans_.find(Part{});
  if (now != plans_.end() && now->second.family == family) default_family_.store(family, std::memory_order_release);
  return family;
}

// Derives the sizes from the geometry once for each part and epoch.
std::vector<std::shared_ptr<OtherSize>> Namespace::all_sizes(const PartPlan& plan) {
  {
    MutexLock lock(mutex_);
    const auto known = others_.find(plan.part);
    if (known != others_.end() && known->second.family == plan.family) return known->second.all;
  }
  auto all = other_sizes_of(*options_.geometry, table_.get(plan.family), *plan.shape);
  MutexLock lock(mutex_);
  const auto now = plans_.find(plan.part);
  if (now == plans_.end() || now->second.family != plan.family) return all;  // of an epoch that has ended
  others_[plan.part] = {plan.family, UINT64_MAX, all, nullptr};
  return all;
}

// Returns the sizes with at least one family id. A tier may be asked for records only after their coding is known.
OtherSizes Namespace::with_ids(const std::vector<std::shared_ptr<OtherSize>>& all, bool intern) {
  OtherSizes out;
  for (const auto& one : all) {
    auto size = std::make_shared<OtherSize>();
    size->shards = one->shards, size->shapes = one->shapes, size->plan = one->plan;
    bool any = false;
    for (size_t i = 0; i < size->shards.size(); ++i) {
      FamilyId family = kNoFamily;
      if (intern) {
        const auto interned = table_.intern(size->shards[i], base_id_);
        if (interned.ok()) family = interned.value();
      } else {
        (void)table_.find(size->shards[i], family);
      }
      size->families.push_back(family);
      if (family == kNoFamily) continue;
      any = true;
      if (coding_ == nullptr) continue;
      coding_->add(base_id_, family, size->shapes[i], options_.geometry->component(size->shards[i].component)->layers);
    }
    if (any) out.push_back(std::move(size));
  }
  return out;
}

std::shared_ptr<const OtherSizes> Namespace::other_sizes(const PartPlan& plan) {
  if (!plan.shape.has_value()) return nullptr;
  const uint64_t changes = table_.changes();  // read before the table is searched
  {
    MutexLock lock(mutex_);
    const auto known = others_.find(plan.part);
    if (known != others_.end() && known->second.family == plan.family && known->second.changes == changes)
      return known->second.known;
  }
  auto found = with_ids(all_sizes(plan), false);
  const auto out = found.empty() ? nullptr : std::make_shared<const OtherSizes>(std::move(found));
  MutexLock lock(mutex_);
  const auto known = others_.find(plan.part);
  if (known != others_.end() && known->second.family == plan.family) {
    known->second.changes = changes;
    known->second.known = out;
  }
  return out;
}

OtherSizes Namespace::all_other_sizes(const PartPlan& plan) {
  if (!plan.shape.has_value()) return {};
  return with_ids(all_sizes(plan), true);
}

void Namespace::add_to(FamilyTable::Named& named) const {
  MutexLock lock(mutex_);
  for (const auto& [part, plan] : plans_) named.add(plan.family);
}

void Namespace::advance(uint64_t epoch) {
  MutexLock lock(mutex_);
  plans_.clear();
  others_.clear();
  default_family_.store(kNoFamily, std::memory_order_release);
  epoch_ = epoch;
  id_ = derive(options_, epoch);
}

}  // namespace kvbm::manager
