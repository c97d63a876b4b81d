#include "watch/zmq_library.h"

#ifdef KVBM_HAVE_ZMQ
#include <dlfcn.h>
#include <zmq.h>

#include <cerrno>
#include <mutex>
#include <optional>
#endif

namespace kvbm::watch {

#ifdef KVBM_HAVE_ZMQ

struct ZmqFunctions {
#define KVBM_ZMQ_FUNCTIONS(use)                                                                                     \
  use(ctx_new) use(ctx_term) use(ctx_set) use(socket) use(close) use(setsockopt) use(getsockopt) use(connect)       \
      use(bind) use(poll) use(send) use(errno) use(strerror) use(version) use(msg_init) use(msg_recv) use(msg_data) \
          use(msg_size) use(msg_more) use(msg_close)
#define KVBM_ZMQ_DECLARE(name) decltype(&::zmq_##name) name##_;
  KVBM_ZMQ_FUNCTIONS(KVBM_ZMQ_DECLARE)
#undef KVBM_ZMQ_DECLARE
};

namespace {

struct Loaded {
  ZmqFunctions functions{};
  std::string missing;  // empty: all found
};

const Loaded& loaded() {
  static const Loaded kLoaded = [] {
    Loaded all;
    void* library = ::dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      all.missing = "libzmq.so.5";
      return all;
    }
#define KVBM_ZMQ_FIND(name)                                                                          \
  all.functions.name##_ = reinterpret_cast<decltype(&::zmq_##name)>(::dlsym(library, "zmq_" #name)); \
  if (all.functions.name##_ == nullptr) all.missing = "zmq_" #name;
    KVBM_ZMQ_FUNCTIONS(KVBM_ZMQ_FIND)
#undef KVBM_ZMQ_FIND
    return all;
  }();
  return kLoaded;
}

Status failed(const ZmqFunctions& zmq, const char* what, const std::string& where = "") {
  const int error = zmq.errno_();
  const std::string why = zmq.strerror_(error);
  const bool theirs = error == EINVAL || error == EPROTONOSUPPORT || error == ENODEV || error == ENOCOMPATPROTO;
  return {theirs ? Code::invalid_argument : Code::io_error, what, where.empty() ? why : where + ": " + why};
}

int type_of(SocketKind kind) {
  switch (kind) {
    case SocketKind::pub:
      return ZMQ_PUB;
    case SocketKind::sub:
      return ZMQ_SUB;
    case SocketKind::dealer:
      return ZMQ_DEALER;
    case SocketKind::router:
      break;
  }
  return ZMQ_ROUTER;
}

}  // namespace

Result<std::unique_ptr<Zmq>> Zmq::load() {
  const Loaded& all = loaded();
  if (!all.missing.empty()) return Status(Code::unsupported, "ZeroMQ is not installed", all.missing + " is not there");
  void* context = all.functions.ctx_new_();
  if (context == nullptr) return failed(all.functions, "ZeroMQ gives no context");
  return std::unique_ptr<Zmq>(new Zmq(all.functions, context));
}

Zmq::~Zmq() { zmq_.ctx_term_(context_); }

std::string Zmq::version() const {
  int major = 0;
  int minor = 0;
  int patch = 0;
  zmq_.version_(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

Result<std::unique_ptr<Socket>> Zmq::socket(SocketKind kind, int64_t max_message, int high_water_mark) {
  void* socket = zmq_.socket_(context_, type_of(kind));
  if (socket == nullptr) return failed(zmq_, "ZeroMQ gives no socket");
  auto made = std::make_unique<Socket>(zmq_, socket);
  const int linger = 0;
  const int both = 1;
  const bool set = zmq_.setsockopt_(socket, ZMQ_LINGER, &linger, sizeof linger) == 0 &&
                   zmq_.setsockopt_(socket, ZMQ_IPV6, &both, sizeof both) == 0 &&
                   zmq_.setsockopt_(socket, ZMQ_MAXMSGSIZE, &max_message, sizeof max_message) == 0 &&
                   zmq_.setsockopt_(socket, ZMQ_RCVHWM, &high_water_mark, sizeof high_water_mark) == 0 &&
                   zmq_.setsockopt_(socket, ZMQ_SNDHWM, &high_water_mark, sizeof high_water_mark) == 0;
  if (!set) return failed(zmq_, "ZeroMQ refused a setting");
  return made;
}

Socket::~Socket() { zmq_.close_(socket_); }

Status Socket::connect(const std::string& endpoint) {
  if (zmq_.connect_(socket_, endpoint.c_str()) == 0) return {};
  return failed(zmq_, "the endpoint cannot be connected to", endpoint);
}

Status Socket::bind(const std::string& endpoint) {
  if (zmq_.bind_(socket_, endpoint.c_str()) == 0) return {};
  return failed(zmq_, "the endpoint cannot be listened on", endpoint);
}

Status Socket::subscribe(std::string_view topic) {
  if (zmq_.setsockopt_(socket_, ZMQ_SUBSCRIBE, topic.data(), topic.size()) == 0) return {};
  return failed(zmq_, "the topic cannot be subscribed to");
}

std::string Socket::endpoint() const {
  char text[1024] = "";
  size_t size = sizeof text;
  if (zmq_.getsockopt_(socket_, ZMQ_LAST_ENDPOINT, text, &size) != 0) return "";
  return text;
}

Result<bool> Socket::wait(int timeout_ms, int wake_fd) const {
  zmq_pollitem_t items[2] = {{socket_, 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd, ZMQ_POLLIN, 0}};
  const int n = zmq_.poll_(items, wake_fd < 0 ? 1 : 2, timeout_ms);
  if (n < 0 && zmq_.errno_() != EINTR) return failed(zmq_, "ZeroMQ could not wait");
  return n > 0 && (items[0].revents & ZMQ_POLLIN) != 0;
}

Result<Socket::Frames> Socket::receive() {
  Frames frames;
  bool more = true;
  while (more) {
    zmq_msg_t message;
    zmq_.msg_init_(&message);
    if (zmq_.msg_recv_(&message, socket_, ZMQ_DONTWAIT) < 0) {
      const bool none = zmq_.errno_() == EAGAIN || zmq_.errno_() == EINTR;
      zmq_.msg_close_(&message);
      return none ? Status(Code::again, "no message is there") : failed(zmq_, "ZeroMQ could not receive");
    }
    if (frames.size() <= kMaxFrames) {
      frames.emplace_back(static_cast<const char*>(zmq_.msg_data_(&message)), zmq_.msg_size_(&message));
    }
    more = zmq_.msg_more_(&message) != 0;
    zmq_.msg_close_(&message);
  }
  return frames;
}

Status Socket::send(std::span<const std::string> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    if (zmq_.send_(socket_, frames[i].data(), frames[i].size(), flags) < 0) {
      return failed(zmq_, "ZeroMQ could not send");
    }
  }
  return {};
}

#else

struct ZmqFunctions {};

Result<std::unique_ptr<Zmq>> Zmq::load() {
  return Status(Code::unsupported, "this kvbm was built without ZeroMQ",
                "install libzmq3-dev and build with KVBM_WITH_ZMQ=on");
}

// No object of either class is ever made in this build.
Zmq::~Zmq() { static_cast<void>(zmq_), static_cast<void>(context_); }
std::string Zmq::version() const { return ""; }
Result<std::unique_ptr<Socket>> Zmq::socket(SocketKind, int64_t, int) { return Status(Code::unsupported, "no ZeroMQ"); }
Socket::~Socket() { static_cast<void>(zmq_), static_cast<void>(socket_); }
Status Socket::connect(const std::string&) { return {Code::unsupported, "no ZeroMQ"}; }
Status Socket::bind(const std::string&) { return {Code::unsupported, "no ZeroMQ"}; }
Status Socket::subscribe(std::string_view) { return {Code::unsupported, "no ZeroMQ"}; }
std::string Socket::endpoint() const { return ""; }
Result<bool> Socket::wait(int, int) const { return Status(Code::unsupported, "no ZeroMQ"); }
Result<Socket::Frames> Socket::receive() { return Status(Code::unsupported, "no ZeroMQ"); }
Status Socket::send(std::span<const std::string>) { return {Code::unsupported, "no ZeroMQ"}; }

#endif

}  // namespace kvbm::watch
