// A node of a test in its own process, over a transport module. It answers one message at a time.
//
// The test's program runs itself again as that node: main() calls run_node_if_asked() first. The node listens on
// loopback and writes its address to its standard output. It lives until it is asked to end, its peer ends, or its
// standard input ends, so it never outlives the test.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "copy/transport_abi.h"

namespace kvbm::test {

// Requests to a node. Bytes of content `seed` are those of content_at() in transport_side.h.
struct Ask {
  enum class What : uint64_t {
    echo,   // says the message again
    push,   // pushes content `seed`, `bytes` long, under `tag`
    post,   // posts under `tag` and says so; says whether content `seed` came
    offer,  // registers content `seed`, `bytes` long, and says its key
    leave   // disconnects, with flush
  };
  static constexpr uint64_t kMark = 0x3f3f3f6b73414000;
  uint64_t mark = kMark;  // a message without it is echoed
  What what = What::echo;
  uint64_t tag = 0;
  uint64_t bytes = 0;
  uint64_t seed = 0;
};

// One end of a transport table, its callbacks recorded.
class TransportEnd {
 public:
  struct Completion {
    int32_t status = 0;
    uint64_t bytes = 0;
  };
  TransportEnd() = default;
  ~TransportEnd();
  TransportEnd(const TransportEnd&) = delete;
  TransportEnd& operator=(const TransportEnd&) = delete;

  // Opens a transport. Returns the error's text; "" if it opened.
  std::string open(const kvbm_transport_ops_t& ops, uint32_t flags = 0, const char* devices = nullptr);
  void close();
  // One progress(), or a sleep of at most `most_ms` until there is something.
  void step(int most_ms = 100);
  // Drives the transport until `done`. Returns false if that takes longer than a minute.
  bool run_until(const std::function<bool()>& done);

  const kvbm_transport_ops_t* ops = nullptr;
  kvbm_transport_t* transport = nullptr;
  kvbm_transport_peer_t peer = 0;  // the last one that was accepted or connected; admitted at once
  std::vector<std::string> messages;
  std::vector<std::string> logged;
  std::map<kvbm_transport_token_t, Completion> pushed, received;
  std::optional<int32_t> closed;
  std::string reason;
  int connected = 0, accepted = 0, writable = 0;
  std::function<void(const std::string&)> on_message;
  std::function<void(kvbm_transport_token_t, Completion)> on_received;

 private:
  kvbm_transport_host_t host_{};
};

// Environment variable of a node that opens its transport with KVBM_TRANSPORT_EMULATE_DEVICE.
inline constexpr char kNodeOnDevice[] = "KVBMTEST_NODE_ON_DEVICE";

// If the program was started as a node, runs it and gives its exit status.
std::optional<int> run_node_if_asked(int argc, char** argv);

class NodeProcess {
 public:
  NodeProcess() = default;
  ~NodeProcess();
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  // Starts the node. Returns its address; "" if it does not come up. environment: "NAME=value" for that process.
  std::string start(const std::string& module, const std::vector<std::string>& environment = {},
                    const std::string& listen = "127.0.0.1:0");
  void signal(int number) const;
  // Kills the process if it lives, and waits for its end.
  void end();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
};

}  // namespace kvbm::test
