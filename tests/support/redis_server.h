// A real Redis or Valkey server in a process and a directory of its own, on a free port of the loopback; ends with the
// test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace kvbm::test {

class RedisServer {
 public:
  enum class Kind { redis, valkey };
  // Chooses the kind of all servers that are started from here on.
  static void choose(Kind kind);
  // Returns why no server of that kind can run here; "" if one can.
  static std::string missing(Kind kind);
  static std::string name_of(Kind kind) { return kind == Kind::redis ? "redis" : "valkey"; }

  RedisServer() = default;
  ~RedisServer() { stop(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // Starts the server with these options of its command line, such as {"--maxmemory", "64mb"}; {"--tls-port", ""} takes
  // a free port. Returns false if it does not answer within a minute.
  bool start(std::vector<std::string> options = {});
  // Restarts the server on the same port, with the data of the last save() or empty. Does not wait: the server may
  // still be loading.
  bool start_again(bool with_data, std::vector<std::string> more = {}, bool waits = true);
  void stop();  // by request; killed if it does not end
  void kill();
  void freeze();
  void thaw();
  // Sends a command. Returns the first line of the answer and the part of the rest that arrived with it; "" without an
  // answer.
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
