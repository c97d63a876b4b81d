// A socket, with TLS or without. Nothing here blocks but look_up()'s own thread.
#pragma once

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "settings.h"

namespace kvbm_redis {

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t length = 0;
};

// The addresses of a host, looked up on a separate thread, because the system may take long and cannot be
// interrupted.
struct Lookup {
  std::vector<Endpoint> found;  // valid once is_done, like `error`
  std::string error;
  std::atomic<bool> is_done{false};
};
// Starts a lookup. At its end it writes to `wake_fd`, an eventfd, which the caller may close before. A lookup for which
// the system gives no thread has failed at once.
std::shared_ptr<Lookup> look_up(const Address& address, int wake_fd);

// The TLS context that all connections of a store share.
class Tls {
 public:
  // Returns nothing, and a sentence, if a file cannot be used.
  static std::unique_ptr<Tls> make(const Settings& settings, std::string* wrong);
  ~Tls() { SSL_CTX_free(context_); }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  SSL* new_session(const std::string& host) const;

 private:
  Tls(SSL_CTX* context, Verify verify) : context_(context), verify_(verify) {}
  SSL_CTX* const context_;
  const Verify verify_;
};

class Stream {
 public:
  Stream() = default;
  ~Stream() { close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Begins to connect. `tls` may be null. Returns false if this fails at once.
  bool open(const Endpoint& endpoint, const std::string& host, const Tls* tls);
  void close();
  [[nodiscard]] int fd() const { return fd_; }

  // Returns 1 when it is connected, with TLS if there is any. 0: later. -1: failed.
  int connect();
  // Return the number of bytes read or written. 0: later. -1: ended or failed.
  ssize_t read(const iovec* pieces, int n);
  ssize_t write(const iovec* pieces, int n);
  // Returns whether TLS holds bytes that were read already. The socket does not report them any more.
  [[nodiscard]] bool has_pending() const { return ssl_ != nullptr && SSL_pending(ssl_) > 0; }
  // Returns whether connecting or the last read or write waits until the socket can be written.
  [[nodiscard]] bool wants_write() const { return wants_write_; }
  [[nodiscard]] const std::string& error() const { return error_; }
  // Returns whether TLS failed. If no answer came before, a certificate is wrong, or the other side does not speak
  // TLS.
  [[nodiscard]] bool is_refused() const { return is_refused_; }

 private:
  ssize_t judge_tls(int result);

  int fd_ = -1;
  SSL* ssl_ = nullptr;
  bool is_connected_ = false;
  bool wants_write_ = false;
  bool is_refused_ = false;
  std::string error_;
};

}  // namespace kvbm_redis
