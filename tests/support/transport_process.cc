#include "support/transport_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "copy/transport_module.h"
#include "support/child_signal.h"
#include "support/transport_side.h"

namespace kvbm::test {

namespace {

constexpr char kNode[] = "--transport-node";
constexpr auto kNodePatience = std::chrono::minutes(1);

TransportEnd& end_of(void* context) { return *static_cast<TransportEnd*>(context); }

kvbm_transport_host_t host_of(TransportEnd* end) {
  kvbm_transport_host_t host{};
  host.struct_size = sizeof host;
  host.context = end;
  host.log = [](void*, int32_t level, const char* text) { std::fprintf(stderr, "[log %d] %s\n", level, text); };
  host.accepted = [](void* c, kvbm_transport_peer_t peer, const char*) {
    ++end_of(c).accepted;
    end_of(c).peer = peer;
    end_of(c).ops->admit(end_of(c).transport, peer);
  };
  host.connected = [](void* c, kvbm_transport_peer_t peer) {
    ++end_of(c).connected;
    end_of(c).ops->admit(end_of(c).transport, peer);
  };
  host.message = [](void* c, kvbm_transport_peer_t, const void* bytes, size_t size) {
    end_of(c).messages.emplace_back(static_cast<const char*>(bytes), size);
    if (end_of(c).on_message) end_of(c).on_message(std::string(end_of(c).messages.back()));
  };
  host.writable = [](void* c, kvbm_transport_peer_t) { ++end_of(c).writable; };
  host.pushed = [](void* c, kvbm_transport_peer_t, kvbm_transport_token_t token, int32_t status) {
    end_of(c).pushed[token] = {status, 0};
  };
  host.received = [](void* c, kvbm_transport_peer_t, kvbm_transport_token_t token, int32_t status, uint64_t bytes) {
    end_of(c).received[token] = {status, bytes};
    if (end_of(c).on_received) end_of(c).on_received(token, {status, bytes});
  };
  host.closed = [](void* c, kvbm_transport_peer_t, int32_t status, const char* reason) {
    end_of(c).closed = status;
    end_of(c).reason = reason;
  };
  return host;
}

// The child's side: executes Ask messages.
class Node {
 public:
  int run(const std::string& module, const std::string& listen) {
    const auto loaded = copy::load_transport_module(module);
    if (!loaded.ok()) return fail(loaded.status().message());
    const uint32_t flags = std::getenv(kNodeOnDevice) == nullptr
                               ? uint32_t{KVBM_TRANSPORT_EMULATE_GET}
                               : uint32_t{KVBM_TRANSPORT_EMULATE_GET | KVBM_TRANSPORT_EMULATE_DEVICE};
    if (const std::string error = end_.open(*Result(loaded).value(), flags); !error.empty()) {
      return fail(error);
    }
    char bound[64];
    char error[256];
    if (end_.ops->listen(end_.transport, listen.c_str(), bound, sizeof bound, error, sizeof error) != 0)
      return fail(error);
    end_.on_message = [this](const std::string& text) { answer(text); };
    end_.on_received = [this](kvbm_transport_token_t token, TransportEnd::Completion c) { landed(token, c); };
    std::printf("%s\n", bound);
    std::fflush(stdout);
    while (!end_.closed) {
      pollfd parent{STDIN_FILENO, POLLIN, 0};
      if (poll(&parent, 1, 0) != 0) break;
      end_.step(20);
      say_what_fits();
    }
    end_.close();
    return 0;
  }

 private:
  static int fail(const std::string& why) {
    std::fprintf(stderr, "node: %s\n", why.c_str());
    return 1;
  }

  void say(const std::string& text) {
    unsaid_.push_back(text);
    say_what_fits();
  }

  void say_what_fits() {
    while (!unsaid_.empty() &&
           end_.ops->send(end_.transport, end_.peer, unsaid_.front().data(), unsaid_.front().size()) == 0) {
      unsaid_.pop_front();
    }
  }

  std::byte* buffer(uint64_t tag, uint64_t bytes) {
    auto& room = memory_[tag];
    room.assign(bytes, std::byte{0});
    return room.data();
  }

