// Whether this kernel lets network cards pin the memory of a GPU: nvidia_peermem, or its predecessors under the name nv_mem.
// UCX looks at the same two places. The other way, dma-buf, needs no module; there the driver, the card and UCX have a say.
// Header-only: modules outside lib/ use it too.
#pragma once

#include <unistd.h>

#include <string>

namespace kvbm {

inline bool has_peer_memory(const std::string& sys = "/sys") {
  return ::access((sys + "/module/nvidia_peermem/version").c_str(), F_OK) == 0 ||
         ::access((sys + "/kernel/mm/memory_peers/nv_mem/version").c_str(), F_OK) == 0;
}

}  // namespace kvbm
