// The two halves of a protected TCP connection, without sockets: what arrives is what was sent, in its order, or the
// receiver says that it is not and tells of nothing more. Every byte of a stream is changed, and its frames are
// repeated, left out, exchanged, cut and sent back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "copy/tcp/receiver.h"
#include "copy/tcp/sender.h"
#include "support/transport_side.h"

namespace kvbm::copy::tcp::guarded_stream_test {
namespace {

using Bytes = std::vector<std::byte>;

struct Key {
  explicit Key(uint8_t first) { bytes.fill(first); }
  std::array<uint8_t, FrameGuard::kKeyBytes> bytes;
};
const Key kThere(1);
const Key kBack(2);

std::unique_ptr<FrameGuard> guard_of(Protection how, const Key& key, uint64_t blocks = FrameGuard::kMostBlocks) {
  return FrameGuard::make(how, key.bytes.data(), blocks).value();
}

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// The bytes that a sender writes to its socket, `step` bytes at a time.
class Out final : public SenderSink {
 public:
  explicit Out(Protection how, const Key& key = kThere) { sender.guard(guard_of(how, key)); }

  void say(std::string_view text) { EXPECT_EQ(sender.queue_guarded(bytes_of(text)), Code::ok); }
  // Pushes bytes in pieces of odd sizes.
  void push(uint64_t tag, ConstBytes bytes) {
    std::vector<kvbm_transport_piece_t> pieces;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(bytes.size() - at, 1 + at * 7 % 5000);
      pieces.push_back({bytes.data() + at, n});
      at += n;
    }
    sender.reserve(pieces.size());
    sender.push(tag, pieces.data(), pieces.size(), bytes.size(), ++pushes);
  }
  bool send(size_t step) {
    iovec vectors[Sender::kVectors];
    const size_t n = sender.gather(vectors);
    size_t taken = 0;
    for (size_t i = 0; i < n && taken < step; ++i) {
      const auto* at = static_cast<const std::byte*>(vectors[i].iov_base);
      const size_t some = std::min(step - taken, vectors[i].iov_len);
      stream.insert(stream.end(), at, at + some);
      taken += some;
    }
    sender.sent(taken, *this);
    return taken != 0;
  }
  Bytes all(size_t step = SIZE_MAX) {
    while (send(step)) {
    }
    EXPECT_TRUE(sender.idle());
    return stream;
  }
  void on_pushed(uint64_t token) override { ended.push_back(token); }

