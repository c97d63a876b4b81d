#include "copy/tcp/sender.h"

#include <algorithm>

namespace kvbm::copy::tcp {

void Sender::Filling::add(const void* data, uint64_t bytes) noexcept {
  bytes = std::min(bytes, room);
  out[count++] = {const_cast<void*>(data), static_cast<size_t>(bytes)};
  room -= bytes;
}

// Removes sent bytes from the buffer of messages.
void Sender::settle_messages() noexcept {
  if (messages_at_ == messages_.size()) {
    messages_.clear();
    messages_at_ = 0;
  } else if (messages_at_ > messages_.size() / 2) {
    messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(messages_at_));
    messages_at_ = 0;
  }
}

void Sender::queue_message(const std::byte* header, ConstBytes body, size_t sent) {
  settle_messages();
  messages_.reserve(messages_.size() + kHeaderBytes + body.size());
  if (sent < kHeaderBytes) messages_.insert(messages_.end(), header + sent, header + kHeaderBytes);
  const ConstBytes rest = body.subspan(sent < kHeaderBytes ? 0 : sent - kHeaderBytes);
  messages_.insert(messages_.end(), rest.begin(), rest.end());
}

void Sender::push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t total, uint64_t token) {
  Push push;
  push.tag = tag;
  push.token = token;
  push.total = total;
  for (size_t i = 0; i < n; ++i) {
    if (pieces[i].bytes == 0) continue;
    pieces_.push({static_cast<const std::byte*>(pieces[i].data), pieces[i].bytes});
    ++push.pieces;
  }
  pushes_.push(push);
}

bool Sender::cancel(uint64_t number) noexcept {
  Push& push = pushes_.at(number);
  if (push.begun) return false;
  push.cancelled = true;
  return true;
}

void Sender::drop_cancelled() noexcept {
  while (!pushes_.empty() && pushes_.front().cancelled) {
    for (size_t i = 0; i < pushes_.front().pieces; ++i) pieces_.pop();
    pushes_.pop();
  }
}

Header Sender::next_header(const Push& push, uint64_t framed, uint32_t most) noexcept {
  Header header;
  header.length = static_cast<uint32_t>(std::min<uint64_t>(most, push.total - framed));
  if (framed == 0) {
    header.kind = Kind::bulk;
    header.tag = push.tag;
    header.total = push.total;
  } else {
    header.kind = Kind::more;
  }
  return header;
}

void Sender::gather_payload(Filling& filling, Cursor& cursor, uint64_t bytes) noexcept {
  while (bytes != 0 && !filling.full()) {
    const ConstBytes piece = pieces_.at(cursor.piece);
    const uint64_t n = std::min(bytes, piece.size() - cursor.at);
    filling.add(piece.data() + cursor.at, n);
    bytes -= n;
    cursor.at += n;
    if (cursor.at == piece.size()) cursor = {cursor.piece + 1, 0};
  }
}

// Plans frames that have not begun, as many as there is room for.
void Sender::gather_frames(Filling& filling, Cursor cursor) noexcept {
  size_t planned = 0;
  for (uint64_t number = pushes_.first(); number != pushes_.end(); ++number) {
    const Push& push = pushes_.at(number);
    if (push.cancelled) {
      cursor = {cursor.piece + push.pieces, 0};
      continue;
    }
    uint64_t framed = push.framed;
    // A push with its last frame begun has nothing more to plan.
    if (push.begun && framed == push.total) continue;
    do {
      if (planned == planned_.size() || filling.count + 2 > kVectors || filling.room <= kHeaderBytes) return;
      const Header header = next_header(push, framed);
      encode(header, planned_[planned].data());
      filling.add(planned_[planned++].data(), kHeaderBytes);
      gather_payload(filling, cursor, header.length);
      if (filling.full()) return;
      framed += header.length;
    } while (framed != push.total);
  }
}

size_t Sender::gather(iovec* out) noexcept {
  drop_cancelled();
  if (guard_ != nullptr) return gather_guarded(out);
  Filling filling{out};
  Cursor cursor{pieces_.first(), piece_at_};
  if (header_rest_ != 0) filling.add(header_.data() + (kHeaderBytes - header_rest_), header_rest_);
  gather_payload(filling, cursor, chunk_rest_);
  if (filling.full()) return filling.count;
  if (queued() != 0) filling.add(messages_.data() + messages_at_, queued());
  if (!filling.full()) gather_frames(filling, cursor);
  return filling.count;
}

void Sender::take_payload(uint64_t bytes) noexcept {
  chunk_rest_ -= bytes;
  while (bytes != 0) {
    const uint64_t n = std::min(bytes, pieces_.front().size() - piece_at_);
    piece_at_ += n;
    bytes -= n;
    if (piece_at_ == pieces_.front().size()) {
      pieces_.pop();
      piece_at_ = 0;
    }
  }
}

// Takes up to n bytes out of the current frame; returns how many. Ends the push with its last frame.
uint64_t Sender::send_frame(uint64_t n, SenderSink& sink) {
  const uint64_t of_header = std::min<uint64_t>(n, header_rest_);
  header_rest_ -= static_cast<size_t>(of_header);
  const uint64_t of_payload = std::min(n - of_header, chunk_rest_);
  take_payload(of_payload);
  if (header_rest_ == 0 && chunk_rest_ == 0 && pushes_.front().framed == pushes_.front().total) {
    sink.on_pushed(pushes_.pop().token);
  }
  return of_header + of_payload;
}

void Sender::sent(uint64_t n, SenderSink& sink) {
  if (guard_ != nullptr) return sent_guarded(n, sink);
  if (header_rest_ != 0 || chunk_rest_ != 0) n -= send_frame(n, sink);
  const uint64_t of_messages = std::min<uint64_t>(n, queued());
  messages_at_ += static_cast<size_t>(of_messages);
  n -= of_messages;
  while (n != 0) {
    drop_cancelled();
    Push& push = pushes_.front();
    const Header header = next_header(push, push.framed);
    encode(header, header_.data());
    header_rest_ = kHeaderBytes;
    chunk_rest_ = header.length;
    push.framed += header.length;
    push.begun = true;
    n -= send_frame(n, sink);
  }
}

}  // namespace kvbm::copy::tcp
