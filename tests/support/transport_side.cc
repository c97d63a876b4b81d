#include "support/transport_side.h"

#include <algorithm>
#include <cstring>

namespace kvbm::test {

std::byte content_at(uint64_t seed, uint64_t at) {
  const uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15ULL ^ ((at / 8) * 0xBF58476D1CE4E5B9ULL);
  return static_cast<std::byte>(word >> (8 * (at % 8)));
}

std::vector<std::byte> content(uint64_t seed, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15ULL ^ ((at / 8) * 0xBF58476D1CE4E5B9ULL);
    std::memcpy(out.data() + at, &word, std::min<uint64_t>(8, bytes - at));
  }
  return out;
}

TransportSide::Buffer::Buffer(uint64_t bytes) : memory_(bytes + 2 * kMargin, kPoison) {}

bool TransportSide::Buffer::margins_hold() const {
  const auto is_poison = [](std::byte b) { return b == kPoison; };
  return std::all_of(memory_.begin(), memory_.begin() + kMargin, is_poison) &&
         std::all_of(memory_.end() - kMargin, memory_.end(), is_poison);
}

void TransportSide::Buffer::poison() { std::fill(memory_.begin(), memory_.end(), kPoison); }

bool TransportSide::Buffer::poisoned() const {
  return std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == kPoison; });
}

TransportSide::~TransportSide() {
  close();
  expect_quiet();
}

void TransportSide::open(const kvbm_transport_ops_t& ops, const copy::TransportOptions& options) {
  auto opened = copy::Transport::open(ops, options, *this);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  transport_ = std::move(opened).value();
}

void TransportSide::close() {
  if (transport_ == nullptr) return;
  transport_->close();
  EXPECT_EQ(transport_->unfinished(), 0U);
  EXPECT_TRUE(all_ended()) << name_ << ": of " << started_.size() << " operations " << ends.size() << " ended";
  transport_.reset();
  for (auto& [token, buffer] : buffers_) {
    EXPECT_TRUE(buffer->margins_hold()) << name_;
    buffer->poison();
    poisoned_.insert(token);
  }
}

void TransportSide::reset() {
  EXPECT_FALSE(is_open());
  accepted.clear();
  connected.clear();
  closed.clear();
  messages.clear();
  writable.clear();
  ends.clear();
  arrived_bytes.clear();
  started_.clear();
  buffers_.clear();
  poisoned_.clear();
}

void TransportSide::expect_quiet() {
  for (const copy::Token token : poisoned_) {
    const auto found = buffers_.find(token);
    if (found != buffers_.end()) {
      EXPECT_TRUE(found->second->poisoned())
          << name_ << ": memory of operation " << token << " was touched after its end";
    }
  }
}

copy::Token TransportSide::post(copy::Peer peer, uint64_t tag, uint64_t bytes) {
  auto buffer = std::make_unique<Buffer>(bytes);
  copy::Token token = 0;
  EXPECT_EQ(transport_->post(peer, tag, buffer->span(), token), Code::ok) << name_;
  started_[token] = {peer, false};
  buffers_[token] = std::move(buffer);
  return token;
}

copy::Token TransportSide::push(copy::Peer peer, uint64_t tag, uint64_t seed, uint64_t bytes, size_t pieces) {
  auto buffer = std::make_unique<Buffer>(bytes);
  const auto text = content(seed, bytes);
  const MutableBytes memory = buffer->span();
  std::copy(text.begin(), text.end(), memory.begin());
  std::vector<kvbm_transport_piece_t> list;
  for (size_t i = 0; i < pieces; ++i) {
    const uint64_t from = bytes * i / pieces;
    list.push_back({memory.data() + from, bytes * (i + 1) / pieces - from});
  }
  copy::Token token = 0;
  EXPECT_EQ(transport_->push(peer, tag, list.data(), list.size(), token), Code::ok) << name_;
  started_[token] = {peer, true};
  buffers_[token] = std::move(buffer);
  return token;
}

