// The mover of a device: leaves travel in batches, and coded ones that the device can decode travel coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "manager/device/device_flight.h"
#include "manager/operation/leaf_mover.h"

namespace kvbm::codec {
class Workspace;
}

namespace kvbm::manager {

class DeviceMover final : public LeafMover {
 public:
  // Arguments as of DeviceFlight.
  DeviceMover(device::Transfers& transfers, DeviceFlight::Way way, std::shared_ptr<device::StreamPoint> after,
              std::shared_ptr<void> keep, std::shared_ptr<device::Landmark> landmark = nullptr);
  ~DeviceMover() override;

  Added add(size_t number, const LeafRecord& record, const LeafPlace& place) override;
  // Nothing reads pages of a lost device any more.
  void overwrite(const StridedRun& run) override {
    if (!is_lost()) flight_.poison(run);
  }
  [[nodiscard]] bool full() const noexcept override { return flight_.full(); }
  [[nodiscard]] bool is_lost() const noexcept override;
  [[nodiscard]] bool can_send() const noexcept override { return flight_.can_send(); }
  [[nodiscard]] bool empty() const noexcept override { return flight_.empty(); }
  void send(UniqueFunction<void()> ended) override { flight_.send(std::move(ended)); }
  [[nodiscard]] size_t away() const noexcept override { return flight_.away(); }
  bool take(Moved& out) override;
  // Notes for streams that everything added so far is in place or overwritten when the landmark has that value.
  void mark(uint64_t value) { flight_.mark(value); }

 private:
  Added add_many(size_t number, const LeafRecord& record, const LeafPlace& place);
  Added add_one(size_t number, const LeafRecord& record, const LeafPlace& place);
  [[nodiscard]] Code name_coded(const LeafRecord& record, uint32_t leaf, device::LeafMove& move,
                                std::shared_ptr<void>& own);

  device::Transfers& transfers_;
  DeviceFlight flight_;
  std::unique_ptr<codec::Workspace> coder_;  // null until the processor must decode a leaf of a coded record
  // Batch that take() reads answers from.
  std::unique_ptr<DeviceFlight::Trip> trip_;
  size_t run_ = 0;
  size_t at_ = 0;  // leaves of the runs before
};

}  // namespace kvbm::manager
