#include "copy/local/unix_peer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kvbm::copy::local {

namespace {

// Most parts of the host's pieces in one frame.
constexpr size_t kPartsPerFrame = 64;

}  // namespace

Code UnixPeer::send_datagram(const iovec* parts, size_t n, int memory) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = n;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (memory >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  for (;;) {
    if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Code::ok;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Code::again;
    // Received data may still be read: the end of the connection is found there.
    broken_ = true;
    return Code::closed;
  }
}

Code UnixPeer::send(ConstBytes message) {
  FrameHeader header;
  header.length = static_cast<uint32_t>(message.size());
  std::byte head[kFrameHeaderBytes];
  encode(header, head);
  if (phase == Phase::open && messages_.empty() && !broken_) {
    const iovec parts[] = {{head, sizeof head}, {const_cast<std::byte*>(message.data()), message.size()}};
    const Code sent = send_datagram(parts, 2, -1);
    if (sent == Code::ok) return sent;
  }
  if (broken_) return Code::ok;  // lost with the connection, like data in flight; closed() reports it
  if (queued_bytes_ != 0 && queued_bytes_ + message.size() > queue_limit_) {
    refused_ = true;
    return Code::again;
  }
  Outgoing out;
  out.frame.reserve(sizeof head + message.size());
  out.frame.assign(head, head + sizeof head);
  out.frame.insert(out.frame.end(), message.begin(), message.end());
  out.counted = true;
  queued_bytes_ += message.size();
  messages_.push_back(std::move(out));
  return Code::ok;
}

void UnixPeer::send_hello() {
  std::byte hello[kHelloBytes];
  encode_hello(hello);
  const iovec part{hello, sizeof hello};
  (void)send_datagram(&part, 1, -1);  // the first datagram on a new socket always fits
}

void UnixPeer::send_pool(Fd memory, const PoolOffer& offer) {
  FrameHeader header;
  header.kind = FrameKind::pool;
  header.length = kOfferBytes;
  Outgoing out;
  out.frame.resize(kFrameHeaderBytes + kOfferBytes);
  encode(header, out.frame.data());
  encode(offer, out.frame.data() + kFrameHeaderBytes);
  out.memory = std::move(memory);
  messages_.push_back(std::move(out));
}

Code UnixPeer::post(uint64_t tag, std::byte* to, uint64_t bytes, uint64_t token) {
  if (posts_.count(tag) != 0 || tokens_.count(token) != 0) return Code::exists;
  posts_.emplace(tag, Post{to, bytes, token});
  tokens_.insert(token);
  return Code::ok;
}

Code UnixPeer::push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token) {
  if (tokens_.count(token) != 0) return Code::exists;
  Push push;
  push.tag = tag;
  push.token = token;
  for (size_t i = 0; i < n; ++i) {
    if (pieces[i].bytes == 0) continue;
    if (pieces[i].data == nullptr || pieces[i].bytes > SIZE_MAX / 2 - push.total) return Code::invalid_argument;
    push.pieces.push_back(pieces[i]);
    push.total += pieces[i].bytes;
  }
  pushes_.push_back(std::move(push));
  tokens_.insert(token);
  return Code::ok;
}

Code UnixPeer::cancel(uint64_t token) {
  if (tokens_.count(token) == 0) return Code::stale_handle;
  for (auto post = posts_.begin(); post != posts_.end(); ++post) {
    if (post->second.token != token) continue;
    posts_.erase(post);
    finish(true, token, Code::cancelled, 0);
    return Code::ok;
  }
  if (filling_.has_value() && filling_->token == token) {
    filling_.reset();  // the rest of the push is discarded
    finish(true, token, Code::cancelled, 0);
    return Code::ok;
  }
  for (auto push = pushes_.begin(); push != pushes_.end(); ++push) {
    if (push->token != token || push->sent != 0) continue;
    pushes_.erase(push);
    finish(false, token, Code::cancelled, 0);
    return Code::ok;
  }
  return Code::ok;  // a push in progress ends normally
}

