// What carries a node's links: sockets, which are always there, or UCX, a module (ucx_transport/README.md).
//
// `automatic` takes UCX only where it is worth something and somebody has said that its network is trusted: an RDMA
// device with an active port, the module, and node.ucx_devices. UCX parses what reaches its ports before anybody has
// proved a key, so nothing but an option opens them; and over TCP sockets are the faster way (docs/benchmarks.md).
// All nodes of a pool use the same.
//
// Sockets protect what crosses them (node.protect). UCX does not: where a card reads and writes by itself nothing can be
// tagged on the way. So beyond this machine, in a pool with a key, it carries links only where records are sealed
// (seal.key_file) or an administrator vouches for the network (node.trusted_network).
#pragma once

#include <string>

#include "base/status.h"
#include "copy/transport.h"
#include "manager/options.h"

namespace kvbm::cluster {
struct MeshOptions;
}

namespace kvbm::manager {

struct NodeTransport {
  const kvbm_transport_ops_t* ops = nullptr;
  copy::TransportOptions options;
  std::string why;  // one line for people: what is used, and why
  bool protects = false;
};

// unsupported where UCX was asked for and is not here; bad_config for addresses that UCX would not be opened to. sealed:
// everything that leaves this host's memory is.
Result<NodeTransport> choose_transport(const NodeOptions& options, bool sealed = false);

// What is asked of links over sockets.
copy::Protection wanted_protection(const NodeOptions& options) noexcept;
// Into `mesh`: what is asked of links over that transport. bad_config with the remedy where it cannot do what has to be.
Status settle_protection(const NodeOptions& options, const NodeTransport& transport, bool sealed,
                         cluster::MeshOptions& mesh);

// RDMA devices with an active port, "mlx5_0:1", of a folder that is like /sys/class/infiniband; with commas.
std::string active_rdma(const std::string& folder);

}  // namespace kvbm::manager
