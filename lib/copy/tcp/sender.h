// The sending half of a connection without its socket: its queues, the order of sending, and the tokens that end as
// bytes are sent. Messages go ahead of bulk, but not into a bulk frame that has begun. Pushes are sent one after the
// other, straight out of the host's memory.
//
// With a guard (sender_guarded.cc), frames are sent in the order in which they got their tags. A message gets its tag
// when it is queued. Bulk gets tags a batch ahead of the socket, so that the kernel copies bytes that the tag has just
// brought into a cache. Bytes that are only authenticated are sent out of the host's memory as before; enciphered ones
// out of a buffer that lives as long as the batch.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/ring.h"
#include "base/status.h"
#include "copy/frame_guard.h"
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
  // Most vectors and bytes that one gather() fills.
  static constexpr size_t kVectors = 128;
  static constexpr uint64_t kGatherBytes = 1U << 20;

  [[nodiscard]] bool idle() const noexcept { return queued() == 0 && pushes_.empty(); }
  [[nodiscard]] bool pushing() const noexcept { return !pushes_.empty(); }
  // Bytes of queued messages, with their headers.
  [[nodiscard]] size_t queued() const noexcept { return messages_.size() - messages_at_; }

  // Messages queued before are sent without tags; no push may be queued.
  void guard(std::unique_ptr<FrameGuard> guard);
  [[nodiscard]] bool guarded() const noexcept { return guard_ != nullptr; }

  // Queues a message's frame with its first `sent` bytes sent already; no other frame may be partly sent then.
  void queue_message(const std::byte* header, ConstBytes body, size_t sent);
  // Queues a message with a tag. Not ok: nothing more can be sent (closed: the key has reached its limit).
  Code queue_guarded(ConstBytes body);
  // Makes room for a push of n pieces, so that push() does not fail.
  void reserve(size_t n) {
    pushes_.reserve(1);
    pieces_.reserve(n);
  }
  // Number of the next push, for cancel().
  [[nodiscard]] uint64_t next_number() const noexcept { return pushes_.end(); }
  // Borrows the pieces' memory, not the array. reserve() must have been called.
  void push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t total, uint64_t token);
  // Returns false if some of it has been sent.
  bool cancel(uint64_t number) noexcept;

  // Fills vectors with the next bytes to send; returns their number.
  size_t gather(iovec* out) noexcept;
  // Reason why gather() returns nothing although output waits: as of queue_guarded(), or no_memory.
  [[nodiscard]] Code failure() const noexcept { return failure_; }
  // The first n bytes of the last gather() have been sent.
  void sent(uint64_t n, SenderSink& sink);

 private:
  struct Push {
    uint64_t tag = 0;
    uint64_t token = 0;
    uint64_t total = 0;
    uint64_t framed = 0;  // bytes in frames that have begun
    size_t pieces = 0;
    bool begun = false;
    bool cancelled = false;
  };
  // Position of the next byte in pieces_.
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

  // A bulk frame with its tag, not sent yet.
  struct Tagged {
    std::array<std::byte, kHeaderBytes> header;
    std::array<std::byte, FrameGuard::kTagBytes> tag;
    uint64_t payload = 0;                   // bytes of payload
    Cursor at;                              // their position in pieces_,
    const std::byte* enciphered = nullptr;  // or their copy, if enciphered
    bool last = false;                      // of its push
    [[nodiscard]] uint64_t bytes() const noexcept { return header.size() + payload + tag.size(); }
  };
  // Bulk frames that got their tags together.
  struct Batch {
    static constexpr size_t kFrames = 32;
    std::array<Tagged, kFrames> frames;
    size_t first = 0, end = 0;  // range of frames that are not sent
    uint64_t sent = 0;          // sent bytes of the first of them
    std::unique_ptr<std::byte[]> enciphered;
    size_t room = 0;    // size of `enciphered`
    uint64_t push = 0;  // number of the next push with bytes not framed,
    Cursor next;        // and the position of its next byte
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
  Ring<ConstBytes> pieces_;
  uint64_t piece_at_ = 0;  // sent bytes of the first piece
  // The current frame of the first push: its part that is not sent.
  std::array<std::byte, kHeaderBytes> header_{};
  size_t header_rest_ = 0;
  uint64_t chunk_rest_ = 0;
  std::array<std::array<std::byte, kHeaderBytes>, kVectors / 2> planned_{};
  std::unique_ptr<FrameGuard> guard_;  // null: frames have no tags
  std::unique_ptr<Batch> batch_;       // set with the guard
  Code failure_ = Code::ok;
};

}  // namespace kvbm::copy::tcp
