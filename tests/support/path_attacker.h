// An attacker on the path between two nodes that knows the protocol but no key: a TCP proxy on loopback that reads
// frames (lib/copy/tcp/README.md) and attacks one of them. It has one thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"

namespace kvbm::test {

enum class Attack : uint8_t {
  none,
  header,    // a bit of a frame's header is another
  payload,   // a bit of what it carries
  tag,       // a bit of its tag, or where it has none, of its last byte
  forge,     // a byte of a block, with every hash mended (forged_bulk.h); of bulk alone
  repeat,    // the frame comes twice
  exchange,  // delivered after the next one of its direction
  drop,      // not delivered
  truncate,  // half of it comes, and then the end of the stream
  reflect    // sent back to its sender, and delivered as well
};
const char* name_of(Attack attack);

class PathAttacker {
 public:
  // The attacked frame: from the connecting side to the target, or back; bulk, or a control message of that number
  // (cluster/ README.md, Messages), or any message for 0.
  struct Aim {
    Attack attack = Attack::none;
    bool from_target = true;
    bool bulk = true;
    uint8_t type = 0;
  };

  // Forwards to `target`, "127.0.0.1:port".
  explicit PathAttacker(const std::string& target);
  ~PathAttacker();
  PathAttacker(const PathAttacker&) = delete;
  PathAttacker& operator=(const PathAttacker&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  // Plans one attack on the next frame that `aim` describes, on any connection. Handshakes are not attacked.
  void strike(const Aim& aim);
  // Returns how often an attack was made.
  [[nodiscard]] uint64_t struck() const { return struck_; }
  // Returns whether frames of the newest connection carry tags, as agreed in its handshake.
  [[nodiscard]] bool tagged() const { return tagged_; }
  // Returns the number of control messages of that type seen in both directions. Enciphered messages are not counted.
  [[nodiscard]] uint64_t seen(uint8_t type) const { return seen_[type]; }
  // Watches for these bytes in clear text, in either direction; saw() returns whether they passed.
  void watch_for(std::string bytes);
  [[nodiscard]] bool saw() const { return saw_; }

 private:
  struct Way {
    std::vector<std::byte> in;                 // of a frame that is not whole
    std::vector<std::byte> out;                // to be written
    std::vector<std::byte> held;               // behind the next frame
    std::vector<std::vector<std::byte>> push;  // frames of a push of which more is to come
    uint64_t rest = 0;                         // rest of that push
    uint64_t handshake = 2;                    // frames of it still to come
    uint8_t protect = 0;                       // that this side wants
    std::string tail;                          // end of the passed bytes
    bool ended = false, shut = false;
  };
  struct Pair {
    int fds[2] = {-1, -1};
    Way ways[2];
    bool broken = false;
    [[nodiscard]] size_t tag_bytes() const;
  };

  void run();
  void accept_one();
  void read_from(Pair& pair, int side);
  void take_frames(Pair& pair, int side);
  void take_frame(Pair& pair, int side, std::vector<std::byte> frame);
  void pass(Pair& pair, int side, std::vector<std::byte> frame);
  void pass_push(Pair& pair, int side);
  Attack take_aim(int side, const std::vector<std::byte>& frame);
  void do_it(Pair& pair, int side, std::vector<std::byte> frame, Attack attack);
  bool forge(Pair& pair, Way& way);
  void write_to(Pair& pair, int side);
  void look_for(Way& way, const std::vector<std::byte>& bytes);

  std::string target_, address_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  std::atomic<bool> stopping_{false}, tagged_{false}, saw_{false};
  std::atomic<uint64_t> struck_{0};
  std::atomic<uint64_t> seen_[256] = {};
  std::mutex mutex_;
  Aim aim_;
  std::string watched_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::thread thread_;
};

}  // namespace kvbm::test
