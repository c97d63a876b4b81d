#include "manager/namespaces/namespace.h"

#include <cstring>
#include <utility>

#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/namespaces/namespaces.h"

using kvbm::Code;
using kvbm::capi::fail;
using kvbm::capi::guarded;

extern "C" {

kvbm_status_t kvbm_namespace_options_init(kvbm_namespace_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_namespace_options_t{});
}

kvbm_status_t kvbm_namespace_open(kvbm_manager_t* manager, const kvbm_namespace_options_t* options,
                                  kvbm_namespace_t** out_namespace, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (manager == nullptr || out_namespace == nullptr || options == nullptr) {
      return fail(err, Code::invalid_argument, "manager, options or out_namespace is NULL");
    }
    kvbm_namespace_options_t given{};
    if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, err);
    if (here != KVBM_OK) return here;
    kvbm::manager::NamespaceOptions core;
    if (given.tenant != nullptr) core.tenant = given.tenant;
    if (given.model != nullptr) core.model = given.model;
    if (given.adapter != nullptr) core.adapter = given.adapter;
    if (given.geometry != nullptr) core.geometry = given.geometry->core;
    if (given.secret != nullptr) std::memcpy(core.secret.data(), given.secret, core.secret.size());
    if (given.quota_mode > KVBM_QUOTA_REJECT)
      return fail(err, Code::invalid_argument, "quota_mode is not a KVBM_QUOTA_* value");
    if (given.allow_lossy > 1 || given.weak_hashes > 1) {
      return fail(err, Code::invalid_argument, "allow_lossy and weak_hashes are 0 or 1");
    }
    core.allow_lossy = given.allow_lossy == 1;
    if (given.codec != nullptr) {
      auto recipe = kvbm::codec::Recipe::parse(given.codec);
      if (!recipe.ok()) return fail(err, recipe.status());
      core.codec = std::move(recipe).value();
    }
    core.epoch = given.epoch;
    core.quota_bytes = given.quota_bytes;
    core.quota_mode =
        given.quota_mode == KVBM_QUOTA_REJECT ? kvbm::block::OverQuota::reject : kvbm::block::OverQuota::evict;
    auto ns = manager->tenancy->namespaces().open(std::move(core));
    if (!ns.ok()) return fail(err, ns.status());
    *out_namespace = new kvbm_namespace{manager->tenancy, std::move(ns).value(), given.weak_hashes == 1};
    return kvbm::capi::done(err);
  });
}

void kvbm_namespace_release(kvbm_namespace_t* ns) {
  if (ns != nullptr) kvbm::capi::drop(ns, *ns->tenancy->context);
}

void kvbm_namespace_id(const kvbm_namespace_t* ns, uint8_t out_id[16]) {
  if (ns == nullptr || out_id == nullptr) return;
  const kvbm::NamespaceId id = ns->ns->id();
  std::memcpy(out_id, id.bytes.data(), id.bytes.size());
}

kvbm_status_t kvbm_namespace_invalidate(kvbm_namespace_t* ns, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (ns == nullptr) return fail(err, Code::invalid_argument, "ns is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*ns->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, ns->tenancy->namespaces().invalidate(*ns->ns));
  });
}

kvbm_status_t kvbm_namespace_reset(kvbm_namespace_t* ns, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (ns == nullptr) return fail(err, Code::invalid_argument, "ns is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*ns->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, ns->tenancy->namespaces().reset(*ns->ns));
  });
}

kvbm_status_t kvbm_namespace_set_quota(kvbm_namespace_t* ns, uint64_t quota_bytes, uint32_t quota_mode) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (ns == nullptr) return kvbm::capi::invalid("ns is NULL");
    if (quota_mode > KVBM_QUOTA_REJECT) return kvbm::capi::invalid("quota_mode is not a KVBM_QUOTA_* value");
    if (kvbm::capi::forked(*ns->tenancy)) return KVBM_ERR_FORKED;
    const auto mode = quota_mode == KVBM_QUOTA_REJECT ? kvbm::block::OverQuota::reject : kvbm::block::OverQuota::evict;
    return kvbm::capi::to_c(ns->tenancy->namespaces().set_quota(*ns->ns, quota_bytes, mode).code());
  });
}

}  // extern "C"
