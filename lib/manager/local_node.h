// What a manager that is a node needs to share memory with other nodes of its machine: whether its host tier can be
// shared, where its socket is, and the service that meets the others there (cluster/same_host.h).
//
// Set-up only; blocks on files. A node without any of this works as well, over its links: nothing here is an error of
// the node, but is said in the log and in what why() of its peers says.
#pragma once

#include <memory>
#include <string>

#include "cluster/same_host.h"
#include "manager/environment.h"
#include "manager/options.h"

namespace kvbm::manager {

class Manager;

// Whether the host tier is made of memory that other processes may map: of a node that others can connect to, and of
// every process of a shared tier set, for it may come to own it; unless it is kept in a file.
[[nodiscard]] bool shares_host_memory(const Options& options) noexcept;

// The directory for sockets, made with mode 0700 where it is missing: `wanted`, else $XDG_RUNTIME_DIR/kvbm, else
// kvbm-<user> in the directory for temporary files. Sockets of processes that have ended are removed from it.
Result<std::string> local_directory(const std::string& wanted);

// The service for `manager`; null, with the reason in the log, where there can be none. `self` is the node.
std::unique_ptr<cluster::SameHost> meet_same_host(const Environment& environment, const NodeOptions& options,
                                                  const cluster::NodeFacts& self, Manager& manager,
                                                  cluster::MappedPools& pools, cluster::SameHost::OnDeath on_death);

}  // namespace kvbm::manager
