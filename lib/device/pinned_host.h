// Host memory made known to the device: registered in pieces, by several threads, and looked up by address.
//
// Thread: any. Blocks: registering does, about a second for 10 GB a thread (the kernel pins page by page).
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "device/device.h"

namespace kvbm::device {

class PinnedHost {
 public:
  // Registers [memory]; read_only for memory that this process may not write (a mapping of another process's pool).
  // not_permitted, no_memory: what is left goes through staging. Releases everything it did when it fails.
  static Result<std::unique_ptr<PinnedHost>> pin(std::shared_ptr<Device> device, MutableBytes memory, bool read_only,
                                                 uint32_t threads);
  ~PinnedHost();
  PinnedHost(const PinnedHost&) = delete;
  PinnedHost& operator=(const PinnedHost&) = delete;
  // The device's address of host memory, or 0 where [host, host + bytes) is not inside.
  [[nodiscard]] CuPointer device_pointer(const void* host, uint64_t bytes) const noexcept;
  [[nodiscard]] uint64_t bytes() const noexcept;

 private:
  PinnedHost() = default;
  struct Piece;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Piece[]> pieces_;
  size_t n_pieces_ = 0;
  MutableBytes memory_;
};

}  // namespace kvbm::device
