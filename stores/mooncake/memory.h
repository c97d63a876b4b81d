// Memory shared by this process and the helper, allocated in pieces.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "helper.h"

namespace kvbm_mooncake {

class SharedMemory {
 public:
  explicit SharedMemory(uint64_t bytes);  // throws std::bad_alloc
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();
  [[nodiscard]] int file() const { return file_.get(); }
  [[nodiscard]] uint8_t* at(uint64_t place) const { return base_ + place; }
  // Returns the first place with enough space. A linear search is enough, as there are few pieces.
  std::optional<uint64_t> take(uint64_t bytes);
  void give(uint64_t place) { taken_.erase(place); }

 private:
  const uint64_t bytes_;
  Fd file_;
  uint8_t* base_ = nullptr;
  std::map<uint64_t, uint64_t> taken_;  // place -> bytes
};

}  // namespace kvbm_mooncake
