// The receiving half of a connection without its socket: says where the next bytes shall land, and is told how many
// did. Payload of a push lands in the posted memory itself; everything else goes through a staging buffer that all
// connections of a transport share. Posted memory is written by landed()'s caller and by landed() only: between calls
// it is quiet, so a post can be ended at any time.
//
// Once guarded, every frame has a tag behind it, and the sink hears of a frame when its tag has fitted. A push's bytes lie
// in posted memory by then: they are taken into the tag (and deciphered) as they land, while they are in a cache.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <vector>

#include "base/status.h"
#include "copy/flat_table.h"
#include "copy/frame_guard.h"
#include "copy/tcp/frame.h"

namespace kvbm::copy::tcp {

// Where the receiver says what came. Each call may post, end posts, or make open() false; then nothing more is said.
class ReceiverSink {
 public:
  virtual ~ReceiverSink() = default;
  // bytes is aligned to 8 and borrowed.
  virtual void on_message(ConstBytes bytes) = 0;
  virtual void on_arrived(uint64_t token, uint64_t bytes) = 0;
  virtual void on_received(uint64_t token, Code status, uint64_t bytes) = 0;
  [[nodiscard]] virtual bool open() const = 0;
};

class Receiver {
 public:
  struct Post {
    std::byte* to = nullptr;
    uint64_t bytes = 0;
    uint64_t token = 0;
  };
  // Room that staging must have: every message whole, with its header.
  static constexpr size_t kStagingBytes = (64U << 10) + 2 * kHeaderBytes + FrameGuard::kTagBytes;
  // What landed() says of bytes that are not those which the peer sent, and of a key that may cover no more.
  static const char kAltered[];
  static const char kKeyUsedUp[];

  // False when the tag is posted already.
  bool post(uint64_t tag, const Post& post);
  // Forgets a post; its bytes, if they come or are coming, are thrown away. False when that token has no post there.
  bool end_post(uint64_t tag, uint64_t token) noexcept;

  // From the next byte on, or behind the message that the sink is being told of. Once, between frames.
  void guard(std::unique_ptr<FrameGuard> guard) noexcept { guard_ = std::move(guard); }
  [[nodiscard]] bool guarded() const noexcept { return guard_ != nullptr; }

  // Fills at most two vectors with where the next bytes belong; gives their number.
  size_t targets(MutableBytes staging, iovec* out) noexcept;
  // n bytes came, in the order of the vectors of the last targets(). Null, or why the peer is to be dropped.
  const char* landed(size_t n, MutableBytes staging, const bool& admitted, ReceiverSink& sink);
  // Whether the stream could end here: no frame or push is half received.
  [[nodiscard]] bool between_frames() const noexcept;

 private:
  [[nodiscard]] size_t tag_bytes() const noexcept { return guard_ != nullptr ? FrameGuard::kTagBytes : 0; }
  const char* feed(MutableBytes bytes, const bool& admitted, ReceiverSink& sink);
  const char* feed_frame(MutableBytes& bytes, const bool& admitted, ReceiverSink& sink);
  const char* feed_partial(MutableBytes& bytes, const bool& admitted, ReceiverSink& sink);
  const char* begin(const std::byte* header, const Header& said, ReceiverSink& sink);
  const char* advance(MutableBytes bytes, ReceiverSink& sink);
  const char* take_tag(MutableBytes& bytes, ReceiverSink& sink);
  const char* deliver(MutableBytes frame, ReceiverSink& sink);
  void tell(ReceiverSink& sink);

  FrameOrder order_;
  std::unique_ptr<FrameGuard> guard_;  // null: frames come without tags
  FlatTable<Post> posts_;           // by tag
  std::vector<std::byte> aligned_;  // a message that did not come aligned
  std::vector<std::byte> partial_;  // a header, or a message's frame, of which the end is missing
  size_t partial_needs_ = 0;        // bytes that partial_ will have
  Header header_;                   // of partial_, once it is whole
  Post active_;                     // what the push under way fills; to == nullptr: it is thrown away
  bool active_posted_ = false;
  uint64_t active_tag_ = 0;
  uint64_t active_at_ = 0;
  uint64_t active_total_ = 0;
  uint64_t chunk_rest_ = 0;  // payload of the bulk frame under way that has not come
  std::array<std::byte, FrameGuard::kTagBytes> tag_{};  // of that frame, as far as it came
  size_t tag_rest_ = 0;                                 // bytes of it that have not come
};

}  // namespace kvbm::copy::tcp
