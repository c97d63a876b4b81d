#include "block/held.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/host/host_record.h"
#include "manager/namespaces/namespace.h"
#include "manager/stack/managed.h"
#include "manager/stack/tier_stack.h"

using kvbm::Code;
using kvbm::Key;
using kvbm::SlotId;
using kvbm::block::Hold;
using kvbm::block::HoldKind;
using kvbm::block::HoldValue;
using kvbm::capi::guarded;
using kvbm::capi::invalid;
using kvbm::capi::refuse;
using kvbm::capi::to_c;
using kvbm::manager::HostTier;
using kvbm::manager::TierStack;

static_assert(sizeof(kvbm_block_t) == sizeof(HoldValue));
static_assert(sizeof(kvbm_position_t) == sizeof(kvbm::codec::Position));

namespace {

constexpr const char* kOtherManager = "the namespace belongs to another manager";
constexpr const char* kRepeated = "a block is in the batch twice";
constexpr const char* kNoBatch = "the manager or an array of the batch is NULL, or it has more than 2^28 blocks";

// Array with one value per block of a call, initially undefined; small batches need no heap.
template <class T>
class PerBlock {
 public:
  explicit PerBlock(size_t n) {
    if (n > kInline) heap_.resize(n);
    span_ = {n > kInline ? heap_.data() : inline_, n};
  }
  PerBlock(const PerBlock&) = delete;
  PerBlock& operator=(const PerBlock&) = delete;
  T& operator[](size_t i) { return span_[i]; }
  operator std::span<T>() { return span_; }              // NOLINT(google-explicit-constructor): it is one
  operator std::span<const T>() const { return span_; }  // NOLINT(google-explicit-constructor)

 private:
  static constexpr size_t kInline = 128;
  T inline_[kInline];
  std::vector<T> heap_;
  std::span<T> span_;
};
using Slots = PerBlock<SlotId>;

kvbm_status_t make_holds(HostTier& host, HoldKind kind, std::span<const SlotId> slots,
                         std::span<const uint32_t> generations, kvbm_block_t* out) {
  const Code code = host.holds().create(kind, slots, generations, {out, slots.size()});
  if (code != Code::ok && kind != HoldKind::weak) host.release(slots);
  return to_c(code);
}

// Settles holds after a publication: a duplicate's hold now names the resident block, a refused block is writable
// again.
void settle(HostTier& host, std::span<const HoldValue> values, std::span<const SlotId> slots,
            std::span<const Code> codes) {
  const auto listed = [&](size_t i) { return codes[i] == Code::ok || codes[i] == Code::exists; };
  for (size_t begin = 0; begin < values.size();) {
    size_t end = begin + 1;
    while (end < values.size() && listed(end) == listed(begin)) ++end;
    host.holds().settle(values.subspan(begin, end - begin), listed(begin) ? HoldKind::reading : HoldKind::writable,
                        slots.subspan(begin, end - begin));
    begin = end;
  }
}

// Returns true if the arrays are not null and have no more elements than a call may have.
template <class... Array>
bool is_batch(const kvbm_block_t* blocks, size_t n, Array... others) {
  return n == 0 || (blocks != nullptr && (... && (others != nullptr)) && !kvbm::capi::too_many(n));
}

// Returns true if a batch has two holds on one block, which would be completed or registered twice.
bool repeats(const kvbm_block_t* blocks, size_t n) {
  for (size_t i = 1; i < n; ++i) {
    if (blocks[i] > blocks[i - 1]) continue;  // the usual case: fresh holds ascend
    std::vector<kvbm_block_t> sorted(blocks, blocks + n);
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  }
  return false;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_manager_allocate(kvbm_manager_t* manager, kvbm_namespace_t* ns, size_t n_blocks,
                                    kvbm_block_t* out_blocks, kvbm_key_t* out_evicted, size_t evicted_capacity,
                                    size_t* out_n_evicted) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n_evicted != nullptr) *out_n_evicted = 0;
    if (manager == nullptr || ns == nullptr || (out_evicted == nullptr && evicted_capacity != 0)) {
      return invalid("manager, ns or out_evicted is NULL");
    }
    if (ns->tenancy != manager->tenancy) return refuse(Code::foreign_handle, kOtherManager);
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    if (n_blocks == 0) return KVBM_OK;
    if (out_blocks == nullptr) return invalid("out_blocks is NULL");
    TierStack& stack = manager->tenancy->stack();
    HostTier& host = stack.host();
    if (n_blocks > host.table().slots()) {
      return kvbm::capi::fail(nullptr, {Code::no_room, "the host tier has fewer blocks",
                                        std::to_string(n_blocks) + " of " + std::to_string(host.table().slots()) +
                                            "; raise host.capacity"});
    }
    Slots slots(n_blocks);
    std::vector<kvbm::block::Evicted> evicted;
    const bool report = out_evicted != nullptr || out_n_evicted != nullptr;
    const Code code = stack.allocate(ns->ns->account(), slots, report ? &evicted : nullptr);
    for (size_t i = 0; i < std::min(evicted.size(), evicted_capacity); ++i) {
      std::memcpy(out_evicted[i].bytes, evicted[i].identity.key.bytes.data(), sizeof(kvbm_key_t));
    }
    if (out_n_evicted != nullptr) *out_n_evicted = evicted.size();
    if (code != Code::ok) return to_c(code);
    for (size_t i = 0; i < n_blocks; ++i) {  // before the caller may write there
      host.arena().clear_head(slots[i]);
      kvbm::manager::note_parent(host, slots[i], {});
    }
    return make_holds(host, HoldKind::writable, slots, {}, out_blocks);
  });
}

