// A real S3 server in a process and a directory of its own, on a free port of the loopback; ends with the test. Both
// kinds refuse wrong signatures. tools/setup installs them.
#pragma once

#include <sys/types.h>

#include <string>

#include "support/temp_dir.h"

namespace kvbm::test {

class S3Server {
 public:
  enum class Kind { versitygw, minio };
  // Returns the path of the program; "" if it is not installed.
  static std::string program(Kind kind = Kind::versitygw);

  S3Server() = default;
  ~S3Server() { stop(); }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  // Starts the server with one bucket, `bucket()`. Returns false if it does not answer within a minute.
  bool start(Kind kind = Kind::versitygw);
  // Starts versitygw over TLS with a certificate of its own, certificate(). Returns false also if there is no openssl
  // command.
  bool start_tls();
  // Restarts with its old data, or with an empty bucket, on the same port.
  bool start_again(bool with_data);
  void stop();  // by request; killed if it does not end
  void kill();
  void freeze();
  void thaw();

  [[nodiscard]] std::string endpoint() const {
    return (is_tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
  }
  [[nodiscard]] std::string certificate() const { return directory_.path() + "/certificate.pem"; }
  [[nodiscard]] static std::string bucket() { return "kvbm-test"; }
  [[nodiscard]] static std::string access_key() { return "kvbmtestkey"; }
  [[nodiscard]] static std::string secret() { return "kvbmtestsecret"; }
  [[nodiscard]] static std::string region() { return "eu-test-1"; }
  [[nodiscard]] std::string data() const { return directory_.path() + "/data"; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Output of the server.
  [[nodiscard]] std::string log() const;

 private:
  bool launch();
  bool answers() const;

  TempDir directory_;
  Kind kind_ = Kind::versitygw;
  bool is_tls_ = false;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace kvbm::test