  void answer(const std::string& text) {
    Ask ask;
    if (text.size() != sizeof ask) return say(text);
    std::memcpy(&ask, text.data(), sizeof ask);
    if (ask.mark != Ask::kMark) return say(text);
    switch (ask.what) {
      case Ask::What::echo:
        return say(text);
      case Ask::What::push: {
        memory_[ask.tag] = content(ask.seed, ask.bytes);
        const kvbm_transport_piece_t piece{memory_[ask.tag].data(), ask.bytes};
        (void)end_.ops->push(end_.transport, end_.peer, ask.tag, &piece, 1, ask.tag);
        return;
      }
      case Ask::What::post:
        asked_[ask.tag] = ask;
        if (end_.ops->post(end_.transport, end_.peer, ask.tag, buffer(ask.tag, ask.bytes), ask.bytes, ask.tag) == 0) {
          say("posted");
        }
        return;
      case Ask::What::offer: {
        memory_[ask.tag] = content(ask.seed, ask.bytes);
        std::string key(KVBM_TRANSPORT_KEY_BYTES, '\0');
        size_t size = key.size();
        uint64_t memory = 0;
        const auto address = reinterpret_cast<uint64_t>(memory_[ask.tag].data());
        if (end_.ops->add_memory(end_.transport, memory_[ask.tag].data(), ask.bytes, &memory, key.data(), &size) != 0) {
          return say("no");
        }
        key.resize(size);
        return say(std::string(reinterpret_cast<const char*>(&address), sizeof address) + key);
      }
      case Ask::What::leave:
        (void)end_.ops->disconnect(end_.transport, end_.peer, 1);
        return;
    }
  }

  void landed(kvbm_transport_token_t token, TransportEnd::Completion c) {
    const Ask& ask = asked_[token];
    const bool right = c.status == 0 && c.bytes == ask.bytes && memory_[token] == content(ask.seed, ask.bytes);
    say((right ? "right " : "wrong ") + std::to_string(token));
  }

  TransportEnd end_;
  std::deque<std::string> unsaid_;
  std::map<uint64_t, std::vector<std::byte>> memory_;
  std::map<uint64_t, Ask> asked_;
};

}  // namespace

TransportEnd::~TransportEnd() { close(); }

std::string TransportEnd::open(const kvbm_transport_ops_t& table, uint32_t flags, const char* devices) {
  ops = &table;
  host_ = host_of(this);
  kvbm_transport_options_t options{};
  options.struct_size = sizeof options;
  options.peer_queue_bytes = 1 << 20;
  options.peer_bulk_bytes = 8 << 20;
  options.devices = devices;
  options.flags = flags;
  char error[256] = "";
  return ops->open(&options, &host_, &transport, error, sizeof error) == 0 ? "" : error;
}

void TransportEnd::close() {
  if (transport != nullptr) ops->close(transport);
  transport = nullptr;
}

void TransportEnd::step(int most_ms) {
  if (ops->progress(transport) != 0) return;
  uint64_t within_ns = 0;
  if (ops->arm(transport, &within_ns) != 0) return;
  pollfd ready{ops->fd(transport), POLLIN, 0};
  poll(&ready, 1, static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(most_ms), within_ns / 1'000'000 + 1)));
}

bool TransportEnd::run_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kNodePatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    step();
  }
  return true;
}

std::optional<int> run_node_if_asked(int argc, char** argv) {
  if (argc != 4 || std::strcmp(argv[1], kNode) != 0) return std::nullopt;
  return Node().run(argv[2], argv[3]);
}

NodeProcess::~NodeProcess() { end(); }

std::string NodeProcess::start(const std::string& module, const std::vector<std::string>& environment,
                               const std::string& listen) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return {};
  std::vector<std::string> texts(environment);
  for (char** e = environ; *e != nullptr; ++e) texts.emplace_back(*e);
  std::vector<char*> env;
  for (std::string& text : texts) env.push_back(text.data());
  env.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execle("/proc/self/exe", "node", kNode, module.c_str(), listen.c_str(), nullptr, env.data());
    _exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  stdin_ = in[1];
  std::string address;
  char c = 0;
  while (read(out[0], &c, 1) == 1 && c != '\n') address += c;
  ::close(out[0]);
  return address;
}

void NodeProcess::signal(int number) const { signal_child(pid_, number); }

void NodeProcess::end() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  ::close(stdin_);
  pid_ = -1;
}

}  // namespace kvbm::test
