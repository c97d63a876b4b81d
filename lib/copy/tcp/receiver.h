// The receiving half of a connection without its socket: it decides where the next bytes are placed, and is notified
// how many arrived. Payload of a push goes to the posted memory itself; everything else goes through a staging buffer
// that all connections of a transport share. Posted memory is written by landed()'s caller and by landed() only.
// Between calls it is not touched, so a post can be ended at any time.
//
// With a guard, every frame is followed by a tag, and the sink is notified of a frame when its tag has verified. A
// push's bytes are in posted memory by then: they are added to the tag (and deciphered) as they arrive, while they are
// in a cache.
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

// Gets the receiver's events. Each call may post, end posts, or make open() false; then no more calls follow.
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
  // Space that staging must have: for a whole message with its header.
  static constexpr size_t kStagingBytes = (64U << 10) + 2 * kHeaderBytes + FrameGuard::kTagBytes;
  // Errors of landed(): for bytes that are not those which the peer sent, and for a key that has reached its limit.
  static const char kAltered[];
  static const char kKeyUsedUp[];

  // False if the tag is posted already.
  bool post(uint64_t tag, const Post& post);
  // Removes a post; later bytes for it are discarded. False if that token has no post there.
  bool end_post(uint64_t tag, uint64_t token) noexcept;

  // Applies from the next byte on, or after the message that the sink is being notified of. Once, between frames.
  void guard(std::unique_ptr<FrameGuard> guard) noexcept { guard_ = std::move(guard); }
  [[nodiscard]] bool guarded() const noexcept { return guard_ != nullptr; }

  // Fills at most two vectors with places for the next bytes; returns their number.
  size_t targets(MutableBytes staging, iovec* out) noexcept;
  // n bytes arrived, in the order of the vectors of the last targets(). Returns null, or why the peer must be dropped.
  const char* landed(size_t n, MutableBytes staging, const bool& admitted, ReceiverSink& sink);
  // True if the stream could end here: no frame or push is partly received.
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
  FlatTable<Post> posts_;              // by tag
  std::vector<std::byte> aligned_;     // a message that did not arrive aligned
  std::vector<std::byte> partial_;     // a header, or a message's frame, with its end missing
  size_t partial_needs_ = 0;           // final size of partial_
  Header header_;                      // header of partial_, once it is whole
  Post active_;                        // target of the current push; to == nullptr: it is discarded
  bool active_posted_ = false;
  uint64_t active_tag_ = 0;
  uint64_t active_at_ = 0;
  uint64_t active_total_ = 0;
  uint64_t chunk_rest_ = 0;                             // payload of the current bulk frame that has not arrived
  std::array<std::byte, FrameGuard::kTagBytes> tag_{};  // tag of that frame, as far as it arrived
  size_t tag_rest_ = 0;                                 // bytes of it that have not arrived
};

}  // namespace kvbm::copy::tcp
