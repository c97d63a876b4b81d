// The process that speaks to Mooncake (client.py), and the socket and memory it shares with this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kvbm_mooncake {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class Helper {
 public:
  Helper() = default;
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() { kill(); }

  // Starts the helper with `memory`, a file that it maps. Returns "" if it runs, else a sentence. Blocks until the
  // process has begun.
  std::string start(const std::string& python, const std::vector<std::string>& arguments, const std::string& log,
                    int memory);
  [[nodiscard]] bool runs() const { return pid_ > 0; }
  [[nodiscard]] int socket() const { return socket_.get(); }
  // Asks the helper to end and waits for it, a few seconds at most. Kills it after that.
  void end();
  // Kills the helper. When this returns, it no longer has the shared memory mapped.
  void kill();

 private:
  bool is_reaped(int flags);

  pid_t pid_ = -1;
  Fd socket_;
};

}  // namespace kvbm_mooncake
