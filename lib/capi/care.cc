#include <string>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/namespaces/namespace.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"
#include "manager/stack/pins.h"
#include "manager/stack/tier_stack.h"

using kvbm::FamilyId;
using kvbm::Key;
using kvbm::capi::guarded;
using kvbm::capi::to_c;

namespace {

// Common start of every call in this section: checked arguments, the family, and the keys as a span.
struct Subject {
  kvbm_status_t status = KVBM_OK;
  kvbm::manager::PartPlan plan;
  std::span<const Key> keys;
};

Subject subject(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_part_t* part, const kvbm_key_t* keys,
                size_t n_keys) {
  Subject out;
  if (manager == nullptr || ns == nullptr) {
    out.status = kvbm::capi::invalid("manager or ns is NULL");
    return out;
  }
  if ((keys == nullptr && n_keys != 0) || kvbm::capi::too_many(n_keys)) {
    out.status = kvbm::capi::invalid("keys is NULL, or has more than 2^28 keys");
    return out;
  }
  if (ns->tenancy != manager->tenancy) {
    out.status = kvbm::capi::refuse(kvbm::Code::foreign_handle, "the namespace belongs to another manager");
    return out;
  }
  out.status = kvbm::capi::check_process(*manager->tenancy->context, nullptr);
  if (out.status != KVBM_OK) return out;
  auto plan = ns->ns->plan(kvbm::capi::to_part(part));
  if (!plan.ok()) out.status = kvbm::capi::fail(nullptr, plan.status());
  if (plan.ok()) out.plan = std::move(plan).value();
  out.keys = {reinterpret_cast<const Key*>(keys), n_keys};
  return out;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_manager_prefetch(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_part_t* part,
                                    const kvbm_key_t* keys, size_t n_keys, kvbm_queue_t* queue, uint64_t user_data) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    const Subject s = subject(manager, ns, part, keys, n_keys);
    if (s.status != KVBM_OK) return s.status;
    const auto stack = manager->tenancy->stack().keep();
    kvbm::manager::LookupRequest request;
    request.mode = kvbm::manager::LookupMode::each;
    request.uncounted = true;
    if (n_keys != 0) kvbm::capi::ask_owner_and_wait(*manager->tenancy, {&s.plan, 1}, s.keys);
    if (n_keys != 0) kvbm::capi::ask_for_other_sizes(*manager->tenancy, *ns->ns, {&s.plan, 1}, s.keys, 0);
    auto match = n_keys == 0 ? nullptr : kvbm::manager::look_up(stack, ns->ns, {&s.plan, 1}, s.keys, request);
    auto operation = std::make_shared<kvbm::manager::PrefetchOperation>(stack, std::move(match), n_keys, kvbm::kNever);
    return run_operation(manager->tenancy, nullptr, std::move(operation), queue, user_data, nullptr);
  });
}

kvbm_status_t kvbm_manager_offload(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_part_t* part,
                                   const kvbm_key_t* keys, size_t n_keys, uint32_t tier, kvbm_queue_t* queue,
                                   uint64_t user_data) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    const Subject s = subject(manager, ns, part, keys, n_keys);
    if (s.status != KVBM_OK) return s.status;
    const auto stack = manager->tenancy->stack().keep();
    const size_t tiers = stack->lower().count();
    if (tier == 0 || tier > tiers) {
      return kvbm::capi::fail(nullptr,
                              {kvbm::Code::invalid_argument, "there is no such tier below the host tier",
                               "tier is " + std::to_string(tier) + ", there are 1 to " + std::to_string(tiers)});
    }
    auto operation =
        std::make_shared<kvbm::manager::OffloadOperation>(stack, static_cast<kvbm::TierIndex>(tier), s.plan.family,
                                                          std::vector<Key>(s.keys.begin(), s.keys.end()), kvbm::kNever);
    return run_operation(manager->tenancy, nullptr, std::move(operation), queue, user_data, nullptr);
  });
}

kvbm_status_t kvbm_manager_drop(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_part_t* part,
                                const kvbm_key_t* keys, size_t n_keys, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    const Subject s = subject(manager, ns, part, keys, n_keys);
    if (s.status != KVBM_OK) return s.status;
    const size_t n = manager->tenancy->stack().drop(s.plan.family, s.keys);
    if (out_n != nullptr) *out_n = n;
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_manager_hint(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_part_t* part,
                                const kvbm_key_t* keys, size_t n_keys, uint32_t priority) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    const Subject s = subject(manager, ns, part, keys, n_keys);
    if (s.status != KVBM_OK) return s.status;
    if (priority > KVBM_PRIORITY_KEEP) return kvbm::capi::invalid("priority is not a KVBM_PRIORITY_* value");
    manager->tenancy->stack().hint(s.plan.family, s.keys, static_cast<uint8_t>(priority));
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_manager_pin(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_part_t* part,
                               const kvbm_key_t* keys, size_t n_keys, uint64_t owner, uint64_t timeout_ns,
                               kvbm_pin_t* out_pin, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    const Subject s = subject(manager, ns, part, keys, n_keys);
    if (s.status != KVBM_OK) return s.status;
    if (out_pin == nullptr) return kvbm::capi::invalid("out_pin is NULL");
    *out_pin = 0;
    size_t count = 0;
    const uint64_t deadline = kvbm::deadline_after(manager->tenancy->context->executor->clock(), timeout_ns);
    const kvbm::Code code = manager->tenancy->pins().pin(s.plan.family, s.keys, owner, deadline, *out_pin, count,
                                                         ns->ns->options().allow_lossy);
    if (out_n != nullptr) *out_n = count;
    return to_c(code);
  });
}

kvbm_status_t kvbm_manager_unpin(kvbm_manager_t* manager, kvbm_pin_t pin) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr) return kvbm::capi::invalid("manager is NULL");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    return to_c(manager->tenancy->pins().unpin(pin));
  });
}

kvbm_status_t kvbm_manager_unpin_owner(kvbm_manager_t* manager, uint64_t owner, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (manager == nullptr) return kvbm::capi::invalid("manager is NULL");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    const size_t n = manager->tenancy->pins().unpin_owner(owner);
    if (out_n != nullptr) *out_n = n;
    return KVBM_OK;
  });
}

}  // extern "C"
