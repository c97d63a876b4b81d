#include "copy/tcp/receiver.h"

#include <algorithm>
#include <cstring>

namespace kvbm::copy::tcp {

namespace {

// While pushes are expected a read into staging is this short: what a small push brings comes with its header in one
// call, and of a large one little more than this is copied. (Measured, 2026-11, loopback: a copy of 4 KiB costs less
// than a second call.)
constexpr size_t kShortRead = (8U << 10) + 2 * kHeaderBytes;
constexpr uint64_t kLargePush = 16U << 10;
// One call reads no more than this, so that `arrived` is told while the bytes are still in a cache near the processor.
constexpr uint64_t kLongRead = 512U << 10;

}  // namespace

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

bool Receiver::between_frames() const noexcept { return partial_.empty() && chunk_rest_ == 0 && order_.rest() == 0; }

size_t Receiver::targets(MutableBytes staging, iovec* out) noexcept {
  if (chunk_rest_ != 0 && active_.to != nullptr) {
    out[0] = {active_.to + active_at_, static_cast<size_t>(std::min(chunk_rest_, kLongRead))};
    if (chunk_rest_ > kLongRead) return 1;
    // Behind a chunk comes the header of the next one, whose payload is not to land here; so it is behind a large push
    // while others are expected, which are then large as well, mostly.
    const bool header_alone = order_.rest() != 0 || (!posts_.empty() && active_total_ >= kLargePush);
    out[1] = {staging.data(), header_alone ? kHeaderBytes : std::min(staging.size(), kShortRead)};
    return 2;
  }
  const bool expecting = !posts_.empty() && chunk_rest_ == 0;
  out[0] = {staging.data(), expecting ? std::min(staging.size(), kShortRead) : staging.size()};
  return 1;
}

const char* Receiver::landed(size_t n, MutableBytes staging, const bool& admitted, ReceiverSink& sink) {
  if (chunk_rest_ != 0 && active_.to != nullptr) {
    const auto direct = std::min<uint64_t>(n, chunk_rest_);
    advance(direct, sink);
    n -= static_cast<size_t>(direct);
  }
  return sink.open() ? feed(staging.first(n), admitted, sink) : nullptr;
}

// `n` more bytes of the push under way are in place, or gone.
void Receiver::advance(uint64_t n, ReceiverSink& sink) {
  active_at_ += n;
  chunk_rest_ -= n;
  if (!active_posted_) return;
  if (active_at_ == active_total_) {
    active_posted_ = false;
    active_.to = nullptr;
    sink.on_received(active_.token, Code::ok, active_total_);
  } else {
    sink.on_arrived(active_.token, active_at_);
  }
}

void Receiver::deliver(ConstBytes message, ReceiverSink& sink) {
  if (reinterpret_cast<uintptr_t>(message.data()) % 8 != 0) {
    aligned_.assign(message.begin(), message.end());
    message = aligned_;
  }
  sink.on_message(message);
}

void Receiver::begin(const Header& header, ReceiverSink& sink) {
  chunk_rest_ = header.length;
  if (header.kind == Kind::more) return;
  active_ = Post{};
  active_posted_ = false;
  active_tag_ = header.tag;
  active_at_ = 0;
  active_total_ = header.total;
  const Post* waiting = posts_.find(header.tag);
  if (waiting == nullptr) return;
  const Post post = *waiting;
  posts_.erase(header.tag);
  if (header.total > post.bytes) {
    sink.on_received(post.token, Code::mismatch, 0);
    return;
  }
  active_ = post;
  active_posted_ = true;
  if (header.total == 0) advance(0, sink);
  return;
}

// Completes what the last bytes left unfinished.
const char* Receiver::feed_partial(ConstBytes& bytes, const bool& admitted, ReceiverSink& sink) {
  const size_t n = std::min(bytes.size(), partial_needs_ - partial_.size());
  partial_.insert(partial_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
  bytes = bytes.subspan(n);
  if (partial_.size() < partial_needs_) return nullptr;
  if (partial_needs_ == kHeaderBytes) {
    if (const char* why = order_.accept(partial_.data(), admitted, header_)) return why;
    if (header_.kind != Kind::message) {
      partial_.clear();
      begin(header_, sink);
      return nullptr;
    }
    partial_needs_ += header_.length;
    if (header_.length != 0) return nullptr;
  }
  // Taken out first: the sink may not see this half done.
  std::vector<std::byte> whole;
  whole.swap(partial_);
  deliver(ConstBytes(whole).subspan(kHeaderBytes), sink);
  if (whole.capacity() <= 4096) {
    whole.clear();
    partial_.swap(whole);
  }
  return nullptr;
}

const char* Receiver::feed(ConstBytes bytes, const bool& admitted, ReceiverSink& sink) {
  while (!bytes.empty() && sink.open()) {
    if (chunk_rest_ != 0) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(bytes.size(), chunk_rest_));
      if (active_.to != nullptr) std::memcpy(active_.to + active_at_, bytes.data(), n);
      advance(n, sink);
      bytes = bytes.subspan(n);
      continue;
    }
    if (!partial_.empty()) {
      if (const char* why = feed_partial(bytes, admitted, sink)) return why;
      continue;
    }
    if (bytes.size() >= kHeaderBytes) {
      Header header;
      if (const char* why = order_.accept(bytes.data(), admitted, header)) return why;
      if (header.kind != Kind::message) {
        bytes = bytes.subspan(kHeaderBytes);
        begin(header, sink);
        continue;
      }
      if (bytes.size() - kHeaderBytes >= header.length) {
        const ConstBytes message = bytes.subspan(kHeaderBytes, header.length);
        bytes = bytes.subspan(kHeaderBytes + header.length);
        deliver(message, sink);
        continue;
      }
      header_ = header;
      partial_needs_ = kHeaderBytes + header.length;
    } else {
      partial_needs_ = kHeaderBytes;
    }
    partial_.reserve(partial_needs_);
    partial_.assign(bytes.begin(), bytes.end());
    bytes = {};
  }
  return nullptr;
}

}  // namespace kvbm::copy::tcp
