// What a node that is at work says of its tiers and of other nodes: its pages /tiers and /peers, for `kvbm stats
// --node`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace kvbm::node {

// {"tiers": rows of /tiers, "peers": rows of /peers}. damaged: the pages are of another form; else as http_get().
Result<nlohmann::ordered_json> read_node_stats(const std::string& http_address, uint64_t timeout_ns);
// The same for people. Members that are missing or of another type show as 0 or nothing.
std::string node_stats_text(const nlohmann::ordered_json& stats);

}  // namespace kvbm::node
