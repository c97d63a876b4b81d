#include "manager/manager.h"
#include "manager/node/local_node.h"

#include <string>
#include <utility>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/join.h"
#include "capi/plugin/plugin_policy.h"
#include "capi/plugin/plugin_tier.h"
#include "capi/plugin/store.h"
#include "manager/node/node.h"
#include "manager/share/share.h"

using kvbm::Code;
using kvbm::Result;
using kvbm::Status;
using kvbm::capi::fail;
using kvbm::capi::guarded;
using kvbm::manager::Options;
using kvbm::manager::TierOptions;

namespace {

Result<TierOptions> to_tier(const kvbm_tier_t& in, const kvbm::manager::Environment& environment) {
  TierOptions out;
  for (const uint64_t reserved : in.reserved) {
    if (reserved != 0) return Status(Code::unsupported, "kvbm_tier_t.reserved must be zero");
  }
  if (in.reserved0 != 0) return Status(Code::unsupported, "kvbm_tier_t.reserved0 must be zero");
  if (in.codec_goal > 1) return Status(Code::bad_config, "codec_goal is 0 (speed) or 1 (space)");
  if (in.codec != nullptr) out.codec = in.codec;
  if (!kvbm::manager::is_tier_codec(out.codec)) {
    return Status(Code::bad_config, "a tier's codec is off, auto, fast, default, max or zstd", out.codec);
  }
  out.codec_for_space = in.codec_goal == 1;
  const bool is_store = in.url != nullptr || in.store != nullptr;
  if ((in.path != nullptr) + (in.table != nullptr) + (is_store ? 1 : 0) != 1) {
    return Status(Code::bad_config, "a tier has either a path (a disk), a url or a store, or a table (a plug-in)");
  }
  if (in.admission > KVBM_ADMIT_ON_REQUEST) return Status(Code::bad_config, "admission is not a KVBM_ADMIT_* value");
  if (in.admission_uses > 15) return Status(Code::bad_config, "admission_uses is 1 to 15");
  if (in.path != nullptr) out.path = in.path;
  if (in.url != nullptr) out.url = in.url;
  out.capacity_bytes = in.capacity_bytes;
  out.write_bytes_per_s = in.write_bytes_per_s;
  out.read_bytes_per_s = in.read_bytes_per_s;
  out.admission = static_cast<kvbm::manager::AdmissionKind>(in.admission);
  if (in.admission_uses != 0) out.admission_uses = in.admission_uses;
  if (in.store != nullptr) {
    auto made = kvbm::capi::store_tier(out.url, in.store, in.capacity_bytes, environment);
    if (!made.ok()) return made.status();
    out.make = std::move(made).value();
    if (out.url.empty()) out.url = "store:";  // marks it as a store, not a plug-in tier
  }
  if (in.table != nullptr) out.make = kvbm::capi::plugin_tier(*in.table, in.table_user, *environment.executor);
  return out;
}

Status apply(const kvbm_manager_options_t& given, const kvbm::manager::Environment& environment, Options& options) {
  if ((given.flags & ~KVBM_MANAGER_SHARE) != 0)
    return {Code::unsupported, "kvbm_manager_options_t.flags has unknown bits"};
  if ((given.flags & KVBM_MANAGER_SHARE) != 0) options.share.on = true;
  if (given.block_bytes != 0) options.host.block_bytes = given.block_bytes;
  if (given.host_capacity_bytes != 0) options.host.capacity_bytes = given.host_capacity_bytes;
  if (given.host_file != nullptr) options.host.file = given.host_file;
  if (given.policy != nullptr) options.policy = given.policy;
  if (given.policy_table != nullptr) {
    auto made = kvbm::capi::plugin_policy(*given.policy_table, given.policy_user);
    if (!made.ok()) return made.status();
    options.make_policy = std::move(made).value();
  }
  if (given.tiers == nullptr) return given.n_tiers == 0 ? Status{} : Status(Code::invalid_argument, "tiers is NULL");
  if (given.n_tiers > kvbm::manager::kMaxTiersBelow) {
    return {Code::bad_config, "too many tiers", "at most 6 below the host tier"};
  }
  options.tiers.clear();
  for (size_t i = 0; i < given.n_tiers; ++i) {
    auto tier = to_tier(given.tiers[i], environment);
    if (!tier.ok()) {
      return {tier.status().code(), "a tier cannot be used",
              "tier " + std::to_string(i + 1) + ": " + tier.status().message()};
    }
    options.tiers.push_back(std::move(tier).value());
  }
  return {};
}

// Turns the miss of a missing path component into an I/O error, because it is no miss of a block.
Status opening(const Status& status) {
  return status.code() == Code::miss ? Status(Code::io_error, status.what(), status.detail()) : status;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_manager_options_init(kvbm_manager_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_manager_options_t{});
}

kvbm_status_t kvbm_manager_create(kvbm_context_t* context, const kvbm_manager_options_t* options,
                                  kvbm_manager_t** out_manager, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (context == nullptr || out_manager == nullptr) {
      return fail(err, Code::invalid_argument, "context or out_manager is NULL");
    }
    const kvbm_status_t here = kvbm::capi::check_process(*context->core, err);
    if (here != KVBM_OK) return here;
    kvbm_manager_options_t given{};
    if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
    auto core = kvbm::manager::options_from(context->core->config);
    if (!core.ok()) return fail(err, core.status());
    const Status applied = apply(given, context->core->environment(), core.value());
    if (!applied.ok()) return fail(err, applied);
    const Status stores = kvbm::capi::make_stores(core.value().tiers, context->core->environment());
    if (!stores.ok()) return fail(err, opening(stores));
    if (const Status fits = kvbm::check_host_capacity(core.value().host.capacity_bytes, context->core->limits);
        !fits.ok()) {
      context->core->log.write(kvbm::LogLevel::warning, "manager", fits.message());
    }
    auto tenancy = std::make_shared<kvbm::capi::Tenancy>();  // allocated before anything that would need closing
    const Status joined = kvbm::capi::join(context->core->environment(), core.value(), *tenancy);
    if (!joined.ok()) return fail(err, opening(joined));
    auto manager = kvbm::manager::Manager::create(context->core->environment(), std::move(core).value());
    if (!manager.ok()) return fail(err, opening(manager.status()));
    tenancy->context = context->core;
    tenancy->manager = std::move(manager).value();
    kvbm::manager::Manager& core_manager = *tenancy->manager;
    if (tenancy->share != nullptr) {
      const Status shared =
          tenancy->share->start(core_manager.stack().keep(), core_manager.namespaces(), core_manager.share());
      if (!shared.ok()) return fail(err, shared);
    }
    if (tenancy->node != nullptr) {
      const Status started =
          tenancy->node->start(core_manager.stack().keep(), core_manager.namespaces(), core_manager.coding_terms());
      if (!started.ok()) return fail(err, started);
    }
    *out_manager = new kvbm_manager{std::move(tenancy)};
    return kvbm::capi::done(err);
  });
}

void kvbm_manager_release(kvbm_manager_t* manager) {
  if (manager != nullptr) kvbm::capi::drop(manager, *manager->tenancy->context);
}

kvbm_status_t kvbm_manager_reset(kvbm_manager_t* manager, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (manager == nullptr) return fail(err, Code::invalid_argument, "manager is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, manager->tenancy->stack().erase_all());
  });
}

static kvbm_status_t flush_to(kvbm_manager_t* manager, bool durable, uint64_t timeout_ns) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr) return kvbm::capi::invalid("manager is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    return kvbm::capi::flush_and_wait(*manager->tenancy, durable, timeout_ns);
  });
}

kvbm_status_t kvbm_manager_flush(kvbm_manager_t* manager, uint64_t timeout_ns) {
  return flush_to(manager, false, timeout_ns);
}

kvbm_status_t kvbm_manager_flush_durable(kvbm_manager_t* manager, uint64_t timeout_ns) {
  return flush_to(manager, true, timeout_ns);
}

}  // extern "C"