  Sender sender;
  Bytes stream;
  uint64_t pushes = 0;
  std::vector<uint64_t> ended;
};

// The result of a stream: every report, and the reason of its end.
struct Heard final : ReceiverSink {
  void on_message(ConstBytes bytes) override {
    log.emplace_back("message " + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void on_arrived(uint64_t token, uint64_t bytes) override {
    const Bytes& at = memory[token];
    log.push_back("arrived " + std::to_string(token) + " " + std::to_string(bytes) + " " +
                  std::string(reinterpret_cast<const char*>(at.data()), bytes));
  }
  void on_received(uint64_t token, Code status, uint64_t bytes) override {
    const Bytes& at = memory[token];
    log.push_back("received " + std::to_string(token) + " " + std::to_string(static_cast<int>(status)) + " " +
                  std::string(reinterpret_cast<const char*>(at.data()), bytes));
  }
  [[nodiscard]] bool open() const override { return true; }

  std::vector<std::string> log;
  const char* why = nullptr;
  std::array<Bytes, 5> memory;
};

constexpr size_t kPostBytes = 1000;
constexpr size_t kLargePost = 700'000;

Heard hear(const Bytes& stream, Protection how, size_t step = SIZE_MAX, size_t post_bytes = kPostBytes,
           const Key& key = kThere, uint64_t blocks = FrameGuard::kMostBlocks) {
  Heard heard;
  Receiver receiver;
  receiver.guard(guard_of(how, key, blocks));
  for (uint64_t tag = 1; tag < heard.memory.size(); ++tag) {
    heard.memory[tag].resize(post_bytes);
    EXPECT_TRUE(receiver.post(tag, {heard.memory[tag].data(), post_bytes, tag}));
  }
  alignas(8) static std::array<std::byte, Receiver::kStagingBytes> staging;
  const bool admitted = true;
  ConstBytes bytes(stream);
  while (!bytes.empty() && heard.why == nullptr) {
    iovec vectors[2];
    const size_t n = receiver.targets(staging, vectors);
    size_t landed = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t part = std::min({vectors[i].iov_len, bytes.size(), step - landed});
      if (part != 0) std::memcpy(vectors[i].iov_base, bytes.data(), part);
      bytes = bytes.subspan(part);
      landed += part;
      if (part != vectors[i].iov_len) break;
    }
    heard.why = receiver.landed(landed, staging, admitted, heard);
  }
  return heard;
}

// The frames of a stream, each with its tag.
std::vector<Bytes> frames_of(const Bytes& stream) {
  std::vector<Bytes> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t whole = kHeaderBytes + load_le<uint32_t>(stream.data() + at + 8) + FrameGuard::kTagBytes;
    out.emplace_back(stream.begin() + static_cast<ptrdiff_t>(at), stream.begin() + static_cast<ptrdiff_t>(at + whole));
    at += whole;
  }
  return out;
}

Bytes joined(const std::vector<Bytes>& frames) {
  Bytes out;
  for (const Bytes& frame : frames) out.insert(out.end(), frame.begin(), frame.end());
  return out;
}

// Expects that `heard` is a part of the reports of the unchanged stream, from its beginning. With `ends`, also that the
// stream was ended there.
void expect_cut_short(const Heard& whole, const Heard& heard, bool ends = true) {
  ASSERT_LE(heard.log.size(), whole.log.size());
  EXPECT_TRUE(std::equal(heard.log.begin(), heard.log.end(), whole.log.begin()));
  if (ends) {
    EXPECT_NE(heard.why, nullptr);
    EXPECT_LT(heard.log.size(), whole.log.size());
  }
}

class GuardedStream : public testing::TestWithParam<Protection> {
 protected:
  // Messages, pushes of one byte, of several frames, of no bytes, and one without a posted receive.
  static Bytes small(Protection how) {
    Out out(how);
    out.say("first");
    out.push(1, bytes_of("x"));
    out.push(2, {});
    out.push(9, bytes_of("nobody wants this"));
    (void)out.send(40);
    out.say("second");
    out.push(3, bytes_of("some more bytes of a third push"));
    (void)out.all();
    out.say("");
    return out.all();
  }
};

TEST_P(GuardedStream, what_is_sent_arrives_however_it_is_cut) {
  const Bytes large = test::content(7, 600'000);
  std::vector<std::string> first;
  for (const size_t step : {SIZE_MAX, size_t{100'000}, size_t{4096}, size_t{333}}) {
    Out out(GetParam());
    out.push(1, large);
    out.say("one");
    (void)out.send(step);
    out.say("two");  // waits for what has its tag
    out.push(2, ConstBytes(large).first(5000));
    const Bytes stream = out.all(step);
    EXPECT_EQ(out.ended, (std::vector<uint64_t>{1, 2}));
    const Heard heard = hear(stream, GetParam(), step, kLargePost);
    EXPECT_EQ(heard.why, nullptr);
    EXPECT_EQ(std::memcmp(heard.memory[1].data(), large.data(), large.size()), 0);
    EXPECT_EQ(std::memcmp(heard.memory[2].data(), large.data(), 5000), 0);
    EXPECT_EQ(heard.log.back(), "received 2 0 " + std::string(reinterpret_cast<const char*>(large.data()), 5000));
    if (first.empty()) first = heard.log;
  }
}

TEST_P(GuardedStream, nothing_of_what_is_enciphered_can_be_read_on_the_way) {
  const std::string text = "a line that somebody on the way would like to read";
  Out out(GetParam());
  out.say(text);
  out.push(1, bytes_of(text));
  const Bytes stream = out.all();
  const std::string all(reinterpret_cast<const char*>(stream.data()), stream.size());
  EXPECT_EQ(all.find(text) != std::string::npos, GetParam() == Protection::authenticate);
  EXPECT_EQ(hear(stream, GetParam()).why, nullptr);
}

TEST_P(GuardedStream, a_byte_that_is_another_is_noticed_wherever_it_is) {
  const Bytes stream = small(GetParam());
  const Heard whole = hear(stream, GetParam());
  ASSERT_EQ(whole.why, nullptr);
  ASSERT_EQ(whole.log.size(), 6U);
  for (size_t at = 0; at < stream.size(); ++at) {
    for (const auto bit : {std::byte{1}, std::byte{128}}) {
      Bytes changed = stream;
      changed[at] ^= bit;
      SCOPED_TRACE("byte " + std::to_string(at));
      const Heard heard = hear(changed, GetParam());
      // A frame with a length beyond the rest of the stream leaves the receiver waiting for more.
      expect_cut_short(whole, heard, false);
      EXPECT_LT(heard.log.size(), whole.log.size());
    }
  }
}

TEST_P(GuardedStream, frames_that_are_repeated_left_out_exchanged_or_of_another_stream_are_noticed) {
  const Bytes stream = small(GetParam());
  const Heard whole = hear(stream, GetParam());
  const std::vector<Bytes> frames = frames_of(stream);
  Out other(GetParam(), kBack);
  other.say("first");
  other.say("second");
  const std::vector<Bytes> back = frames_of(other.all());
  for (size_t i = 0; i < frames.size(); ++i) {
    SCOPED_TRACE("frame " + std::to_string(i));
    std::vector<Bytes> repeated = frames;
    repeated.insert(repeated.begin() + static_cast<ptrdiff_t>(i), frames[i]);
    const Heard twice = hear(joined(repeated), GetParam());
    EXPECT_NE(twice.why, nullptr);
    expect_cut_short(whole, twice, i + 1 != frames.size());
    if (i + 1 != frames.size()) {
      std::vector<Bytes> exchanged = frames;
      std::swap(exchanged[i], exchanged[i + 1]);
      expect_cut_short(whole, hear(joined(exchanged), GetParam()));
      std::vector<Bytes> without = frames;
      without.erase(without.begin() + static_cast<ptrdiff_t>(i));
      expect_cut_short(whole, hear(joined(without), GetParam()));
    }
    // Frames of the other direction, and of another connection.
    std::vector<Bytes> swapped = frames;
    swapped[i] = back[i % back.size()];
    expect_cut_short(whole, hear(joined(swapped), GetParam()));
  }
  EXPECT_NE(hear(joined(back), GetParam()).why, nullptr);
}

TEST_P(GuardedStream, a_stream_that_ends_anywhere_tells_of_whole_frames_alone) {
  const Bytes stream = small(GetParam());
  const Heard whole = hear(stream, GetParam());
  for (size_t n = 0; n < stream.size(); ++n) {
    const Heard heard = hear(Bytes(stream.begin(), stream.begin() + static_cast<ptrdiff_t>(n)), GetParam());
    EXPECT_EQ(heard.why, nullptr);
    expect_cut_short(whole, heard, false);
  }
}

// Streams with the other kind of protection, with another key, and without tags.
TEST_P(GuardedStream, what_is_not_protected_in_this_way_is_not_taken) {
  const Bytes stream = small(GetParam());
  const Protection other = GetParam() == Protection::encrypt ? Protection::authenticate : Protection::encrypt;
  for (const Heard& heard : {hear(stream, other), hear(stream, GetParam(), SIZE_MAX, kPostBytes, kBack)}) {
    EXPECT_EQ(heard.why, Receiver::kAltered);
    EXPECT_TRUE(heard.log.empty());
  }
  Bytes plain(kHeaderBytes);
  encode({Kind::message, 5, 0, 0}, plain.data());
  const ConstBytes body = bytes_of("plain");
  plain.insert(plain.end(), body.begin(), body.end());
  plain.resize(plain.size() + 100);
  const Heard heard = hear(plain, GetParam());
  EXPECT_NE(heard.why, nullptr);
  EXPECT_TRUE(heard.log.empty());
}

// No report of a frame, not even that it is too large, precedes the check of its tag.
TEST_P(GuardedStream, a_push_larger_than_its_post_is_told_when_it_is_known_to_be_one) {
  Out out(GetParam());
  const Bytes large = test::content(3, 300'000);
  out.push(1, large);
  Bytes stream = out.all();
  Heard heard = hear(stream, GetParam());
  ASSERT_EQ(heard.log.size(), 1U);
  EXPECT_EQ(heard.log[0], "received 1 " + std::to_string(static_cast<int>(Code::mismatch)) + " ");
  EXPECT_EQ(heard.why, nullptr);
  stream[24] ^= std::byte{1};  // its size
  heard = hear(stream, GetParam());
  EXPECT_TRUE(heard.log.empty());
  EXPECT_EQ(heard.why, Receiver::kAltered);
}

TEST_P(GuardedStream, a_frame_that_says_it_is_longer_than_any_is_not_waited_for) {
  Bytes header(kHeaderBytes);
  encode({Kind::bulk, kMostGuardedBytes + 1, 1, 1U << 30}, header.data());
  EXPECT_NE(hear(header, GetParam()).why, nullptr);
}

TEST_P(GuardedStream, no_key_covers_more_than_it_may) {
  constexpr uint64_t kFew = 20;  // blocks
  Sender sender;
  sender.guard(guard_of(GetParam(), kThere, kFew));
  int said = 0;
  while (sender.queue_guarded(bytes_of("sixteen bytes...")) == Code::ok) ASSERT_LT(++said, 10);
  EXPECT_EQ(said, 4);
  EXPECT_EQ(sender.failure(), Code::closed);
  EXPECT_EQ(sender.queue_guarded({}), Code::closed);
  // Bulk ends at the limit of the key, too.
  Sender pushing;
  pushing.guard(guard_of(GetParam(), kThere, kFew));
  const Bytes bytes = test::content(1, 1000);
  const kvbm_transport_piece_t piece{bytes.data(), bytes.size()};
  pushing.reserve(1);
  pushing.push(1, &piece, 1, bytes.size(), 1);
  iovec vectors[Sender::kVectors];
  EXPECT_EQ(pushing.gather(vectors), 0U);
  EXPECT_EQ(pushing.failure(), Code::closed);
  // The receiver stops at its own limit of the key, whatever that of the sender is.
  Out out(GetParam());
  for (int i = 0; i < 10; ++i) out.say("sixteen bytes...");
  const Heard heard = hear(out.all(), GetParam(), SIZE_MAX, kPostBytes, kThere, kFew);
  EXPECT_EQ(heard.log.size(), 4U);
  EXPECT_EQ(heard.why, Receiver::kKeyUsedUp);
}

TEST_P(GuardedStream, a_push_that_is_cancelled_before_it_has_a_tag_leaves_no_trace) {
  Out out(GetParam());
  const Bytes large = test::content(5, 400'000);
  out.push(1, large);
  const uint64_t second = out.sender.next_number();
  out.push(2, ConstBytes(large).first(300'000));
  out.push(3, ConstBytes(large).first(100));
  ASSERT_TRUE(out.send(1000));
  EXPECT_TRUE(out.sender.cancel(second));
  EXPECT_FALSE(out.sender.cancel(second - 1));
  (void)out.all();
  EXPECT_EQ(out.ended, (std::vector<uint64_t>{1, 3}));
  const Heard heard = hear(out.stream, GetParam(), SIZE_MAX, kLargePost);
  EXPECT_EQ(heard.why, nullptr);
  EXPECT_EQ(std::memcmp(heard.memory[1].data(), large.data(), large.size()), 0);
  EXPECT_EQ(heard.log.back(), "received 3 0 " + std::string(reinterpret_cast<const char*>(large.data()), 100));
  EXPECT_EQ(heard.memory[2][0], std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(Both, GuardedStream, testing::Values(Protection::authenticate, Protection::encrypt),
                         [](const auto& made) { return std::string(protection_name(made.param)); });

}  // namespace
}  // namespace kvbm::copy::tcp::guarded_stream_test