void TransportSide::send(copy::Peer peer, std::string_view text) {
  EXPECT_EQ(transport_->send(peer, std::as_bytes(std::span(text))), Code::ok) << name_;
}

testing::AssertionResult TransportSide::holds(copy::Token token, uint64_t seed, uint64_t bytes) {
  if (!ended(token)) return testing::AssertionFailure() << name_ << ": operation " << token << " has not ended";
  const End& end = ends.at(token);
  if (end.status != Code::ok) return testing::AssertionFailure() << name_ << ": ended with " << code_name(end.status);
  if (end.bytes != bytes)
    return testing::AssertionFailure() << name_ << ": " << end.bytes << " bytes came, not " << bytes;
  const MutableBytes memory = buffers_.at(token)->span();
  const auto wanted = content(seed, bytes);
  if (!std::equal(wanted.begin(), wanted.end(), memory.begin())) {
    return testing::AssertionFailure() << name_ << ": other bytes came than were pushed";
  }
  if (!buffers_.at(token)->margins_hold()) return testing::AssertionFailure() << name_ << ": written beside the memory";
  return testing::AssertionSuccess();
}

void TransportSide::expect_alive(copy::Peer peer) const {
  EXPECT_EQ(closed.count(peer), 0U) << name_ << ": a call after closed()";
  EXPECT_NE(peer, 0U);
}

void TransportSide::end(copy::Peer peer, copy::Token token, bool push, const End& end) {
  expect_alive(peer);
  const auto found = started_.find(token);
  ASSERT_NE(found, started_.end()) << name_ << ": an end of what was never begun";
  EXPECT_EQ(found->second.peer, peer) << name_;
  EXPECT_EQ(found->second.push, push) << name_;
  EXPECT_TRUE(ends.emplace(token, end).second) << name_ << ": operation " << token << " ended twice";
}

void TransportSide::peer_accepted(copy::Peer peer, std::string_view address) {
  expect_alive(peer);
  EXPECT_FALSE(address.empty());
  accepted.push_back(peer);
  if (on_accepted) on_accepted(peer);
}

void TransportSide::peer_connected(copy::Peer peer) {
  expect_alive(peer);
  connected.push_back(peer);
}

void TransportSide::peer_message(copy::Peer peer, ConstBytes bytes) {
  expect_alive(peer);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 8, 0U) << name_ << ": a message is not aligned";
  messages[peer].emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (on_message) on_message(peer, bytes);
}

void TransportSide::peer_writable(copy::Peer peer) {
  expect_alive(peer);
  ++writable[peer];
}

void TransportSide::pushed(copy::Peer peer, copy::Token token, Code status) { end(peer, token, true, {status, 0}); }

void TransportSide::arrived(copy::Peer peer, copy::Token token, uint64_t bytes) {
  expect_alive(peer);
  EXPECT_FALSE(ended(token)) << name_ << ": arrived after the end";
  EXPECT_GE(bytes, arrived_bytes[token]) << name_;
  arrived_bytes[token] = bytes;
  if (on_arrived) on_arrived(peer, token);
}

void TransportSide::received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) {
  end(peer, token, false, {status, bytes});
  EXPECT_TRUE(status == Code::ok || bytes == 0) << name_;
  if (status != Code::ok && buffers_.count(token) != 0) {
    // Poisons the memory, which belongs to the test again: any later access is detected.
    buffers_.at(token)->poison();
    poisoned_.insert(token);
  }
}

void TransportSide::peer_closed(copy::Peer peer, const Status& status) {
  expect_alive(peer);
  EXPECT_FALSE(status.ok()) << name_;
  EXPECT_FALSE(status.message().empty()) << name_;
  for (const auto& [token, operation] : started_) {
    EXPECT_TRUE(operation.peer != peer || ended(token)) << name_ << ": closed() before operation " << token << " ended";
  }
  closed.emplace(peer, status);
}

}  // namespace kvbm::test
