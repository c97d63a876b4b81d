// The URL mooncake://master:50051/prefix?..., checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvbm_plugin.h"

namespace kvbm_mooncake {

struct Settings {
  std::string master;  // host:port
  std::string prefix = "kvbm";
  std::string protocol = "tcp";
  std::string device;
  std::string host;
  std::string metadata = "P2PHANDSHAKE";
  std::string python = "python3";
  std::string log;
  uint64_t lend_bytes = 0;
  uint64_t memory_bytes = uint64_t{64} << 20;
  uint32_t threads = 16;

  [[nodiscard]] std::string description() const { return "mooncake://" + master + "/" + prefix; }
  // Returns the arguments of client.py, in its order.
  [[nodiscard]] std::vector<std::string> arguments() const;
};

// Fills `out` and returns "". Else returns one sentence: the error and the remedy.
std::string read_settings(const kvbm_store_config_t& config, Settings& out);

extern const kvbm_store_option_help_t kOptions[];
extern const size_t kOptionCount;

}  // namespace kvbm_mooncake
