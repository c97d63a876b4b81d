#include "device/transfer/landmark.h"

#include <algorithm>
#include <atomic>

#include "base/thread/memory_wait.h"
#include "device/driver/retained.h"

namespace kvbm::device {

namespace {

// Returns true for the legacy stream (also as 0) and the per-thread one: their handles do not tell their order with
// others.
bool is_special(CuStream stream) noexcept { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

Landmark::~Landmark() { pool_->give_back(*this); }

// Release: a reader of the value also sees what the CPU did before. Partners: load(), and the device's wait.
void LandmarkPool::store(uint64_t* word, uint64_t value) noexcept {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

uint64_t LandmarkPool::load(const uint64_t* word) noexcept {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}

LandmarkPool::~LandmarkPool() {
  MutexLock lock(mutex_);
  if (!waited_ever_) return;
  const MemoryWait patient;
  for (std::shared_ptr<PinnedMemory>& memory : memory_) retain_until_exit(std::move(memory));
}

bool LandmarkPool::grow() {
  auto memory = PinnedMemory::allocate(device_, kWords * kWordStep);
  if (!memory.ok()) return false;
  MutexLock lock(mutex_);
  // Reserve now, so that returning words needs no memory.
  free_.reserve((memory_.size() + 1) * kWords);
  out_.reserve((memory_.size() + 1) * kWords);
  memory_.emplace_back(std::move(memory).value());
  for (size_t i = 0; i < kWords; ++i) {
    const size_t at = i * kWordStep;
    free_.push_back({reinterpret_cast<uint64_t*>(memory_.back()->data() + at), memory_.back()->device_pointer() + at});
  }
  return true;
}

void LandmarkPool::grow_soon() {
  const MemoryWait patient;
  growing_ = true;
  device_->thread()->post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    (void)self->grow();
    MutexLock lock(self->mutex_);
    self->growing_ = false;
  });
}

std::shared_ptr<Landmark> LandmarkPool::take(LandmarkKind kind) {
  if (device_->is_lost()) return nullptr;
  std::shared_ptr<Landmark> landmark(new Landmark(shared_from_this(), kind));
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        // The oldest first: the longer a word rests, the fewer streams still wait on it.
        const FreeWord word = free_.front();
        free_.erase(free_.begin());
        landmark->word_ = word.word;
        landmark->address_ = word.address;
        landmark->base_ = load(word.word);
        out_.push_back(landmark.get());
        if (free_.size() < kFewWords && !growing_) grow_soon();
        return landmark;
      }
    }
    if (!grow()) break;
  }
  return nullptr;
}

void LandmarkPool::give_back(Landmark& landmark) noexcept {
  if (landmark.word_ == nullptr) return;
  MutexLock lock(mutex_);
  write(landmark, std::max({landmark.waited_, landmark.promised_, landmark.raised_}));
  free_.push_back({landmark.word_, landmark.address_});
  std::erase(out_, &landmark);
}

void LandmarkPool::release_waiters() {
  MutexLock lock(mutex_);
  for (Landmark* const landmark : out_) {
    if (load(landmark->word_) >= landmark->base_ + landmark->waited_) continue;
    // Set before the word is written: a batch that sees the word then reports a failure.
    landmark->released_ = true;
    landmark->raised_ = std::max(landmark->raised_, landmark->waited_);
    write(*landmark, landmark->raised_);
  }
  changed_.notify_all();
}

bool LandmarkPool::was_released(const Landmark& landmark) const {
  MutexLock lock(mutex_);
  return landmark.released_;
}

void LandmarkPool::write(Landmark& landmark, uint64_t value) {
  if (landmark.promised_ < value) changed_.notify_all();
  landmark.promised_ = std::max(landmark.promised_, value);
  if (load(landmark.word_) < landmark.base_ + value) store(landmark.word_, landmark.base_ + value);
}

void LandmarkPool::begin(Landmark& landmark) {
  MutexLock lock(mutex_);
  ++landmark.pending_;
}

void LandmarkPool::end(Landmark& landmark, uint64_t last, bool by_cpu) {
  MutexLock lock(mutex_);
  --landmark.pending_;
  if (by_cpu) {
    landmark.raised_ = std::max(landmark.raised_, last);
    write(landmark, last);
  }
  if (landmark.pending_ == 0) write(landmark, landmark.raised_);
}

void LandmarkPool::promise(Landmark& landmark, uint64_t value) {
  MutexLock lock(mutex_);
  landmark.promised_ = std::max(landmark.promised_, value);
  changed_.notify_all();
}

void LandmarkPool::await_promise(const Landmark& landmark, uint64_t value) const {
  MutexLock lock(mutex_);
  while (landmark.promised_ < value && !landmark.released_) {
    std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
    changed_.wait(native);
    native.release();
  }
}

void LandmarkPool::raise(Landmark& landmark, uint64_t value) {
  MutexLock lock(mutex_);
  landmark.raised_ = std::max(landmark.raised_, value);
  if (landmark.pending_ == 0) write(landmark, landmark.raised_);
}

void LandmarkPool::settle(Landmark& landmark) {
  MutexLock lock(mutex_);
  if (landmark.pending_ == 0) write(landmark, landmark.raised_);
}

bool LandmarkPool::reached(const Landmark& landmark, uint64_t value) const noexcept {
  return load(landmark.word_) >= landmark.base_ + value || was_released(landmark);
}

bool LandmarkPool::met(const LandmarkNeed& need) const {
  const std::shared_ptr<Landmark> landmark = need.landmark.lock();  // maybe the last reference: without the lock
  MutexLock lock(mutex_);
  return landmark == nullptr || landmark->promised_ >= need.value;
}

bool LandmarkPool::waits(const std::shared_ptr<Landmark>& landmark, uint64_t value, CuContext context,
                         CuStream stream) {
  MutexLock lock(mutex_);
  if (landmark->released_) return false;
  waited_ever_ = true;
  landmark->waited_ = std::max(landmark->waited_, value);
  if (landmark->promised_ >= value) return true;
  for (LandmarkNeed& wait : waits_) {
    if (wait.context != context || wait.stream != stream || wait.identity != landmark.get()) continue;
    // Another landmark at the same address: the recorded wait belongs to one that is gone.
    if (wait.landmark.expired()) wait.value = 0;
    wait.landmark = landmark;
    wait.value = std::max(wait.value, value);
    return true;
  }
  waits_.push_back({landmark, landmark.get(), value, context, stream, true});
  return true;
}

std::vector<LandmarkNeed> LandmarkPool::needs_of(CuContext context, CuStream stream) {
  std::vector<std::shared_ptr<Landmark>> held;  // dropped after the lock: the last reference returns its word
  std::vector<LandmarkNeed> needs;
  MutexLock lock(mutex_);
  size_t kept = 0;
  for (size_t i = 0; i < waits_.size(); ++i) {
    held.push_back(waits_[i].landmark.lock());
    if (held.back() == nullptr || held.back()->promised_ >= waits_[i].value) continue;
    if (kept != i) waits_[kept] = std::move(waits_[i]);
    const LandmarkNeed& wait = waits_[kept++];
    needs.push_back(wait);
    needs.back().certain =
        wait.context == context && (wait.stream == stream || is_special(wait.stream) || is_special(stream));
  }
  waits_.resize(kept);
  return needs;
}

}  // namespace kvbm::device
