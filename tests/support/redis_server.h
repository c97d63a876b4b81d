// A real Redis or Valkey server in a process and a directory of its own, on a free port of the loopback; ends with the test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace kvbm::test {

class RedisServer {
 public:
  enum class Kind { redis, valkey };
  // Which of them all servers are that start from here on.
  static void choose(Kind kind);
  // Why there is none of that kind here; "" if there is.
  static std::string missing(Kind kind);
  static std::string name_of(Kind kind) { return kind == Kind::redis ? "redis" : "valkey"; }

  RedisServer() = default;
  ~RedisServer() { stop(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // `options` as of its command line, {"--maxmemory", "64mb"}; {"--tls-port", ""} is another free port. False when it
  // does not answer within a minute.
  bool start(std::vector<std::string> options = {});
  // On the same port: with what save() wrote last, or empty. Without waiting: it may still be loading.
  bool start_again(bool with_data, std::vector<std::string> more = {}, bool waits = true);
  void stop();  // by request; killed if it does not end
  void kill();
  void freeze();
  void thaw();
  // The first line of the answer, and what follows it as far as it came at once; "" if none came.
  std::string ask(const std::vector<std::string>& words) const;
  bool save() { return ask({"SAVE"}).starts_with("+OK"); }

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int tls_port() const { return tls_port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] const std::string& directory() const { return directory_.path(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Output of the server.
  [[nodiscard]] std::string log() const;

  std::string password;  // for ask()

 private:
  static std::string program(Kind kind);
  bool launch(const std::vector<std::string>& more, bool waits);

  TempDir directory_;
  std::vector<std::string> options_;
  int port_ = 0;
  int tls_port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace kvbm::test
