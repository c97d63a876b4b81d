#include "manager/share/share.h"

#include "capi/guard.h"
#include "capi/handles.h"

using kvbm::capi::guarded;
using kvbm::manager::ShareRole;

static_assert(KVBM_SHARE_OWNER == static_cast<int>(ShareRole::owner));
static_assert(KVBM_SHARE_CLIENT == static_cast<int>(ShareRole::client));

extern "C" {

kvbm_status_t kvbm_manager_share(kvbm_manager_t* manager, kvbm_share_t* out_share) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || out_share == nullptr) return kvbm::capi::invalid("manager or out_share is NULL");
    if (!kvbm::capi::is_struct_size(out_share->struct_size))
      return kvbm::capi::invalid("out_share->struct_size is not set");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    const kvbm::manager::ShareState& state = manager->tenancy->share_state();
    kvbm_share_t out{};
    const ShareRole role = state.role.load(std::memory_order_acquire);
    out.role = static_cast<uint32_t>(role);
    if (role == ShareRole::client && !state.connected.load(std::memory_order_acquire)) out.role = KVBM_SHARE_NO_OWNER;
    out.owner_pid = state.owner_pid.load(std::memory_order_relaxed);
    out.clients = state.clients.load(std::memory_order_relaxed);
    out.takeovers = state.takeovers.load(std::memory_order_relaxed);
    out.owners_lost = state.owners_lost.load(std::memory_order_relaxed);
    out.silent_lookups = state.silent_lookups.load(std::memory_order_relaxed);
    return kvbm::capi::init_options(out_share, out_share->struct_size, out);
  });
}

}  // extern "C"
