// How an edge codes and seals, as a person reads it and as JSON: the way to a tier, and the way from another node.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvbm.h"

namespace kvbm::node {

// "off"; "default, 1.48x"; "auto: plain"; "auto: fast, 1.31x, sealed"; and what was refused, where anything was.
std::string coding_text(const kvbm_tier_codec_stats_t& tier);
std::string coding_text(const kvbm_node_row_t& row);
// The same of what coding_json() made, as the pages of a node give it; of anything else "?".
std::string coding_text(const nlohmann::ordered_json& coding);
// setting, mode (auto: what it has decided), ratio (null where nothing was coded), saved_bytes, refused, sealed; of a
// tier counts of records besides.
nlohmann::ordered_json coding_json(const kvbm_tier_codec_stats_t& tier);
nlohmann::ordered_json coding_json(const kvbm_node_row_t& row);

// A node as `kvbm peers --json` and the page /peers have it; its id as hexadecimal digits.
nlohmann::ordered_json peer_json(const kvbm_node_row_t& row);
std::string id_text(const uint8_t (&node)[16]);

}  // namespace kvbm::node
