// Sending with a tag behind every frame.
//
// Invariant: tags are given in the order in which frames are sent. So a batch of bulk is tagged only while no message
// waits. Messages that are queued before the batch is sent wait for its end: kBatchBytes at most, as they wait for a
// frame elsewhere.
#include <algorithm>
#include <cstring>
#include <new>

#include "copy/tcp/sender.h"

namespace kvbm::copy::tcp {

namespace {
// Payload of the frames of one batch; the first frame is always taken.
constexpr uint64_t kBatchBytes = 256U << 10;
}  // namespace

void Sender::guard(std::unique_ptr<FrameGuard> guard) {
  batch_ = std::make_unique<Batch>();
  guard_ = std::move(guard);
}

Code Sender::queue_guarded(ConstBytes body) {
  if (failure_ != Code::ok) return failure_;
  settle_messages();
  const size_t begin = messages_.size();
  messages_.resize(begin + kHeaderBytes + body.size() + FrameGuard::kTagBytes);
  const MutableBytes frame = MutableBytes(messages_).subspan(begin);
  encode({Kind::message, static_cast<uint32_t>(body.size()), 0, 0}, frame.data());
  std::byte* const payload = frame.data() + kHeaderBytes;
  if (!body.empty()) std::memcpy(payload, body.data(), body.size());
  failure_ = guard_->begin(frame.first(kHeaderBytes), body.size(), codec::AesGcm::Use::seal);
  if (failure_ == Code::ok &&
      (!guard_->seal({payload, body.size()}, payload) || !guard_->finish(payload + body.size()))) {
    failure_ = Code::internal;
  }
  if (failure_ != Code::ok) messages_.resize(begin);
  return failure_;
}

// Tags the next frame of a push. enciphered: target of its payload, if any.
Code Sender::tag_frame(Push& push, std::byte* enciphered) noexcept {
  Batch& batch = *batch_;
  Tagged& frame = batch.frames[batch.end];
  const Header header = next_header(push, push.framed, kGuardedChunkBytes);
  encode(header, frame.header.data());
  if (const Code begun = guard_->begin(frame.header, header.length, codec::AesGcm::Use::seal); begun != Code::ok) {
    return begun;
  }
  frame.payload = header.length;
  frame.at = batch.next;
  frame.enciphered = enciphered;
  for (uint64_t rest = header.length; rest != 0;) {
    const ConstBytes piece = pieces_.at(batch.next.piece);
    const uint64_t n = std::min(rest, piece.size() - batch.next.at);
    if (!guard_->seal({piece.data() + batch.next.at, static_cast<size_t>(n)}, enciphered)) return Code::internal;
    if (enciphered != nullptr) enciphered += n;
    rest -= n;
    batch.next.at += n;
    if (batch.next.at == piece.size()) batch.next = {batch.next.piece + 1, 0};
  }
  if (!guard_->finish(frame.tag.data())) return Code::internal;
  push.framed += header.length;
  push.begun = true;
  frame.last = push.framed == push.total;
  ++batch.end;
  return Code::ok;
}

// Makes memory for the next batch to be enciphered.
bool Sender::make_room(Batch& batch) noexcept {
  uint64_t waiting = 0;
  for (uint64_t number = batch.push; number != pushes_.end() && waiting < kBatchBytes; ++number) {
    waiting += pushes_.at(number).total - pushes_.at(number).framed;
  }
  const auto needed = static_cast<size_t>(std::min(waiting, kBatchBytes));
  if (needed <= batch.room) return true;
  batch.enciphered.reset(new (std::nothrow) std::byte[needed]);
  batch.room = batch.enciphered != nullptr ? needed : 0;
  return batch.room != 0;
}

// Tags the next bulk frames.
void Sender::tag_batch() noexcept {
  Batch& batch = *batch_;
  batch.first = batch.end = 0;
  batch.sent = 0;
  if (batch.push < pushes_.first()) {  // all framed pushes have ended, and perhaps cancelled ones after them
    batch.push = pushes_.first();
    batch.next = {pieces_.first(), 0};
  }
  if (guard_->encrypts() && !make_room(batch)) {
    failure_ = Code::no_memory;
    return;
  }
  uint64_t bytes = 0;
  while (batch.push != pushes_.end() && batch.end != Batch::kFrames) {
    Push& push = pushes_.at(batch.push);
    if (push.cancelled) {
      batch.next = {batch.next.piece + push.pieces, 0};
      ++batch.push;
      continue;
    }
    const uint64_t next = next_header(push, push.framed, kGuardedChunkBytes).length;
    if (bytes + next > kBatchBytes) return;
    failure_ = tag_frame(push, guard_->encrypts() ? batch.enciphered.get() + bytes : nullptr);
    if (failure_ != Code::ok) return;
    bytes += next;
    if (push.framed == push.total) ++batch.push;
  }
}

// Adds the unsent part of a frame.
void Sender::gather_frame(Filling& filling, const Tagged& frame, uint64_t sent) noexcept {
  if (sent < kHeaderBytes) {
    filling.add(frame.header.data() + sent, kHeaderBytes - sent);
    sent = kHeaderBytes;
  }
  uint64_t out = sent - kHeaderBytes;  // bytes of the payload that were sent
  if (out < frame.payload && frame.enciphered != nullptr) {
    if (filling.full()) return;
    filling.add(frame.enciphered + out, frame.payload - out);
    out = frame.payload;
  } else if (out < frame.payload) {
    Cursor cursor = frame.at;
    for (uint64_t skip = out; skip != 0;) {
      const uint64_t n = std::min(skip, pieces_.at(cursor.piece).size() - cursor.at);
      skip -= n;
      cursor.at += n;
      if (cursor.at == pieces_.at(cursor.piece).size()) cursor = {cursor.piece + 1, 0};
    }
    gather_payload(filling, cursor, frame.payload - out);
    out = frame.payload;
  }
  if (filling.full()) return;
  const uint64_t of_tag = sent > kHeaderBytes + frame.payload ? sent - kHeaderBytes - frame.payload : 0;
  filling.add(frame.tag.data() + of_tag, frame.tag.size() - of_tag);
}

size_t Sender::gather_guarded(iovec* out) noexcept {
  Batch& batch = *batch_;
  if (batch.empty() && queued() == 0 && failure_ == Code::ok) tag_batch();
  Filling filling{out};
  for (size_t i = batch.first; i != batch.end && !filling.full(); ++i) {
    gather_frame(filling, batch.frames[i], i == batch.first ? batch.sent : 0);
  }
  if (!filling.full() && queued() != 0) filling.add(messages_.data() + messages_at_, queued());
  return filling.count;
}

void Sender::sent_guarded(uint64_t n, SenderSink& sink) {
  Batch& batch = *batch_;
  while (n != 0 && !batch.empty()) {
    const Tagged& frame = batch.frames[batch.first];
    const uint64_t some = std::min(n, frame.bytes() - batch.sent);
    batch.sent += some;
    n -= some;
    if (batch.sent != frame.bytes()) return;
    batch.sent = 0;
    const bool last = frame.last;
    ++batch.first;
    if (!last) continue;
    drop_cancelled();
    const Push push = pushes_.pop();
    for (size_t i = 0; i < push.pieces; ++i) pieces_.pop();
    sink.on_pushed(push.token);
  }
  messages_at_ += static_cast<size_t>(n);
  if (!batch.empty() || !idle()) return;
  batch.enciphered.reset();
  batch.room = 0;
}

}  // namespace kvbm::copy::tcp
