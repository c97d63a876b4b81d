#include "copy/tcp/receiver.h"

#include <algorithm>
#include <cstring>

namespace kvbm::copy::tcp {

namespace {

// Length of a read into staging while pushes are expected: a small push arrives with its header in one call, and of a
// large one little more than this is copied. (Measured, 2026-11, loopback: a copy of 4 KiB costs less than a second
// call.)
constexpr size_t kShortRead = (8U << 10) + 2 * kHeaderBytes;
constexpr uint64_t kLargePush = 16U << 10;
// Most bytes of one call, so that `arrived` is reported while they are still in a CPU cache.
constexpr uint64_t kLongRead = 512U << 10;

}  // namespace

const char Receiver::kKeyUsedUp[] =
    "a key of the connection has covered as much as it may; the next connection has new ones";
const char Receiver::kAltered[] = "bytes were changed, repeated, left out or moved on their way: a tag does not fit";

bool Receiver::post(uint64_t tag, const Post& post) {
  if (active_posted_ && active_tag_ == tag) return false;
  return posts_.insert(tag, post);
}

bool Receiver::end_post(uint64_t tag, uint64_t token) noexcept {
  if (active_posted_ && active_tag_ == tag && active_.token == token) {
    active_posted_ = false;
    active_.to = nullptr;
    return true;
  }
  const Post* waiting = posts_.find(tag);
  return waiting != nullptr && waiting->token == token && posts_.erase(tag);
}

bool Receiver::between_frames() const noexcept {
  return partial_.empty() && chunk_rest_ == 0 && tag_rest_ == 0 && order_.rest() == 0;
}

size_t Receiver::targets(MutableBytes staging, iovec* out) noexcept {
  // Bytes between the payload of a bulk frame and the next payload, which must not go to staging.
  const size_t between = tag_bytes() + kHeaderBytes;
  if (chunk_rest_ != 0 && active_.to != nullptr) {
    out[0] = {active_.to + active_at_, static_cast<size_t>(std::min(chunk_rest_, kLongRead))};
    if (chunk_rest_ > kLongRead) return 1;
    // A chunk is followed by the header of the next one. So is a large push while others are expected, since those are
    // mostly large as well.
    const bool header_alone = order_.rest() != 0 || (!posts_.empty() && active_total_ >= kLargePush);
    out[1] = {staging.data(), header_alone ? between : std::min(staging.size(), kShortRead)};
    return 2;
  }
  const bool expecting = !posts_.empty() && chunk_rest_ == 0;
  const size_t most = tag_rest_ != 0 && order_.rest() != 0 ? tag_rest_ + kHeaderBytes
                      : expecting                          ? kShortRead
                                                           : staging.size();
  out[0] = {staging.data(), std::min(staging.size(), most)};
  return 1;
}

const char* Receiver::landed(size_t n, MutableBytes staging, const bool& admitted, ReceiverSink& sink) {
  if (chunk_rest_ != 0 && active_.to != nullptr) {
    const auto direct = static_cast<size_t>(std::min<uint64_t>(n, chunk_rest_));
    if (const char* why = advance({active_.to + active_at_, direct}, sink)) return why;
    n -= direct;
  }
  return sink.open() ? feed(staging.first(n), admitted, sink) : nullptr;
}

// Handles `bytes`, more of the current push: in place, or to be discarded.
const char* Receiver::advance(MutableBytes bytes, ReceiverSink& sink) {
  active_at_ += bytes.size();
  chunk_rest_ -= bytes.size();
  if (guard_ == nullptr) {
    tell(sink);
    return nullptr;
  }
  if (chunk_rest_ == 0) tag_rest_ = tag_.size();
  return guard_->open(bytes) ? nullptr : kAltered;
}

const char* Receiver::take_tag(MutableBytes& bytes, ReceiverSink& sink) {
  const size_t n = std::min(bytes.size(), tag_rest_);
  std::memcpy(tag_.data() + (tag_.size() - tag_rest_), bytes.data(), n);
  bytes = bytes.subspan(n);
  tag_rest_ -= n;
  if (tag_rest_ != 0) return nullptr;
  if (!guard_->verify(tag_.data())) return kAltered;
  tell(sink);
  return nullptr;
}

// Reports the bytes of the current push so far: they are verified.
void Receiver::tell(ReceiverSink& sink) {
  if (!active_posted_) return;
  const bool fits = active_total_ <= active_.bytes;
  if (fits && active_at_ != active_total_) return sink.on_arrived(active_.token, active_at_);
  active_posted_ = false;
  active_.to = nullptr;
  sink.on_received(active_.token, fits ? Code::ok : Code::mismatch, fits ? active_total_ : 0);
}

// Handles a message's frame, which is whole.
const char* Receiver::deliver(MutableBytes frame, ReceiverSink& sink) {
  MutableBytes message = frame.subspan(kHeaderBytes, frame.size() - kHeaderBytes - tag_bytes());
  if (guard_ != nullptr) {
    const Code begun = guard_->begin(frame.first(kHeaderBytes), message.size(), codec::AesGcm::Use::open);
    if (begun == Code::closed) return kKeyUsedUp;
    if (begun != Code::ok || !guard_->open(message) || !guard_->verify(frame.last(tag_bytes()).data())) return kAltered;
  }
  if (reinterpret_cast<uintptr_t>(message.data()) % 8 != 0) {
    aligned_.assign(message.begin(), message.end());
    message = aligned_;
  }
  sink.on_message(message);
  return nullptr;
}

const char* Receiver::begin(const std::byte* header, const Header& said, ReceiverSink& sink) {
  if (guard_ != nullptr) {
    const Code begun = guard_->begin({header, kHeaderBytes}, said.length, codec::AesGcm::Use::open);
    if (begun != Code::ok) return begun == Code::closed ? kKeyUsedUp : kAltered;
  }
  chunk_rest_ = said.length;
  if (said.kind == Kind::bulk) {
    active_ = Post{};
    active_posted_ = false;
    active_tag_ = said.tag;
    active_at_ = 0;
    active_total_ = said.total;
    if (const Post* waiting = posts_.find(said.tag); waiting != nullptr) {
      active_ = *waiting;
      active_posted_ = true;
      posts_.erase(said.tag);
      if (said.total > active_.bytes) active_.to = nullptr;
    }
  }
  if (guard_ != nullptr) {
    if (chunk_rest_ == 0) tag_rest_ = tag_.size();
  } else if (active_posted_ && (active_total_ > active_.bytes || active_total_ == 0)) {
    tell(sink);
  }
  return nullptr;
}

// Completes a header or message that the last bytes left unfinished.
const char* Receiver::feed_partial(MutableBytes& bytes, const bool& admitted, ReceiverSink& sink) {
  const size_t n = std::min(bytes.size(), partial_needs_ - partial_.size());
  partial_.insert(partial_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
  bytes = bytes.subspan(n);
  if (partial_.size() < partial_needs_) return nullptr;
  if (partial_needs_ == kHeaderBytes) {
    if (const char* why = order_.accept(partial_.data(), admitted, guarded(), header_)) return why;
    if (header_.kind != Kind::message) {
      std::byte header[kHeaderBytes];
      std::memcpy(header, partial_.data(), sizeof header);
      partial_.clear();
      return begin(header, header_, sink);
    }
    partial_needs_ += header_.length + tag_bytes();
    if (partial_needs_ != kHeaderBytes) return nullptr;
  }
  // Moves the frame out of partial_ first: the sink may call this object, which must be between two frames then.
  std::vector<std::byte> whole;
  whole.swap(partial_);
  const char* why = deliver(whole, sink);
  if (whole.capacity() <= 4096) {
    whole.clear();
    partial_.swap(whole);
  }
  return why;
}

const char* Receiver::feed(MutableBytes bytes, const bool& admitted, ReceiverSink& sink) {
  while (!bytes.empty() && sink.open()) {
    const char* why = nullptr;
    if (chunk_rest_ != 0) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(bytes.size(), chunk_rest_));
      MutableBytes part = bytes.first(n);
      if (active_.to != nullptr) {
        part = {active_.to + active_at_, n};
        std::memcpy(part.data(), bytes.data(), n);
      }
      why = advance(part, sink);
      bytes = bytes.subspan(n);
    } else if (tag_rest_ != 0) {
      why = take_tag(bytes, sink);
    } else if (!partial_.empty()) {
      why = feed_partial(bytes, admitted, sink);
    } else {
      why = feed_frame(bytes, admitted, sink);
    }
    if (why != nullptr) return why;
  }
  return nullptr;
}

// Handles bytes that begin with a frame.
const char* Receiver::feed_frame(MutableBytes& bytes, const bool& admitted, ReceiverSink& sink) {
  partial_needs_ = kHeaderBytes;
  if (bytes.size() >= kHeaderBytes) {
    Header header;
    if (const char* why = order_.accept(bytes.data(), admitted, guarded(), header)) return why;
    if (header.kind != Kind::message) {
      const std::byte* const at = bytes.data();
      bytes = bytes.subspan(kHeaderBytes);
      return begin(at, header, sink);
    }
    const size_t whole = kHeaderBytes + header.length + tag_bytes();
    if (bytes.size() >= whole) {
      const MutableBytes frame = bytes.first(whole);
      bytes = bytes.subspan(whole);
      return deliver(frame, sink);
    }
    header_ = header;
    partial_needs_ = whole;
  }
  partial_.reserve(partial_needs_);
  partial_.assign(bytes.begin(), bytes.end());
  bytes = {};
  return nullptr;
}

}  // namespace kvbm::copy::tcp