kvbm_status_t kvbm_manager_complete(kvbm_manager_t* manager, const kvbm_block_t* blocks, size_t n_blocks,
                                    const uint64_t* bytes) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || !is_batch(blocks, n_blocks)) return invalid(kNoBatch);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    HostTier& host = manager->tenancy->stack().host();
    if (repeats(blocks, n_blocks)) return invalid(kRepeated);
    const uint64_t limit = host.arena().block_bytes();
    for (size_t i = 0; i < n_blocks && bytes != nullptr; ++i) {
      if (bytes[i] == 0 || bytes[i] > limit) {
        return kvbm::capi::fail(nullptr, {Code::invalid_argument, "a length is none of a block",
                                          "bytes[" + std::to_string(i) + "] is " + std::to_string(bytes[i]) +
                                              ", a block has 1 to " + std::to_string(limit)});
      }
    }
    Slots slots(n_blocks);
    return to_c(kvbm::block::complete_held(host.holds(), host.table(), {blocks, n_blocks}, slots,
                                           {bytes, bytes != nullptr ? n_blocks : 0}, limit));
  });
}

kvbm_status_t kvbm_register_options_init(kvbm_register_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_register_options_t{});
}

kvbm_status_t kvbm_manager_register(kvbm_manager_t* manager, kvbm_namespace_t* ns, kvbm_block_t* inout_blocks,
                                    const kvbm_key_t* keys, size_t n_blocks, const kvbm_register_options_t* options) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || ns == nullptr) return invalid("manager or ns is NULL");
    if (ns->tenancy != manager->tenancy) return refuse(Code::foreign_handle, kOtherManager);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    kvbm_register_options_t given{};
    if (!kvbm::capi::take_options(options, given)) return refuse(Code::unsupported, kvbm::capi::kUnknownOptions);
    if (given.duplicates > KVBM_DUPLICATE_KEEP) return invalid("options.duplicates is not a KVBM_DUPLICATE_* value");
    if (given.priority > KVBM_PRIORITY_KEEP) return invalid("options.priority is not a KVBM_PRIORITY_* value");
    if (n_blocks == 0) return KVBM_OK;
    if (!is_batch(inout_blocks, n_blocks, keys)) return invalid(kNoBatch);
    TierStack& stack = manager->tenancy->stack();
    HostTier& host = stack.host();
    if (repeats(inout_blocks, n_blocks)) return invalid(kRepeated);
    kvbm::manager::ManagedBlocks what;
    if (given.part == nullptr) {
      const auto family = ns->ns->default_family();
      if (!family.ok()) return to_c(family.status().code());
      what.family = family.value();
    } else {
      const auto plan = ns->ns->plan(kvbm::capi::to_part(given.part));
      if (!plan.ok()) return kvbm::capi::fail(nullptr, plan.status());
      what.family = plan.value().family;
    }
    what.keys = {reinterpret_cast<const Key*>(keys), n_blocks};
    host.trust_present(what.family, what.keys);  // the caller may get the resident block in place of its own
    what.parent = reinterpret_cast<const Key*>(given.parent);
    what.chained = given.unchained == 0;
    what.duplicates =
        given.duplicates == KVBM_DUPLICATE_KEEP ? kvbm::block::DuplicateMode::keep : kvbm::block::DuplicateMode::reject;
    what.priority = static_cast<uint8_t>(given.priority);
    what.takes_lossy = ns->ns->options().allow_lossy;
    const auto* positions = reinterpret_cast<const kvbm::codec::Position*>(given.positions);
    if (positions != nullptr) what.positions = {positions, n_blocks};
    Slots slots(n_blocks);
    PerBlock<Code> codes(n_blocks);
    // The old holds end first: of two callers that register one block, one must find its hold stale. No hold names
    // the blocks until they are settled.
    const Code taken = kvbm::block::take_held(host.holds(), host.table(), {inout_blocks, n_blocks}, slots);
    if (taken != Code::ok) return to_c(taken);
    const Code all = kvbm::manager::publish_managed(stack, what, slots, codes);
    if (given.item_status != nullptr) {
      for (size_t i = 0; i < n_blocks; ++i) given.item_status[i] = to_c(codes[i]);
    }
    settle(host, {inout_blocks, n_blocks}, slots, codes);
    return to_c(all);
  });
}