void UnixPeer::finish(bool received, uint64_t token, Code status, uint64_t bytes) {
  tokens_.erase(token);
  ended.push_back({received, token, status, bytes});
}

Code UnixPeer::pump_messages() {
  while (!messages_.empty()) {
    Outgoing& out = messages_.front();
    const iovec part{out.frame.data(), out.frame.size()};
    const Code sent = send_datagram(&part, 1, out.memory.get());
    if (sent != Code::ok) return sent;
    if (out.counted) queued_bytes_ -= out.frame.size() - kFrameHeaderBytes;
    messages_.pop_front();
  }
  return Code::ok;
}

// Sends the next frame of a push.
Code UnixPeer::pump_push(Push& push) {
  std::byte head[kFrameHeaderBytes];
  iovec parts[1 + kPartsPerFrame];
  size_t n = 1;
  uint64_t bytes = 0;
  size_t piece = push.piece;
  uint64_t within = push.within;
  while (piece < push.pieces.size() && n <= kPartsPerFrame && bytes < kFrameBodyBytes) {
    const kvbm_transport_piece_t& from = push.pieces[piece];
    const uint64_t take = std::min(from.bytes - within, kFrameBodyBytes - bytes);
    parts[n++] = {const_cast<std::byte*>(static_cast<const std::byte*>(from.data)) + within, static_cast<size_t>(take)};
    bytes += take;
    within += take;
    if (within == from.bytes) {
      ++piece;
      within = 0;
    }
  }
  FrameHeader header{FrameKind::push, static_cast<uint32_t>(bytes), push.tag, push.total, push.sent};
  encode(header, head);
  parts[0] = {head, sizeof head};
  const Code sent = send_datagram(parts, n, -1);
  if (sent != Code::ok) return sent;
  push.piece = piece;
  push.within = within;
  push.sent += bytes;
  return Code::ok;
}

Code UnixPeer::pump() {
  if (broken_) return Code::closed;
  for (int frames = 0; frames < kFramesPerTurn; ++frames) {
    if (const Code code = pump_messages(); code != Code::ok) return code;
    if (pushes_.empty()) return Code::ok;
    Push& push = pushes_.front();
    if (const Code code = pump_push(push); code != Code::ok) return code;
    if (push.sent != push.total) continue;
    finish(false, push.token, Code::ok, 0);
    pushes_.pop_front();
  }
  return Code::ok;
}

bool UnixPeer::take_writable() noexcept {
  if (!refused_ || queued_bytes_ > queue_limit_ / 2) return false;
  refused_ = false;
  return true;
}

void UnixPeer::take_push(const FrameHeader& header, ConstBytes body) {
  if (header.offset == 0) {
    filling_.reset();
    filled_ = 0;
    const auto post = posts_.find(header.tag);
    if (post == posts_.end()) return;
    const Post found = post->second;
    posts_.erase(post);
    if (header.total > found.bytes) return finish(true, found.token, Code::mismatch, 0);
    filling_ = found;
  }
  if (!filling_.has_value()) return;
  if (!body.empty()) std::memcpy(filling_->to + header.offset, body.data(), body.size());
  filled_ = header.offset + body.size();
  if (filled_ != header.total) return;
  const uint64_t token = filling_->token;
  filling_.reset();
  finish(true, token, Code::ok, filled_);
}

std::optional<std::pair<uint64_t, uint64_t>> UnixPeer::filling() const noexcept {
  if (!filling_.has_value()) return std::nullopt;
  return std::pair(filling_->token, filled_);
}

void UnixPeer::end_posts(Code status) {
  if (filling_.has_value()) finish(true, filling_->token, status, 0);
  filling_.reset();
  for (const auto& [tag, post] : posts_) finish(true, post.token, status, 0);
  posts_.clear();
}

void UnixPeer::end_all(Code status) {
  end_posts(status);
  for (const Push& push : pushes_) finish(false, push.token, status, 0);
  pushes_.clear();
  messages_.clear();
  queued_bytes_ = 0;
}

}  // namespace kvbm::copy::local
