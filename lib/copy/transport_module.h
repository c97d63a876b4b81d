// Finds and loads a transport module, libkvbm_ucx.so, behind the table of transport_abi.h.
//
// Searched in the places of base/process/module_places.h: the option, KVBM_UCX_PATH, and so on. A directory of 1 or 2
// may also hold UCX's own libraries (the lib folder of UCX's wheel). They are then loaded first, and the module binds
// to them instead of the system's. A directory of 2 may hold only these; the search then goes on.
//
// The process's signal handling (base/process/signal_keeper.h) and its memory functions are unchanged afterwards. A
// module stays loaded until the process ends, even a refused one: UCX's threads and patches do not survive an unload.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "copy/transport_abi.h"

namespace kvbm::copy {

// Returns the places that load_transport_module(path) searches, in order.
std::vector<std::string> transport_module_places(const std::string& path);

// Loads the module; returns its static table. Errors begin with "transport unavailable: ": unsupported (not found, or
// fails to load, e.g. because UCX is not installed), newer_version (built for another version of the boundary), damaged
// (invalid table).
Result<const kvbm_transport_ops_t*> load_transport_module(const std::string& path = "");

}  // namespace kvbm::copy