kvbm_status_t kvbm_block_view(kvbm_manager_t* manager, const kvbm_block_t* blocks, size_t n_blocks,
                              kvbm_view_t* out_views) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || !is_batch(blocks, n_blocks, out_views)) return invalid(kNoBatch);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    HostTier& host = manager->tenancy->stack().host();
    for (size_t i = 0; i < n_blocks; ++i) {
      kvbm::block::Seen seen;
      const Code code = kvbm::block::look_at(host.holds(), host.table(), blocks[i], &seen);
      if (code != Code::ok) return to_c(code);
      out_views[i].data = host.arena().payload(seen.slot).data();
      out_views[i].bytes = seen.partial ? host.arena().block_bytes() : seen.payload_bytes;
      out_views[i].slot = seen.slot;
    }
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_block_clone(kvbm_manager_t* manager, const kvbm_block_t* blocks, size_t n_blocks,
                               kvbm_block_t* out_blocks) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || !is_batch(blocks, n_blocks, out_blocks)) return invalid(kNoBatch);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    HostTier& host = manager->tenancy->stack().host();
    Slots slots(n_blocks);
    const Code code = kvbm::block::retain_held(host.holds(), host.table(), {blocks, n_blocks}, slots);
    if (code != Code::ok) return to_c(code);
    return make_holds(host, HoldKind::reading, slots, {}, out_blocks);
  });
}

kvbm_status_t kvbm_block_release(kvbm_manager_t* manager, const kvbm_block_t* blocks, size_t n_blocks) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || !is_batch(blocks, n_blocks)) return invalid(kNoBatch);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    HostTier& host = manager->tenancy->stack().host();
    constexpr size_t kPage = 128;
    Code first = Code::ok;
    for (size_t at = 0; at < n_blocks; at += kPage) {
      const size_t n = std::min(kPage, n_blocks - at);
      Hold holds[kPage];
      Code codes[kPage];
      SlotId slots[kPage];
      host.holds().end({blocks + at, n}, {holds, n}, {codes, n});
      size_t ended = 0;
      for (size_t i = 0; i < n; ++i) {
        if (codes[i] != Code::ok && first == Code::ok) first = codes[i];
        if (codes[i] == Code::ok && holds[i].kind != HoldKind::weak) slots[ended++] = holds[i].slot;
      }
      host.release({slots, ended});
    }
    return to_c(first);
  });
}

kvbm_status_t kvbm_block_downgrade(kvbm_manager_t* manager, const kvbm_block_t* blocks, size_t n_blocks,
                                   kvbm_block_t* out_weak) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || !is_batch(blocks, n_blocks, out_weak)) return invalid(kNoBatch);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    HostTier& host = manager->tenancy->stack().host();
    Slots slots(n_blocks);
    PerBlock<uint32_t> generations(n_blocks);
    const Code code = kvbm::block::name_held(host.holds(), host.table(), {blocks, n_blocks}, slots, generations);
    if (code != Code::ok) return to_c(code);
    return make_holds(host, HoldKind::weak, slots, generations, out_weak);
  });
}

kvbm_status_t kvbm_block_upgrade(kvbm_manager_t* manager, const kvbm_block_t* weak, size_t n_blocks,
                                 kvbm_block_t* out_blocks) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || !is_batch(weak, n_blocks, out_blocks)) return invalid(kNoBatch);
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    HostTier& host = manager->tenancy->stack().host();
    std::vector<Hold> holds(n_blocks);
    for (size_t i = 0; i < n_blocks; ++i) {
      const Code code = host.holds().resolve(weak[i], &holds[i]);
      if (code != Code::ok) return to_c(code);
      if (holds[i].kind != HoldKind::weak) return KVBM_ERR_STATE;
    }
    for (size_t i = 0; i < n_blocks; ++i) {
      out_blocks[i] = 0;
      if (!host.table().acquire_weak(holds[i].slot, holds[i].slot_generation)) continue;
      const kvbm_status_t made = make_holds(host, HoldKind::reading, {&holds[i].slot, 1}, {}, &out_blocks[i]);
      if (made != KVBM_OK) {
        kvbm_block_release(manager, out_blocks, i);
        return made;
      }
    }
    return KVBM_OK;
  });
}

}  // extern "C"
