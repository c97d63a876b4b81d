// The sessions of a node: makes their host, their devices and the calls that caches use, in this order, and ends them.
// A build without sessions (KVBM_WITH_SESSIONS=OFF) makes none.
//
// Life: create() once the mesh is attached to the links. close() comes before the links end, detach() when the node
// stops; the destructor runs after the links have ended. The mesh outlives this object. Thread: any, from outside;
// counts() runs on the links' thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/ids.h"
#include "cluster/node.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"

namespace kvbm::copy {
class TransportThread;
}
namespace kvbm::cluster {
class LinkCoder;
class Mesh;
struct SessionCounts;
class SessionHost;
}  // namespace kvbm::cluster

namespace kvbm::manager {

class SessionDevices;
class Sessions;

class NodeSessions {
 public:
  struct Options {
    uint64_t staging_bytes = 0;
    std::array<uint8_t, 16>
        boot{};  // of this machine, within which processes share device memory; zero: none is shared
    NodeOptions::DeviceRdma rdma = NodeOptions::DeviceRdma::automatic;
    std::shared_ptr<cluster::LinkCoder> coder;             // null: slices are neither coded nor sealed
    std::function<bool(const cluster::NodeId&)> in_place;  // true: that node's host memory is mapped here
  };
  // Null in a build without sessions. `links`: the thread of the mesh's links.
  static std::shared_ptr<NodeSessions> create(const Environment& environment, Options options, cluster::Mesh& mesh,
                                              copy::TransportThread& links);
  ~NodeSessions();
  NodeSessions(const NodeSessions&) = delete;
  NodeSessions& operator=(const NodeSessions&) = delete;

  [[nodiscard]] Sessions& sessions() noexcept { return *sessions_; }
  [[nodiscard]] cluster::SessionCounts counts() const;
  void close();
  void detach();

 private:
  NodeSessions() = default;

  std::unique_ptr<SessionDevices> devices_;
  std::unique_ptr<cluster::SessionHost> host_;
  std::unique_ptr<Sessions> sessions_;
};

}  // namespace kvbm::manager
