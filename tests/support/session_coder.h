// Coding of slices for session tests. The codec's own work is done at once, and reported later on the session's thread
// in any order, like an executor. Until then the coder owns the slot, and its contents must not be read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/crypto/random.h"
#include "cluster/session/coded_slice.h"
#include "support/sim_executor.h"

namespace kvbm::test {

class SimCoder final : public cluster::session::SliceCoder {
 public:
  explicit SimCoder(SimExecutor& sim) : sim_(sim) {}
  ~SimCoder() override { *gone_ = true; }

  std::shared_ptr<const codec::KeyRing> keys;  // set: everything is sealed
  double asks_coded = 0.7;                     // of pulls, where they may
  uint64_t delay_ns = 300'000;
  std::function<bool()> stopped;  // its process runs nothing now

  [[nodiscard]] bool seals() const override { return keys != nullptr; }
  Asked ask(cluster::session::PeerId peer, uint64_t bytes, bool again) override;
  bool take_plain(cluster::session::PeerId peer) override;
  void decode(cluster::session::PeerId peer, const cluster::session::SliceInSlot& slice, uint64_t bytes,
              Done done) override;
  void ended(const Asked& asked, Came how) override;
  [[nodiscard]] Plan plan(const cluster::wire::Coding& coding) const override;
  void gave_plain() override { ++given_plain_; }
  void encode(const cluster::session::SliceInSlot& slice, const cluster::wire::Coding& coding, Done done) override;

  [[nodiscard]] uint64_t coded() const { return coded_; }
  [[nodiscard]] uint64_t decoded() const { return decoded_; }
  [[nodiscard]] uint64_t refused() const { return refused_; }
  [[nodiscard]] uint64_t under_way() const { return under_way_; }
  // Slices that were asked for and have not ended yet.
  [[nodiscard]] uint64_t asked() const { return asked_; }

 private:
  void tell(uint64_t at_ns, const Status& status, uint64_t bytes, std::shared_ptr<Done> done);

  SimExecutor& sim_;
  codec::Workspace workspace_;
  uint64_t coded_ = 0, decoded_ = 0, refused_ = 0, given_plain_ = 0, under_way_ = 0, asked_ = 0;
  std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);
};

}  // namespace kvbm::test
