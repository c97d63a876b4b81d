// Words that rise, in host memory that the device maps. The device writes them behind the leaves that they stand for,
// and streams of the engine wait for them there. For leaves that will never come the CPU raises them.
//
// A returned word is given out again and continues to rise from its value. A stream that still waits on it for its
// former owner passes, because its value was reached when the owner ended. The device compares by the sign of a 64-bit
// difference, so values far below 2^62 of rising owners never wrap in practice (2^62 values are centuries).
//
// The CPU never writes a word while batches that hold it are under way (pending): a late write of the device for a
// lower value could lower the word under a waiter. The exception is release_waiters(), for streams that may keep the
// driver itself from making progress. Their landmarks count as given up from then on, no stream waits for them any
// more, and every batch of theirs that ends later has failed.
// Lock: LandmarkPool::mutex_, a leaf. Thread: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread/mutex.h"
#include "device/context/device.h"
#include "device/memory/device_memory.h"
#include "device/transfer/transfers.h"

namespace kvbm::device {

class LandmarkPool;

class Landmark {
 public:
  ~Landmark();
  Landmark(const Landmark&) = delete;
  Landmark& operator=(const Landmark&) = delete;

 private:
  friend class LandmarkPool;
  Landmark(std::shared_ptr<LandmarkPool> pool, LandmarkKind kind) : pool_(std::move(pool)), kind_(kind) {}
  const std::shared_ptr<LandmarkPool> pool_;
  const LandmarkKind kind_;
  uint64_t* word_ = nullptr;
  CuPointer address_ = 0;  // of the word, for the device
  uint64_t base_ = 0;      // value of the word when the landmark was at 0
  // Guarded by pool_->mutex_.
  uint64_t promised_ = 0;  // the highest value that the device was given to write or the CPU has written
  uint64_t raised_ = 0;    // requested from the CPU
  uint64_t waited_ = 0;    // the highest value that a stream waits for
  uint32_t pending_ = 0;   // batches under way
  bool released_ = false;  // waiters were let past before its batches had ended
};

// A value that must be promised before a stream reaches a point, because the stream waits for it there.
struct LandmarkNeed {
  std::weak_ptr<Landmark> landmark;
  const Landmark* identity = nullptr;
  uint64_t value = 0;
  CuContext context = nullptr;  // of the stream that waits
  CuStream stream = nullptr;
  bool certain = true;  // false: another stream waits for it; only the driver knows if the point lies behind that wait
};

class LandmarkPool : public std::enable_shared_from_this<LandmarkPool> {
 public:
  explicit LandmarkPool(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~LandmarkPool();
  LandmarkPool(const LandmarkPool&) = delete;
  LandmarkPool& operator=(const LandmarkPool&) = delete;

  // Returns a landmark at 0, or null if there is no memory or the device is lost.
  std::shared_ptr<Landmark> take(LandmarkKind kind = LandmarkKind::on_device);
  // Makes words ahead of use, because registering their memory with the driver may wait for streams.
  bool grow() KVBM_EXCLUDES(mutex_);

  // Counts a batch that will raise the landmark, when it begins and ends; `last` is its last value. `by_cpu`: the
  // device did not write it and will not, and no batch of the landmark is on the device now.
  void begin(Landmark& landmark);
  void end(Landmark& landmark, uint64_t last, bool by_cpu);
  // Notes that the device was given all work that `value` stands for: a wait for it ends without the CPU.
  void promise(Landmark& landmark, uint64_t value);
  // Blocks until `value` was promised or raised, or waiters were released.
  void await_promise(const Landmark& landmark, uint64_t value) const;
  // Raises the word at once, or when the pending batches have ended.
  void raise(Landmark& landmark, uint64_t value);
  // Raises every word to the highest value that a stream may be waiting for.
  void release_waiters();
  [[nodiscard]] bool was_released(const Landmark& landmark) const;
  // Writes the values requested from the CPU once more, in case a late write of a lost device has lowered the word.
  void settle(Landmark& landmark);

  [[nodiscard]] static LandmarkKind kind(const Landmark& landmark) noexcept { return landmark.kind_; }
  // Address of the word on the device, and the number to write or wait for there for a value.
  [[nodiscard]] static CuPointer address(const Landmark& landmark) noexcept { return landmark.address_; }
  [[nodiscard]] static uint64_t number(const Landmark& landmark, uint64_t value) noexcept {
    return landmark.base_ + value;
  }
  // Returns whether the value was reached; true too if no stream shall wait for the landmark any more.
  [[nodiscard]] bool reached(const Landmark& landmark, uint64_t value) const noexcept;

  // Notes that a stream was, or will be, made to wait. The memory of all words then stays for ever, because the stream
  // may reach its wait after all objects of ours are gone. Returns false if the stream must not wait, as the landmark's
  // waiters were released.
  bool waits(const std::shared_ptr<Landmark>& landmark, uint64_t value, CuContext context, CuStream stream);
  // Returns the unpromised waits that a point taken of this stream now lies behind, or may lie behind: an event can put
  // any stream behind any other's wait.
  std::vector<LandmarkNeed> needs_of(CuContext context, CuStream stream);
  [[nodiscard]] bool met(const LandmarkNeed& need) const;

 private:
  friend class Landmark;
  static constexpr size_t kWords = 64;     // in one allocation
  static constexpr size_t kFewWords = 16;  // more are made when fewer are left
  static constexpr size_t kWordStep = 64;  // bytes: a line each; waiters of one do not slow writes of another
  struct FreeWord {
    uint64_t* word;
    CuPointer address;
  };
  void grow_soon() KVBM_REQUIRES(mutex_);
  void give_back(Landmark& landmark) noexcept;
  void write(Landmark& landmark, uint64_t value) KVBM_REQUIRES(mutex_);
  static void store(uint64_t* word, uint64_t value) noexcept;
  static uint64_t load(const uint64_t* word) noexcept;

  const std::shared_ptr<Device> device_;
  mutable Mutex mutex_;
  mutable std::condition_variable changed_;  // promised, raised or released
  std::vector<FreeWord> free_ KVBM_GUARDED_BY(mutex_);
  std::vector<Landmark*> out_ KVBM_GUARDED_BY(mutex_);  // landmarks in use
  std::vector<std::shared_ptr<PinnedMemory>> memory_ KVBM_GUARDED_BY(mutex_);
  std::vector<LandmarkNeed> waits_ KVBM_GUARDED_BY(mutex_);
  bool waited_ever_ KVBM_GUARDED_BY(mutex_) = false;
  bool growing_ KVBM_GUARDED_BY(mutex_) = false;  // on the device's thread
};

}  // namespace kvbm::device
