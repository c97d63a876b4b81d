// Reads the tiers and peers of a running node from its pages /tiers and /peers, for `kvbm stats --node`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace kvbm::node {

// Returns {"tiers": rows of /tiers, "peers": rows of /peers}. damaged: the pages have another form; other errors as
// http_get().
Result<nlohmann::ordered_json> read_node_stats(const std::string& http_address, uint64_t timeout_ns);
// Formats the stats as text. Members that are missing or of another type show as 0 or nothing.
std::string node_stats_text(const nlohmann::ordered_json& stats);

}  // namespace kvbm::node
