// Stands in for caches on GPUs in a build without them. No device is ever opened, so all tensors are host memory, and
// what acts on a device is never called.
#include "capi/absent/absent.h"
#include "device/coder/block_coder.h"
#include "device/context/device.h"
#include "device/storage/storage_reads.h"
#include "device/transfer/leaf_table.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/device/layer_waits.h"
#include "manager/host/host_tier.h"
#include "manager/operation/load.h"
#include "manager/operation/store.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::device {

Result<uint64_t> BlockCoder::encode(const codec::LeafForm&, codec::Mode, const codec::StridedBytes&, const StreamPoint*,
                                    MutableBytes, codec::Workspace&) {
  return capi::absent(capi::kNoDevice);
}
Status BlockCoder::decode(const codec::StreamView&, bool, const codec::StridedBytes&, const StreamPoint*,
                          codec::Workspace&) {
  return capi::absent(capi::kNoDevice);
}
Status Device::check_waits() const { return capi::absent(capi::kNoDevice); }
std::string Device::lost_why() const { return capi::kNoDevice; }
void LeafTable::add(const StridedRun&, const StridedRun&, uint32_t, uint32_t, uint32_t) {}
void LeafTable::finish() {}
StorageReads::Stats StorageReads::stats() const noexcept { return {}; }
Result<std::shared_ptr<StreamPoint>> Transfers::point(CuStream) { return capi::absent(capi::kNoDevice); }
std::shared_ptr<Landmark> Transfers::landmark(LandmarkKind) { return nullptr; }
Status Transfers::wait_on(const std::shared_ptr<Landmark>&, uint64_t, CuStream) {
  return capi::absent(capi::kNoDevice);
}
TransferStats Transfers::gathers() const { return {}; }
TransferStats Transfers::scatters() const { return {}; }

}  // namespace kvbm::device

namespace kvbm::manager {

device::Device& AttachedDevice::device() const noexcept { return transfers_->device(); }
uint64_t AttachedDevice::pinned_bytes() const noexcept { return 0; }

DeviceCaches::DeviceCaches(const Environment& environment, const DeviceOptions& options, MutableBytes payloads,
                           uint64_t slot_bytes, std::shared_ptr<void> memory)
    : env_(environment), options_(options), payloads_(payloads), slot_bytes_(slot_bytes), memory_(std::move(memory)) {}
DeviceCaches::~DeviceCaches() = default;
Status DeviceCaches::require() {
  return options_.use == DeviceOptions::Use::on ? capi::absent(capi::kNoDevice) : Status();
}
Result<std::shared_ptr<AttachedDevice>> DeviceCaches::place(MemoryKind kind, uint32_t, std::span<const TensorPlace>) {
  if (kind == MemoryKind::cuda) return capi::absent(capi::kNoDevice);
  return std::shared_ptr<AttachedDevice>();
}

LayerWaits::Place LayerWaits::place(std::shared_ptr<LayerMarks>) { return {}; }
void LayerWaits::add(uint64_t, Place) noexcept {}
std::shared_ptr<LayerMarks> LayerWaits::find(uint64_t) const { return nullptr; }

void LoadOperation::begin_flight() {}
void LoadOperation::take_back() {}
void LoadOperation::find_files() {}
bool LoadOperation::request_from_storage(std::vector<Item>&) { return false; }

void StoreOperation::begin_flight() {}
void StoreOperation::release_unpublished(std::span<const SlotId> slots) { host_.release(slots); }

}  // namespace kvbm::manager

extern "C" kvbm_status_t kvbm_manager_devices(kvbm_manager_t*, kvbm_device_row_t*, size_t, size_t* out_n) {
  if (out_n != nullptr) *out_n = 0;
  return kvbm::capi::absent(nullptr, kvbm::capi::kNoDevice);
}
