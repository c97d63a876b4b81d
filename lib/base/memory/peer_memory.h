// Checks whether this kernel lets network cards pin GPU memory: nvidia_peermem, or its predecessors under the name
// nv_mem. UCX checks the same two places. The other way, dma-buf, needs no module; it depends on the driver, the card
// and UCX.
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
