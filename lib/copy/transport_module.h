// Finds and loads a transport module, libkvbm_ucx.so, behind the table of transport_abi.h.
//
// Looked for in the places of base/module_places.h: the option, KVBM_UCX_PATH, and so on.
// A directory of 1 or 2 may also hold UCX's own libraries (the lib folder of UCX's wheel): they are then loaded first,
// and the module binds to them instead of the system's. One of 2 may hold them alone; the search then goes on.
//
// The process's signal handling (base/signal_keeper.h) and its memory functions are the same afterwards. A module stays
// loaded until the process ends, also one that was refused: UCX's threads and patches do not survive an unload.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "copy/transport_abi.h"

namespace kvbm::copy {

// Where load_transport_module(path) looks, in order.
std::vector<std::string> transport_module_places(const std::string& path);

// The module's table, static. Errors begin with "transport unavailable: ": unsupported (not found, or does not load,
// e.g. where UCX is not installed), newer_version (speaks another version of the boundary), damaged (its table is not
// one).
Result<const kvbm_transport_ops_t*> load_transport_module(const std::string& path = "");

}  // namespace kvbm::copy
