#include "manager/operation/match.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/namespaces/namespace.h"
#include "manager/operation/cache.h"
#include "manager/operation/load_cost.h"
#include "manager/operation/lookup.h"
#include "manager/stack/tier_stack.h"

using kvbm::capi::guarded;
using kvbm::capi::invalid;
using kvbm::capi::refuse;
using kvbm::capi::to_c;
using kvbm::manager::PartPlan;

namespace {

// Reads a call's options. Returns KVBM_ERR_UNSUPPORTED or KVBM_ERR_INVALID for options that cannot be followed.
kvbm_status_t take_request(const kvbm_lookup_options_t* options, kvbm_lookup_options_t& given,
                           kvbm::manager::LookupRequest& request) {
  if (!kvbm::capi::take_options(options, given)) return refuse(kvbm::Code::unsupported, kvbm::capi::kUnknownOptions);
  if (given.mode > KVBM_LOOKUP_ANY) return invalid("options.mode is not a KVBM_LOOKUP_* value");
  if (given.n_parts > 32 || (given.parts == nullptr && given.n_parts != 0))
    return invalid("options.parts is NULL, or has more than 32 parts");
  if ((given.unit_keys == nullptr && given.n_unit_keys != 0) || kvbm::capi::too_many(given.n_unit_keys)) {
    return invalid("options.unit_keys is NULL, or has more than 2^28 keys");
  }
  if (given.n_unit_keys != 0 && given.mode != KVBM_LOOKUP_PREFIX)
    return invalid("options.unit_keys needs the mode KVBM_LOOKUP_PREFIX");
  request.mode = static_cast<kvbm::manager::LookupMode>(given.mode);
  request.host_only = given.host_only != 0;
  request.no_use = given.no_use != 0;
  request.unit_keys = {reinterpret_cast<const kvbm::Key*>(given.unit_keys), given.n_unit_keys};
  return KVBM_OK;
}

kvbm_status_t refuse_range(size_t first, size_t n, size_t keys) {
  return kvbm::capi::fail(nullptr,
                          {kvbm::Code::invalid_argument, "the match does not have as many keys",
                           std::to_string(n) + " from " + std::to_string(first) + " on of " + std::to_string(keys)});
}

// Runs a lookup and wraps its match. `parts` is not empty.
kvbm_status_t look_up(const std::shared_ptr<kvbm::capi::Tenancy>& tenancy,
                      const std::shared_ptr<kvbm::manager::Namespace>& ns, std::span<const PartPlan> parts,
                      const kvbm_key_t* keys, size_t n_keys, uint64_t ask_nodes_ns,
                      kvbm::manager::LookupRequest& request, kvbm_match_t** out_match, size_t* out_n) {
  const std::span<const kvbm::Key> asked(reinterpret_cast<const kvbm::Key*>(keys), n_keys);
  if (!request.host_only) kvbm::capi::ask_owner_and_wait(*tenancy, parts, asked);
  if (ask_nodes_ns != 0 && !request.host_only) {
    kvbm::capi::ask_nodes_and_wait(*tenancy, kvbm::capi::nowhere_here(tenancy->stack().lower(), parts, asked),
                                   ask_nodes_ns);
  }
  if (!request.host_only) kvbm::capi::ask_for_other_sizes(*tenancy, *ns, parts, asked, ask_nodes_ns);
  request.units = ns->options().geometry != nullptr ? ns->options().geometry->units() : 1;
  auto match = kvbm::manager::look_up(tenancy->stack().keep(), ns, parts, asked, request);
  *out_n = match != nullptr ? match->hits() : 0;
  *out_match = match != nullptr ? new kvbm_match{tenancy, std::move(match)} : nullptr;
  return KVBM_OK;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_lookup_options_init(kvbm_lookup_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_lookup_options_t{});
}

kvbm_status_t kvbm_manager_lookup(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_key_t* keys, size_t n_keys,
                                  const kvbm_lookup_options_t* options, kvbm_match_t** out_match, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (out_match != nullptr) *out_match = nullptr;
    if (manager == nullptr || ns == nullptr || out_match == nullptr || out_n == nullptr) {
      return invalid("manager, ns, out_match or out_n is NULL");
    }
    if (ns->tenancy != manager->tenancy)
      return refuse(kvbm::Code::foreign_handle, "the namespace belongs to another manager");
    kvbm_lookup_options_t given{};
    kvbm::manager::LookupRequest request;
    const kvbm_status_t taken = take_request(options, given, request);
    if (taken != KVBM_OK) return taken;
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    if (n_keys == 0 && given.n_unit_keys == 0) return KVBM_OK;
    if ((keys == nullptr && n_keys != 0) || kvbm::capi::too_many(n_keys))
      return invalid("keys is NULL, or has more than 2^28 keys");
    std::vector<PartPlan> parts;
    for (size_t i = 0; i < (given.n_parts == 0 ? 1 : given.n_parts); ++i) {
      auto plan = ns->ns->plan(kvbm::capi::to_part(given.n_parts == 0 ? nullptr : &given.parts[i]));
      if (!plan.ok()) return kvbm::capi::fail(nullptr, plan.status());
      parts.push_back(std::move(plan).value());
    }
    return look_up(manager->tenancy, ns->ns, parts, keys, n_keys, given.ask_nodes_ns, request, out_match, out_n);
  });
}

