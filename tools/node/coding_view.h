// Shows how an edge codes and seals, as text and as JSON. An edge leads to a tier or from another node.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvbm.h"

namespace kvbm::node {

// Returns "off"; "default, 1.48x"; "auto: plain"; "auto: fast, 1.31x, sealed"; and what was refused, if anything was.
std::string coding_text(const kvbm_tier_codec_stats_t& tier);
std::string coding_text(const kvbm_node_row_t& row);
// Returns the text of coding_json()'s result, as a node's pages have it; "?" for anything else.
std::string coding_text(const nlohmann::ordered_json& coding);
// Has setting, mode (auto: the decision), ratio (null if nothing was coded), saved_bytes, refused, sealed; for a tier
// also counts of records.
nlohmann::ordered_json coding_json(const kvbm_tier_codec_stats_t& tier);
nlohmann::ordered_json coding_json(const kvbm_node_row_t& row);

// Returns a node as `kvbm peers --json` and the page /peers show it, its id as hexadecimal digits.
nlohmann::ordered_json peer_json(const kvbm_node_row_t& row);
std::string id_text(const uint8_t (&node)[16]);

}  // namespace kvbm::node
