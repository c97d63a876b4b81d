#include "node/http_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"
#include "copy/tcp/address.h"

namespace kvbm::node {

namespace {

Status no_answer(const std::string& address, int error) {
  return {Code::owner_gone, "no server answers at this address", address + ": " + std::strerror(error)};
}

// Waits until the socket can be read or written, or has failed; the next call on the socket returns the error.
Status wait_for(int fd, short what, const Clock& clock, uint64_t deadline_ns, const std::string& address) {
  for (;;) {
    const uint64_t now = clock.now_ns();
    if (now >= deadline_ns) return {Code::deadline, "no answer in time", address};
    pollfd state{fd, what, 0};
    const int n = ::poll(&state, 1, static_cast<int>((deadline_ns - now) / 1'000'000 + 1));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return no_answer(address, errno);
  }
}

Result<Fd> connect_to(const std::string& address, const Clock& clock, uint64_t deadline_ns) {
  const auto to = copy::tcp::Address::parse(address);
  if (!to.ok()) return to.status();
  Fd fd(::socket(to.value().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return no_answer(address, errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.value().storage), to.value().size) == 0) return fd;
  if (errno != EINPROGRESS) return no_answer(address, errno);
  if (Status s = wait_for(fd.get(), POLLOUT, clock, deadline_ns, address); !s.ok()) return s;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return no_answer(address, error);
  return fd;
}

Status say(int fd, const std::string& text, const Clock& clock, uint64_t deadline_ns, const std::string& address) {
  for (size_t said = 0; said < text.size();) {
    const ssize_t n = ::send(fd, text.data() + said, text.size() - said, MSG_NOSIGNAL);
    if (n > 0) {
      said += static_cast<size_t>(n);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return no_answer(address, errno);
    } else if (Status s = wait_for(fd, POLLOUT, clock, deadline_ns, address); !s.ok()) {
      return s;
    }
  }
  return {};
}

// Reads everything until the other side closes.
Result<std::string> hear(int fd, const Clock& clock, uint64_t deadline_ns, const std::string& address) {
  std::string out;
  std::array<char, 16384> some;
  for (;;) {
    const ssize_t n = ::recv(fd, some.data(), some.size(), 0);
    if (n == 0) return out;
    if (n > 0) {
      out.append(some.data(), static_cast<size_t>(n));
      if (out.size() > kMostPageBytes) return Status(Code::damaged, "the answer is too long", address);
    } else if (errno != EAGAIN && errno != EINTR) {
      return no_answer(address, errno);
    } else if (Status s = wait_for(fd, POLLIN, clock, deadline_ns, address); !s.ok()) {
      return s;
    }
  }
}

}  // namespace

Result<std::string> http_get(const std::string& address, const std::string& path, uint64_t timeout_ns) {
  const SystemClock clock;
  const uint64_t deadline_ns = deadline_after(clock, timeout_ns);
  auto fd = connect_to(address, clock, deadline_ns);
  if (!fd.ok()) return fd.status();
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n";
  if (Status s = say(fd.value().get(), request, clock, deadline_ns, address); !s.ok()) return s;
  auto answer = hear(fd.value().get(), clock, deadline_ns, address);
  if (!answer.ok()) return answer;
  const std::string& text = answer.value();
  const size_t head = text.find("\r\n\r\n");
  // "HTTP/1.1 200 OK"
  if (text.compare(0, 5, "HTTP/") != 0 || head == std::string::npos || text.find(' ') > text.find('\r')) {
    return Status(Code::damaged, "that is no answer of a web server", address);
  }
  if (text.compare(text.find(' '), 5, " 200 ") != 0) {
    return Status(Code::unsupported, "the page is not given", address + path + ": " + text.substr(0, text.find('\r')));
  }
  return text.substr(head + 4);
}

}  // namespace kvbm::node
