// Transport of a node's links: sockets, which are always there, or UCX, a module (ucx_transport/README.md).
//
// `automatic` takes UCX only where it is faster and its network was declared trusted: an RDMA device with an active
// port, the module, and node.ucx_devices. UCX parses what reaches its ports before a peer has proved a key, so only
// an option opens them. Over TCP, sockets are the faster way (docs/benchmarks.md). All nodes of a pool use the same
// transport.
//
// Sockets protect what crosses them (node.protect). UCX does not: where a card reads and writes by itself nothing can
// be tagged on the way. So in a pool with a key, UCX carries links beyond this machine only under one of two
// conditions: records are sealed (seal.key_file), or an administrator vouches for the network (node.trusted_network).
#pragma once

#include <string>

#include "base/status.h"
#include "copy/transport.h"
#include "manager/common/options.h"

namespace kvbm::cluster {
struct MeshOptions;
}

namespace kvbm::manager {

struct NodeTransport {
  const kvbm_transport_ops_t* ops = nullptr;
  copy::TransportOptions options;
  std::string why;  // one line for people: the transport used, and why
  bool protects = false;
};

// Chooses the transport. unsupported: UCX was asked for and is not here. bad_config: addresses that UCX must not be
// opened to. `sealed`: everything that leaves this host's memory is sealed.
Result<NodeTransport> choose_transport(const NodeOptions& options, bool sealed = false);

// Returns the protection required of links over sockets.
copy::Protection wanted_protection(const NodeOptions& options) noexcept;
// Sets in `mesh` the protection required of links over that transport. bad_config, with the remedy, if the transport
// cannot provide it.
Status settle_protection(const NodeOptions& options, const NodeTransport& transport, bool sealed,
                         cluster::MeshOptions& mesh);

// Returns the RDMA devices with an active port, "mlx5_0:1", comma-separated, of a folder like /sys/class/infiniband.
std::string active_rdma(const std::string& folder);

}  // namespace kvbm::manager
