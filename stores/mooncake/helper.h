// The process that speaks to Mooncake (client.py), and what it shares with this one: a socket and memory.
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

  // "" when it runs. Else a sentence. `memory`: a file that it maps. Blocks: until the process has begun.
  std::string start(const std::string& python, const std::vector<std::string>& arguments, const std::string& log,
                    int memory);
  [[nodiscard]] bool runs() const { return pid_ > 0; }
  [[nodiscard]] int socket() const { return socket_.get(); }
  // Tells it to end and waits for that, a few seconds at most; then it is killed.
  void end();
  // It has no memory of ours any more when this returns.
  void kill();

 private:
  bool is_reaped(int flags);

  pid_t pid_ = -1;
  Fd socket_;
};

}  // namespace kvbm_mooncake
