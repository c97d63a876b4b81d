// Names of UCX's transports, and the lanes of an endpoint, which UCX 1.13 reveals only in its printed text: "#
// lane[0]:  1:tcp/lo.0 md[1] -> md[1]/tcp/sysdev[255] rma_bw#0 am am_bw#0".
#pragma once

#include <sstream>
#include <string>

namespace kvbm::ucx {

// Returns true for a network with cards that read by themselves.
inline bool is_rdma(const std::string& transport) {
  for (const char* start : {"rc", "dc", "gga"}) {
    if (transport.rfind(start, 0) == 0) return true;
  }
  return false;
}

// Returns true if a read over that transport needs no processor of the other side.
inline bool one_sided(const std::string& transport) { return is_rdma(transport) || transport == "cuda_ipc"; }

// Returns true if one of an endpoint's lanes for reading is such a transport.
inline bool has_lane(const std::string& printed, bool (*such)(const std::string&)) {
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    const size_t lane = line.find("lane[");
    if (lane == std::string::npos || line.find("rma", lane) == std::string::npos) continue;
    std::istringstream words(line.substr(lane));
    for (std::string word; words >> word;) {
      const size_t colon = word.find(':');
      const size_t slash = word.find('/');
      if (colon != std::string::npos && slash != std::string::npos && colon < slash &&
          such(word.substr(colon + 1, slash - colon - 1))) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace kvbm::ucx
