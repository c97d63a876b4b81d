#include "stream.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

namespace kvbm_redis {
namespace {

std::string system_text(int error) {
  char text[128];
  return ::strerror_r(error, text, sizeof text);
}

void find(const Address& address, int flags, Lookup* out) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* all = nullptr;
  const int failed = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &all);
  if (failed != 0) out->error = ::gai_strerror(failed);
  for (const addrinfo* one = failed == 0 ? all : nullptr; one != nullptr && out->found.size() < 16;
       one = one->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, one->ai_addr, std::min<size_t>(one->ai_addrlen, sizeof endpoint.address));
    endpoint.length = one->ai_addrlen;
    out->found.push_back(endpoint);
  }
  if (failed == 0) ::freeaddrinfo(all);
}

std::string tls_text() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "no reason is given" : reason;
}

}  // namespace

std::shared_ptr<Lookup> look_up(const Address& address, int wake_fd) {
  auto lookup = std::make_shared<Lookup>();
  find(address, AI_NUMERICHOST, lookup.get());
  if (!lookup->found.empty()) {
    lookup->is_done = true;
    return lookup;
  }
  const int own_fd = ::fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([lookup, address, own_fd] {
      pthread_setname_np(pthread_self(), "kvbm-redis-name");
      find(address, 0, lookup.get());
      lookup->is_done.store(true, std::memory_order_release);
      const uint64_t one = 1;
      if (own_fd >= 0 && ::write(own_fd, &one, sizeof one) < 0) {
        // The eventfd is full, so the store is awake.
      }
      ::close(own_fd);
    }).detach();
  } catch (const std::system_error& refused) {
    lookup->error = "no thread to look it up: " + refused.code().message();
    lookup->is_done = true;
    ::close(own_fd);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return lookup;
}

std::unique_ptr<Tls> Tls::make(const Settings& settings, std::string* wrong) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr) {
    *wrong = "TLS cannot be used: " + tls_text();
    return nullptr;
  }
  std::unique_ptr<Tls> tls(new Tls(context, settings.verify));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_verify(context, settings.verify == Verify::off ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  const auto refuse = [&](const char* option, const std::string& file) {
    *wrong = "the file '" + file + "' of the Redis store's " + option + " cannot be used: " + tls_text();
    return nullptr;
  };
  if (settings.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_locations(context, settings.ca_file.c_str(), nullptr) != 1) {
    return refuse("ca", settings.ca_file);
  }
  if (!settings.cert_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, settings.cert_file.c_str()) != 1)
      return refuse("cert", settings.cert_file);
    if (SSL_CTX_use_PrivateKey_file(context, settings.key_file.c_str(), SSL_FILETYPE_PEM) != 1)
      return refuse("key", settings.key_file);
  }
  ERR_clear_error();
  return tls;
}

SSL* Tls::new_session(const std::string& host) const {
  SSL* ssl = SSL_new(context_);
  if (ssl == nullptr) return nullptr;
  SSL_set_connect_state(ssl);
  if (verify_ == Verify::on && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) != 1) {
    SSL_set1_host(ssl, host.c_str());
  }
  if (host.find(':') == std::string::npos && host.find_first_not_of("0123456789.") != std::string::npos) {
    SSL_set_tlsext_host_name(ssl, host.c_str());
  }
  return ssl;
}

bool Stream::open(const Endpoint& endpoint, const std::string& host, const Tls* tls) {
  close();
  error_.clear();
  is_refused_ = false;
  fd_ = ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ >= 0 && tls != nullptr) {
    ssl_ = tls->new_session(host);
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) errno = ENOMEM;
  }
  if (fd_ < 0 || (tls != nullptr && ssl_ == nullptr)) {
    error_ = system_text(errno);
    close();
    return false;
  }
  const int on = 1;
  const unsigned lost_after_ms = 15'000;  // without an acknowledgement: the host or the network is down
  const int idle_s = 60;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd_, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_after_ms, sizeof lost_after_ms);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.length) != 0 &&
      errno != EINPROGRESS) {
    error_ = system_text(errno);
    close();
    return false;
  }
  return true;
}

void Stream::close() {
  SSL_free(ssl_);
  ssl_ = nullptr;
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  is_connected_ = wants_write_ = false;
}

int Stream::connect() {
  if (!is_connected_) {
    int error = 0;
    socklen_t length = sizeof error;
    sockaddr_storage peer = {};
    socklen_t peer_length = sizeof peer;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 && ::getpeername(fd_, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
      if (errno != ENOTCONN) error = errno;
      wants_write_ = true;
      if (error == 0) return 0;
    }
    if (error != 0) {
      error_ = system_text(error);
      return -1;
    }
    is_connected_ = true;
    wants_write_ = false;
  }
  if (ssl_ == nullptr) return 1;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    wants_write_ = false;
    return 1;
  }
  const ssize_t judged = judge_tls(result);
  const long verified = SSL_get_verify_result(ssl_);
  if (judged < 0 && verified != X509_V_OK) error_ = X509_verify_cert_error_string(verified);
  return static_cast<int>(judged);
}

ssize_t Stream::judge_tls(int result) {
  const int saved = errno;
  const int why = SSL_get_error(ssl_, result);
  wants_write_ = why == SSL_ERROR_WANT_WRITE;
  is_refused_ = why == SSL_ERROR_SSL;
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return 0;
  error_ = why == SSL_ERROR_ZERO_RETURN             ? "the server closed the connection"
           : why == SSL_ERROR_SYSCALL && saved != 0 ? system_text(saved)
           : why == SSL_ERROR_SYSCALL               ? "the server closed the connection"
                                                    : tls_text();
  return -1;
}

ssize_t Stream::read(const iovec* pieces, int n) {
  if (ssl_ != nullptr) {
    errno = 0;
    ERR_clear_error();
    const int bytes =
        SSL_read(ssl_, pieces[0].iov_base, static_cast<int>(std::min<size_t>(pieces[0].iov_len, 1 << 30)));
    return bytes > 0 ? bytes : judge_tls(bytes);
  }
  const ssize_t bytes = ::readv(fd_, pieces, n);
  if (bytes > 0) return bytes;
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  error_ = bytes == 0 ? "the server closed the connection" : system_text(errno);
  return -1;
}

ssize_t Stream::write(const iovec* pieces, int n) {
  if (ssl_ != nullptr) {
    errno = 0;
    ERR_clear_error();
    const int bytes =
        SSL_write(ssl_, pieces[0].iov_base, static_cast<int>(std::min<size_t>(pieces[0].iov_len, 1 << 30)));
    return bytes > 0 ? bytes : judge_tls(bytes);
  }
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = static_cast<size_t>(n);
  const ssize_t bytes = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
  if (bytes >= 0) return bytes;
  if (errno == EAGAIN || errno == EINTR) return 0;
  error_ = system_text(errno);
  return -1;
}

}  // namespace kvbm_redis
