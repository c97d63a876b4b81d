// A TCP proxy on loopback that does to the bytes between two nodes what networks and attackers do: cuts, delays,
// duplicates, drops, changes and withholds them, at random places from a seed. One thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/crypto/random.h"

namespace kvbm::test {

enum class Fault : uint8_t {
  none,
  cut,        // both sides are closed
  reset,      // both sides are closed at once, with an RST
  garble,     // a bit of a byte is another
  overwrite,  // up to 64 bytes are random ones
  duplicate,  // up to 4 KiB come twice
  drop,       // up to 4 KiB do not come
  delay,      // nothing comes for up to 50 ms
  withhold,   // nothing comes any more in this direction, for as long as the connection lasts
};
const char* name_of(Fault fault);

class FaultyProxy {
 public:
  // Forwards to `target`, "127.0.0.1:port".
  FaultyProxy(const std::string& target, uint64_t seed);
  ~FaultyProxy();
  FaultyProxy(const FaultyProxy&) = delete;
  FaultyProxy& operator=(const FaultyProxy&) = delete;

  // Returns the address to connect to instead of the target; empty if the proxy could not listen.
  [[nodiscard]] const std::string& address() const { return address_; }
  // Sets the fault for all connections and both directions from now on. One occurs in about `every_bytes` bytes (evenly
  // between 0 and twice that). Fault::none ends it, but connections that suffer already stay as they are.
  void set(Fault fault, uint64_t every_bytes);
  // Bytes per second in each direction, over all connections; 0: no limit.
  void slow(uint64_t bytes_per_second) { rate_ = bytes_per_second; }
  // Forwards connections accepted from now on to another target: a server that was killed and started again may have
  // another port.
  void retarget(const std::string& target);
  [[nodiscard]] uint64_t faults() const { return faults_; }
  [[nodiscard]] uint64_t connections() const { return accepted_; }
  // Returns the first bytes that each connection sent to the target.
  [[nodiscard]] std::vector<std::string> recorded() const;
  static constexpr size_t kRecorded = 4096;

 private:
  struct Way {
    std::string waiting;  // to be written
    uint64_t until_fault = UINT64_MAX;
    uint64_t epoch = 0;  // of the faults that until_fault was drawn for
    uint64_t held_until_ns = 0;
    bool withheld = false;
    bool ended = false;  // its source has closed
    bool shut = false;   // and its target was notified
  };
  struct Pair {
    int fds[2] = {-1, -1};  // the connecting side, the target
    Way ways[2];            // from fds[i] to fds[1 - i]
    bool broken = false;
    bool reset = false;
    std::string recorded;
  };

  void run();
  void accept_one();
  void read_from(Pair& pair, int side);
  void write_to(Pair& pair, int way);
  void pass(Pair& pair, int way, std::string bytes);
  void close_pair(Pair& pair);

  std::string address_;
  SeededRandom random_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> rate_{0};
  uint64_t next_ns_[2] = {0, 0};      // when a direction that is slowed may go on
  std::atomic<uint64_t> setting_{0};  // epoch << 48 | fault << 40 | every_bytes
  std::atomic<uint64_t> faults_{0};
  std::atomic<uint64_t> accepted_{0};
  std::vector<std::unique_ptr<Pair>> pairs_;
  mutable std::mutex mutex_;
  std::string target_;
  std::vector<std::string> recorded_;
  std::thread thread_;
};

}  // namespace kvbm::test
