// The sending half of a connection without its socket: what waits, in which order it goes out, and what has ended when
// some of it went. Messages go ahead of bulk, but not into a bulk frame that has begun. Pushes go one after the other,
// straight out of the host's memory.
//
// Once guarded (sender_guarded.cc), frames leave in the order in which they got their tags: a message gets its tag when it
// is queued, bulk a batch ahead of the socket, so that the kernel copies what the tag has just brought into a cache. What
// is only authenticated leaves out of the host's memory as before; what is enciphered, out of a buffer that lives as long
// as the batch.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <vector>

#include "base/status.h"
#include "copy/frame_guard.h"
#include "copy/ring.h"
#include "copy/tcp/frame.h"
#include "copy/transport_abi.h"

namespace kvbm::copy::tcp {

class SenderSink {
 public:
  virtual ~SenderSink() = default;
  virtual void on_pushed(uint64_t token) = 0;
};

class Sender {
 public:
  // Vectors and bytes that one gather() fills at most.
  static constexpr size_t kVectors = 128;
  static constexpr uint64_t kGatherBytes = 1U << 20;

  [[nodiscard]] bool idle() const noexcept { return queued() == 0 && pushes_.empty(); }
  [[nodiscard]] bool pushing() const noexcept { return !pushes_.empty(); }
  // Bytes of messages that wait, with their headers.
  [[nodiscard]] size_t queued() const noexcept { return messages_.size() - messages_at_; }

  // What is queued already goes out as it is; nothing may have been pushed.
  void guard(std::unique_ptr<FrameGuard> guard);
  [[nodiscard]] bool guarded() const noexcept { return guard_ != nullptr; }

  // A message's frame, of which the first `sent` bytes are out already; nothing else may be half sent then.
  void queue_message(const std::byte* header, ConstBytes body, size_t sent);
  // The same once guarded. Not ok: nothing more can be sent (closed: the key has covered what it may).
  Code queue_guarded(ConstBytes body);
  // Room for a push of n pieces, so that push() does not fail.
  void reserve(size_t n) {
    pushes_.reserve(1);
    pieces_.reserve(n);
  }
  // The number of the next push, for cancel().
  [[nodiscard]] uint64_t next_number() const noexcept { return pushes_.end(); }
  // Borrows the pieces' memory, not the array. reserve() has been called.
  void push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t total, uint64_t token);
  // False when some of it is out.
  bool cancel(uint64_t number) noexcept;

  // Fills vectors with what goes out next; gives their number.
  size_t gather(iovec* out) noexcept;
  // Why gather() has nothing more to send although something waits: as of queue_guarded(), or no_memory.
  [[nodiscard]] Code failure() const noexcept { return failure_; }
  // The first n bytes of the last gather() are out.
  void sent(uint64_t n, SenderSink& sink);

 private:
  struct Piece {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
  };
  struct Push {
    uint64_t tag = 0;
    uint64_t token = 0;
    uint64_t total = 0;
    uint64_t framed = 0;  // bytes in frames that have begun
    size_t pieces = 0;
    bool begun = false;
    bool cancelled = false;
  };
  // Where in pieces_ the next byte is.
  struct Cursor {
    uint64_t piece = 0;
    uint64_t at = 0;
  };
  struct Filling {
    iovec* out;
    size_t count = 0;
    uint64_t room = kGatherBytes;
    [[nodiscard]] bool full() const noexcept { return count == kVectors || room == 0; }
    void add(const void* data, uint64_t bytes) noexcept;
  };

  // A bulk frame that has its tag and is not out.
  struct Tagged {
    std::array<std::byte, kHeaderBytes> header;
    std::array<std::byte, FrameGuard::kTagBytes> tag;
    uint64_t payload = 0;                    // bytes of it
    Cursor at;                               // where they are in pieces_,
    const std::byte* enciphered = nullptr;   // or here
    bool last = false;                       // of its push
    [[nodiscard]] uint64_t bytes() const noexcept { return header.size() + payload + tag.size(); }
  };
  // Frames of bulk that were given their tags together.
  struct Batch {
    static constexpr size_t kFrames = 32;
    std::array<Tagged, kFrames> frames;
    size_t first = 0, end = 0;  // of frames, those that are not out
    uint64_t sent = 0;          // bytes of the first of them that are
    std::unique_ptr<std::byte[]> enciphered;
    size_t room = 0;  // there
    uint64_t push = 0;  // number of the next push that is not framed to its end,
    Cursor next;        // and where its next byte is
    [[nodiscard]] bool empty() const noexcept { return first == end; }
  };

  static Header next_header(const Push& push, uint64_t framed, uint32_t most = kChunkBytes) noexcept;
  void tag_batch() noexcept;
  bool make_room(Batch& batch) noexcept;
  Code tag_frame(Push& push, std::byte* enciphered) noexcept;
  size_t gather_guarded(iovec* out) noexcept;
  void gather_frame(Filling& filling, const Tagged& frame, uint64_t sent) noexcept;
  void sent_guarded(uint64_t n, SenderSink& sink);
  void settle_messages() noexcept;
  void drop_cancelled() noexcept;
  void gather_payload(Filling& filling, Cursor& cursor, uint64_t bytes) noexcept;
  void gather_frames(Filling& filling, Cursor cursor) noexcept;
  uint64_t send_frame(uint64_t n, SenderSink& sink);
  void take_payload(uint64_t bytes) noexcept;

  std::vector<std::byte> messages_;
  size_t messages_at_ = 0;
  Ring<Push> pushes_;
  Ring<Piece> pieces_;
  uint64_t piece_at_ = 0;  // bytes of the first piece that are out
  // The frame of the first push that has begun: what of it is not out.
  std::array<std::byte, kHeaderBytes> header_{};
  size_t header_rest_ = 0;
  uint64_t chunk_rest_ = 0;
  std::array<std::array<std::byte, kHeaderBytes>, kVectors / 2> planned_{};
  std::unique_ptr<FrameGuard> guard_;  // null: frames have no tags
  std::unique_ptr<Batch> batch_;       // there once guarded
  Code failure_ = Code::ok;
};

}  // namespace kvbm::copy::tcp
