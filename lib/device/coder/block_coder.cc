#include "device/coder/block_coder.h"

#include <time.h>

#include "base/thread/memory_wait.h"
#include "device/coder/block_encoding.h"
#include "device/driver/retained.h"

namespace kvbm::device {

namespace {

constexpr long kLookEveryNs = 100'000;

// A call that may have enqueued work. However it ends, also by an exception for lack of host memory, no work of it is
// under way afterwards. Exceptions: the room is retained with a device that was given up, or late; then its work writes
// only to the room, and the next call waits for it. Otherwise the device might write to the caller's blocks, and read
// jobs that the next call writes, while the caller believes that the call is over.
class Call {
 public:
  Call(const Device& device, std::shared_ptr<CoderRoom>& room) noexcept : device_(device), room_(room) {}
  ~Call() {
    if (ended_ || room_ == nullptr) return;
    if (!room_->is_late()) room_->settle();
    if (!device_.is_lost()) return;
    const MemoryWait patient;
    retain_until_exit(std::move(room_));
    room_ = nullptr;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Notes that the call has waited for all of its work.
  void ended() noexcept { ended_ = true; }

 private:
  const Device& device_;
  std::shared_ptr<CoderRoom>& room_;
  bool ended_ = false;
};

}  // namespace

BlockCoder::~BlockCoder() {
  if (room_ == nullptr || !room_->is_late()) return;
  {
    const Device::Scope scope(*device_);
    if (scope.entered() && room_->wait().ok()) return;
  }
  const MemoryWait patient;
  retain_until_exit(std::move(room_));
}

Status BlockCoder::reach(const StreamPoint* after) {
  if (after == nullptr) return {};
  const Device::Scope scope(*device_);
  if (!scope.entered()) return device_->lost();
  while (after->query() == kCuNotReady) {  // a sign of life each time
    if (device_->is_lost()) return device_->lost();
    const timespec pause{0, kLookEveryNs};
    (void)::nanosleep(&pause, nullptr);
  }
  return {};
}

Result<CoderRoom*> BlockCoder::enter(const StreamPoint* after, bool writes_outside) {
  if (room_ == nullptr) {
    auto made = CoderRoom::create(device_, options_);
    if (!made.ok()) return made.status();
    room_ = std::move(made).value();
  }
  if (room_->is_late()) {
    if (Status s = room_->wait(); !s.ok()) return s;
  }
  room_->begin(writes_outside);
  // If the stream will never reach the point, order() returns the error.
  if (after != nullptr) {
    if (Status s = after->order(room_->stream()); !s.ok()) return s;
  }
  return room_.get();
}

Result<uint64_t> BlockCoder::encode(const codec::LeafForm& form, codec::Mode mode, const codec::StridedBytes& from,
                                    const StreamPoint* after, MutableBytes out, codec::Workspace& workspace) {
  if (Status fits = codec::StreamWriter::check(form, from.bytes(), out.size()); !fits.ok()) return fits;
  if (Status s = reach(after); !s.ok()) return s;
  MutexLock lock(mutex_);
  const Device::Scope scope(*device_);
  if (!scope.entered()) return device_->lost();
  Call call(*device_, room_);
  auto room = enter(after, false);
  if (!room.ok()) return room.status();
  auto made = BlockEncoding(*device_, *room.value(), form, mode, from, out, workspace).run();
  if (made.ok()) call.ended();
  return made;
}

Status BlockCoder::decode(const codec::StreamView& stream, bool allow_lossy, const codec::StridedBytes& to,
                          const StreamPoint* after, codec::Workspace& workspace) {
  if (stream.info().lossy && !allow_lossy) {
    return {Code::not_permitted, "the coded buffer is lossy, and lossy bytes were not allowed"};
  }
  if (stream.info().raw_bytes != to.bytes()) {
    return {Code::invalid_argument, "the coded buffer is not of as many bytes"};
  }
  if (Status s = reach(after); !s.ok()) return s;
  MutexLock lock(mutex_);
  const Device::Scope scope(*device_);
  if (!scope.entered()) return device_->lost();
  Call call(*device_, room_);
  auto room = enter(after, true);
  if (!room.ok()) return room.status();
  Status done = BlockDecoding(*device_, *room.value(), to, workspace).run(stream);
  if (done.ok()) call.ended();
  return done;
}

}  // namespace kvbm::device
