// Sharing of memory with other nodes of the same machine: whether the host tier can be shared, where the node's
// socket is, and the service that meets the others there (cluster/same_host/same_host.h).
//
// Set-up only; blocks on files. A node without any of this works as well, over its links. So a problem here is not an
// error of the node; it is reported in the log and in its peers' why().
#pragma once

#include <memory>
#include <string>

#include "cluster/same_host/same_host.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"
#include "tier/host/host_arena.h"

namespace kvbm::manager {

// Returns true if the host tier is made of memory that other processes may map. A node that others can connect to
// needs it. So does every process of a shared tier set, which may come to own the set. A tier kept in a file is never
// shared.
[[nodiscard]] bool shares_host_memory(const Options& options) noexcept;

// Returns the directory for sockets: `wanted`, else $XDG_RUNTIME_DIR/kvbm, else kvbm-<user> in the directory for
// temporary files. Makes it with mode 0700 if missing, and removes sockets of processes that have ended.
Result<std::string> local_directory(const std::string& wanted);

// Returns the service for the memory of `arena`, or null with the reason in the log. `self` is the node.
std::unique_ptr<cluster::SameHost> meet_same_host(const Environment& environment, const NodeOptions& options,
                                                  const cluster::NodeFacts& self, const tier::HostArena& arena,
                                                  cluster::MappedPools& pools, cluster::SameHost::OnDeath on_death);

}  // namespace kvbm::manager