kvbm_status_t kvbm_cache_lookup(kvbm_cache_t* cache, const kvbm_key_t* keys, size_t n_keys,
                                const kvbm_lookup_options_t* options, kvbm_match_t** out_match, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (out_match != nullptr) *out_match = nullptr;
    if (cache == nullptr || out_match == nullptr || out_n == nullptr)
      return invalid("cache, out_match or out_n is NULL");
    kvbm_lookup_options_t given{};
    kvbm::manager::LookupRequest request;
    const kvbm_status_t taken = take_request(options, given, request);
    if (taken != KVBM_OK) return taken;
    if (given.n_parts != 0) return invalid("options.parts must be NULL: a cache looks for its own parts");
    const kvbm_status_t here = kvbm::capi::check_process(*cache->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    if (n_keys == 0 && given.n_unit_keys == 0) return KVBM_OK;
    if ((keys == nullptr && n_keys != 0) || kvbm::capi::too_many(n_keys))
      return invalid("keys is NULL, or has more than 2^28 keys");
    const auto plans = cache->cache->plans();
    if (!plans.ok()) return kvbm::capi::fail(nullptr, plans.status());
    return look_up(cache->tenancy, cache->cache->ns(), plans.value(), keys, n_keys, given.ask_nodes_ns, request,
                   out_match, out_n);
  });
}

size_t kvbm_match_count(const kvbm_match_t* match) { return match != nullptr ? match->match->keys().size() : 0; }

size_t kvbm_match_units(const kvbm_match_t* match) {
  if (match == nullptr) return 0;
  const auto& geometry = match->match->ns()->options().geometry;
  return match->match->hits() * (geometry != nullptr ? geometry->units() : 1) + match->match->partial_units();
}

kvbm_status_t kvbm_match_items(const kvbm_match_t* match, size_t first, size_t n, kvbm_match_item_t* out_items) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (match == nullptr || (out_items == nullptr && n != 0)) return invalid("match or out_items is NULL");
    if (kvbm::capi::forked(*match->tenancy)) return KVBM_ERR_FORKED;
    const auto& found = *match->match;
    if (first > found.keys().size() || n > found.keys().size() - first)
      return refuse_range(first, n, found.keys().size());
    for (size_t i = 0; i < n; ++i) {
      kvbm_match_item_t item{};
      for (size_t p = 0; p < found.parts().size(); ++p) {
        const kvbm::TierIndex tier = found.tier_of(p, first + i);
        if (tier == kvbm::kNoTier) continue;
        const auto& part = found.parts()[p];
        // A slot that the match holds keeps the bytes that were completed in it.
        const uint64_t bytes = tier != 0 ? part.found[first + i].payload_bytes
                                         : found.stack().host().table().payload_bytes(part.slots[first + i]);
        item.parts_needed |= 1U << p;
        item.bytes += bytes;
        const kvbm::TierIndex from = found.source_of(p, first + i);
        if (from != 0) item.below_bytes += bytes;
        if (from > item.tier) item.tier = from;
      }
      if (item.parts_needed == 0) item.tier = KVBM_NO_TIER;
      out_items[i] = item;
    }
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_match_blocks(kvbm_match_t* match, uint32_t part, size_t first, size_t n, kvbm_block_t* out_blocks) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (match == nullptr || (out_blocks == nullptr && n != 0)) return invalid("match or out_blocks is NULL");
    if (kvbm::capi::forked(*match->tenancy)) return KVBM_ERR_FORKED;
    const auto& found = *match->match;
    if (part >= found.parts().size()) return invalid("the match has not so many parts");
    if (first > found.keys().size() || n > found.keys().size() - first)
      return refuse_range(first, n, found.keys().size());
    kvbm::manager::HostTier& host = found.stack().host();
    std::vector<kvbm::SlotId> slots;
    for (size_t i = 0; i < n; ++i) {
      const kvbm::SlotId slot =
          found.tier_of(part, first + i) == 0 ? found.parts()[part].slots[first + i] : kvbm::kNoSlot;
      const bool given = slot != kvbm::kNoSlot && host.trust(slot);
      if (given) slots.push_back(slot);
      out_blocks[i] = given ? 1 : 0;  // marks the block; replaced by its hold below
    }
    std::vector<kvbm::block::HoldValue> holds(slots.size());
    kvbm::Code code = kvbm::Code::at_limit;  // a block has the most references
    if (host.table().try_retain(slots)) {
      code = host.holds().create(kvbm::block::HoldKind::reading, slots, {}, holds);
      if (code != kvbm::Code::ok) host.release(slots);
    }
    if (code != kvbm::Code::ok) {
      std::fill_n(out_blocks, n, 0);
      return to_c(code);
    }
    for (size_t i = 0, next = 0; i < n; ++i) {
      if (out_blocks[i] != 0) out_blocks[i] = holds[next++];
    }
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_match_cost(const kvbm_match_t* match, size_t first, size_t n, uint64_t* out_load_ns) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (match == nullptr || (out_load_ns == nullptr && n != 0)) return invalid("match or out_load_ns is NULL");
    if (kvbm::capi::forked(*match->tenancy)) return KVBM_ERR_FORKED;
    const size_t keys = match->match->keys().size();
    if (first > keys || n > keys - first) return refuse_range(first, n, keys);
    kvbm::manager::predict_load(*match->match, first, {out_load_ns, n});
    return KVBM_OK;
  });
}

void kvbm_match_release(kvbm_match_t* match) {
  if (match != nullptr) kvbm::capi::drop(match, *match->tenancy->context);
}

}  // extern "C"
