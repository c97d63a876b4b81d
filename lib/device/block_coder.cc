#include "device/block_coder.h"

#include <time.h>

#include "base/memory_wait.h"
#include "device/block_encoding.h"
#include "device/parked.h"

namespace kvbm::device {

namespace {

constexpr long kLookEveryNs = 100'000;

}  // namespace

BlockCoder::~BlockCoder() = default;

Status BlockCoder::reach(const StreamPoint* after) {
  if (after == nullptr) return {};
  const Device::Scope scope(*device_);
  if (!scope.entered()) return device_->lost();
  while (after->query() == kCuNotReady) {
    if (device_->is_lost()) return device_->lost();
    const timespec pause{0, kLookEveryNs};
    (void)::nanosleep(&pause, nullptr);
  }
  return {};
}

Result<CoderRoom*> BlockCoder::enter(const StreamPoint* after) {
  if (room_ == nullptr) {
    auto made = CoderRoom::create(device_, options_);
    if (!made.ok()) return made.status();
    room_ = std::move(made).value();
  }
  // Says it too where the stream will never come there.
  if (after != nullptr) {
    if (Status s = after->order(room_->stream()); !s.ok()) return s;
  }
  return room_.get();
}

Status BlockCoder::end(Status status) {
  if (status.ok() || room_ == nullptr) return status;
  if (!device_->is_lost()) (void)room_->wait();
  if (device_->is_lost()) {
    const MemoryWait patient;
    park(std::move(room_));
    room_ = nullptr;
  }
  return status;
}

Result<uint64_t> BlockCoder::encode(const codec::LeafForm& form, codec::Mode mode, const codec::StridedBytes& from,
                                    const StreamPoint* after, MutableBytes out, codec::StreamWorkspace& workspace) {
  if (Status fits = codec::StreamWriter::check(form, from.bytes(), out.size()); !fits.ok()) return fits;
  if (Status s = reach(after); !s.ok()) return s;
  MutexLock lock(mutex_);
  const Device::Scope scope(*device_);
  if (!scope.entered()) return device_->lost();
  auto room = enter(after);
  if (!room.ok()) return end(room.status());
  auto made = BlockEncoding(*device_, *room.value(), form, mode, from, out, workspace).run();
  if (!made.ok()) return end(made.status());
  return made;
}

Status BlockCoder::decode(const codec::StreamView& stream, bool allow_lossy, const codec::StridedBytes& to,
                          const StreamPoint* after, codec::StreamWorkspace& workspace) {
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
  auto room = enter(after);
  if (!room.ok()) return end(room.status());
  return end(BlockDecoding(*device_, *room.value(), to, workspace).run(stream));
}

}  // namespace kvbm::device
