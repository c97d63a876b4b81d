// An attacker on the path of a protected TCP connection. The input says how it changes a stream of frames that were
// really sent. Whatever the change, the receiver reports only frames that were sent, in order, and none after the
// first changed frame.
//
// Input: byte 0 chooses the protection and the pieces the stream is cut into. Then come operations of four bytes:
// kind, frame and position. An operation flips a bit, drops, repeats or cuts a frame, exchanges it with the next, or
// inserts bytes of the input.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "copy/tcp/receiver.h"
#include "copy/tcp/sender.h"
#include "target.h"

namespace guarded_stream_fuzz {

namespace {

using namespace kvbm;
using copy::FrameGuard;
using copy::Protection;
using copy::tcp::kHeaderBytes;
using copy::tcp::Receiver;
using Bytes = std::vector<std::byte>;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

constexpr uint64_t kTags = 4;
constexpr uint64_t kPostBytes = 3000;

std::unique_ptr<FrameGuard> guard(Protection how) {
  const std::array<uint8_t, FrameGuard::kKeyBytes> key{7};
  return FrameGuard::make(how, key.data()).value();
}

struct Nothing final : copy::tcp::SenderSink {
  void on_pushed(uint64_t) override {}
};

std::vector<Bytes> frames_that_were_sent(Protection how) {
  copy::tcp::Sender sender;
  sender.guard(guard(how));
  static const Bytes bulk(2500, std::byte{0x5A});
  for (uint64_t i = 0; i < kTags + 1; ++i) {  // no receive is posted for the last one
    const std::string text = "message " + std::to_string(i);
    check(sender.queue_guarded(std::as_bytes(std::span(text))) == Code::ok);
    const kvbm_transport_piece_t piece{bulk.data(), 1 + i * 600};
    sender.reserve(1);
    sender.push(i, &piece, 1, piece.bytes, i);
  }
  Bytes stream;
  Nothing nothing;
  for (iovec vectors[copy::tcp::Sender::kVectors];;) {
    const size_t n = sender.gather(vectors);
    size_t bytes = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto* at = static_cast<const std::byte*>(vectors[i].iov_base);
      stream.insert(stream.end(), at, at + vectors[i].iov_len);
      bytes += vectors[i].iov_len;
    }
    if (n == 0) break;
    sender.sent(bytes, nothing);
  }
  std::vector<Bytes> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t whole = kHeaderBytes + load_le<uint32_t>(stream.data() + at + 8) + FrameGuard::kTagBytes;
    out.emplace_back(stream.begin() + static_cast<ptrdiff_t>(at), stream.begin() + static_cast<ptrdiff_t>(at + whole));
    at += whole;
  }
  return out;
}

struct Heard final : copy::tcp::ReceiverSink {
  void on_message(ConstBytes bytes) override { tell("message", bytes); }
  void on_arrived(uint64_t token, uint64_t bytes) override { tell("arrived", ConstBytes(memory[token]).first(bytes)); }
  void on_received(uint64_t token, Code status, uint64_t bytes) override {
    tell(std::to_string(static_cast<int>(status)).c_str(), ConstBytes(memory[token]).first(bytes));
  }
  [[nodiscard]] bool open() const override { return true; }
  void tell(const char* what, ConstBytes bytes) {
    log.push_back(what + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  std::vector<std::string> log;
  std::array<Bytes, kTags> memory;  // of exactly the posted size, so that a sanitizer sees an overrun
};

std::vector<std::string> hear(const std::vector<Bytes>& frames, Protection how, size_t step) {
  Bytes stream;
  for (const Bytes& frame : frames) stream.insert(stream.end(), frame.begin(), frame.end());
  Heard heard;
  Receiver receiver;
  receiver.guard(guard(how));
  for (uint64_t i = 0; i < kTags; ++i) {
    heard.memory[i].resize(kPostBytes);
    check(receiver.post(i, {heard.memory[i].data(), kPostBytes, i}));
  }
  alignas(8) static std::array<std::byte, Receiver::kStagingBytes> staging;
  const bool admitted = true;
  ConstBytes bytes(stream);
  for (const char* why = nullptr; !bytes.empty() && why == nullptr;) {
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
    why = receiver.landed(landed, staging, admitted, heard);
  }
  return heard.log;
}

void alter(std::vector<Bytes>& frames, const uint8_t* operation, ConstBytes input) {
  if (frames.empty()) return;
  const size_t which = operation[1] % frames.size();
  const auto at = frames.begin() + static_cast<ptrdiff_t>(which);
  Bytes& frame = *at;
  const size_t place = (size_t{operation[2]} << 8 | operation[3]) % (frame.size() + 1);
  switch (operation[0] % 6) {
    case 0:
      if (place < frame.size()) frame[place] ^= static_cast<std::byte>(1 << operation[0] / 6 % 8);
      break;
    case 1:
      frames.erase(at);
      break;
    case 2:
      frames.insert(at, Bytes(frame));
      break;
    case 3:
      if (which + 1 < frames.size()) std::swap(frame, frames[which + 1]);
      break;
    case 4:
      frame.resize(place);
      break;
    default:
      frame.insert(frame.begin() + static_cast<ptrdiff_t>(place), input.begin(), input.end());
  }
}

}  // namespace

KVBM_FUZZ_TARGET(guarded_stream) {
  if (size < 1) return 0;
  const Protection how = (data[0] & 1) != 0 ? Protection::encrypt : Protection::authenticate;
  const size_t step = data[0] / 2 == 0 ? SIZE_MAX : size_t{data[0] / 2U};
  const ConstBytes input(reinterpret_cast<const std::byte*>(data), std::min<size_t>(size, 64));
  static const std::vector<Bytes> sent[2] = {frames_that_were_sent(Protection::authenticate),
                                             frames_that_were_sent(Protection::encrypt)};
  static const std::vector<std::string> whole[2] = {hear(sent[0], Protection::authenticate, SIZE_MAX),
                                                    hear(sent[1], Protection::encrypt, SIZE_MAX)};
  const size_t mode = how == Protection::encrypt ? 1 : 0;
  std::vector<Bytes> frames = sent[mode];
  for (size_t i = 1; i + 4 <= size && i < 64; i += 4) alter(frames, data + i, input);
  const std::vector<std::string> heard = hear(frames, how, step);
  check(heard.size() <= whole[mode].size());
  check(std::equal(heard.begin(), heard.end(), whole[mode].begin()));
  if (frames == sent[mode]) check(heard.size() == whole[mode].size());
  return 0;
}

}  // namespace guarded_stream_fuzz
