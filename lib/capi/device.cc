// Devices of attached caches.
#include "manager/device/device_caches.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "capi/guard.h"
#include "capi/handles.h"
#include "device/context/device.h"
#include "device/transfer/transfers.h"

using kvbm::capi::guarded;

namespace {

static_assert(sizeof(kvbm_device_moves_t) == 80 && sizeof(kvbm_device_row_t) == 480);

template <size_t N>
void put_text(char (&to)[N], const std::string& text) noexcept {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));  // the caller has zeroed `to`
}

kvbm_device_moves_t to_moves(const kvbm::device::TransferStats& s) noexcept {
  kvbm_device_moves_t out{};
  out.batches = s.batches;
  out.leaves = s.leaves;
  out.bytes = s.bytes;
  out.bad_leaves = s.bad_leaves;
  out.mapped_leaves = s.mapped_leaves;
  out.staged_leaves = s.staged_leaves;
  out.straight_leaves = s.straight_leaves;
  out.bounced_leaves = s.bounced_leaves;
  out.device_ns = s.device_ns;
  return out;
}

kvbm_device_row_t to_row(kvbm::manager::AttachedDevice& device) {
  const kvbm::device::DeviceFacts& facts = device.device().facts();
  kvbm_device_row_t row{};
  row.ordinal = static_cast<uint32_t>(facts.ordinal);
  row.lost = device.device().is_lost() ? 1 : 0;
  put_text(row.name, facts.name);
  put_text(row.pci, facts.pci);
  put_text(row.state, device.state());
  row.memory_bytes = facts.memory_bytes;
  row.pinned_bytes = device.pinned_bytes();
  row.gathers = to_moves(device.transfers().gathers());
  row.scatters = to_moves(device.transfers().scatters());
  return row;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_manager_devices(kvbm_manager_t* manager, kvbm_device_row_t* out_rows, size_t capacity,
                                   size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (manager == nullptr || out_n == nullptr) return kvbm::capi::invalid("manager or out_n is NULL");
    if (out_rows == nullptr && capacity != 0) return kvbm::capi::invalid("out_rows is NULL");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    const auto& devices = manager->tenancy->devices().opened();
    for (size_t i = 0; i < devices.size() && i < capacity; ++i) out_rows[i] = to_row(*devices[i]);
    *out_n = devices.size();
    return KVBM_OK;
  });
}

}  // extern "C"
