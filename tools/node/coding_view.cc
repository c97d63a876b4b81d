#include "node/coding_view.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace kvbm::node {

namespace {

using Json = nlohmann::ordered_json;

// Fields that both kinds of edges have.
struct Edge {
  bool automatic = false;
  uint32_t setting = 0;  // a mode of the configuration
  uint32_t mode = 0;     // mode in use now
  uint64_t plain_bytes = 0, stored_bytes = 0;
  bool sealed = false;
  double lossy_error = 0;
};

std::string mode_name(uint32_t mode) {
  const char* name = kvbm_codec_mode_name(mode);
  return name != nullptr ? name : "mode " + std::to_string(mode);
}

std::string setting_name(const Edge& edge) { return edge.automatic ? "auto" : mode_name(edge.setting); }

Json json_of(const Edge& edge) {
  Json ratio = nullptr;
  if (edge.stored_bytes != 0) ratio = static_cast<double>(edge.plain_bytes) / static_cast<double>(edge.stored_bytes);
  return {{"setting", setting_name(edge)},
          {"mode", mode_name(edge.mode)},
          {"ratio", std::move(ratio)},
          {"saved_bytes", static_cast<int64_t>(edge.plain_bytes) - static_cast<int64_t>(edge.stored_bytes)},
          {"sealed", edge.sealed},
          {"lossy_error", edge.lossy_error}};
}

Edge edge_of(const kvbm_tier_codec_stats_t& tier) {
  return {tier.automatic != 0, tier.setting,    tier.mode,       tier.plain_bytes,
          tier.stored_bytes,   tier.seals != 0, tier.lossy_error};
}

Edge edge_of(const kvbm_node_row_t& row) {
  const bool automatic = row.codec_automatic != 0;
  const uint32_t setting = automatic ? uint32_t{KVBM_CODEC_OFF} : row.codec;
  return {automatic, setting, row.codec, row.codec_plain_bytes, row.codec_stored_bytes, row.codec_sealed != 0, 0};
}

std::string refused_text(const Json& coding, const char* what, const char* said) {
  const auto at = coding.find(what);
  if (at == coding.end() || !at->is_number_unsigned() || *at == 0U) return {};
  return ", " + std::to_string(at->get<uint64_t>()) + " " + said;
}

}  // namespace

std::string coding_text(const kvbm_tier_codec_stats_t& tier) { return coding_text(coding_json(tier)); }
std::string coding_text(const kvbm_node_row_t& row) { return coding_text(coding_json(row)); }

std::string coding_text(const Json& coding) {
  const auto setting = coding.find("setting");
  const auto mode = coding.find("mode");
  if (setting == coding.end() || mode == coding.end() || !setting->is_string() || !mode->is_string()) return "?";
  std::string out = *setting;
  if (*setting == "auto") {
    out += *mode == "off" ? ": plain" : ": " + mode->get<std::string>();
  } else if (*mode != *setting) {
    out += ": " + mode->get<std::string>();  // a namespace's own
  }
  // Sealing alone makes records a little longer.
  const auto ratio = coding.find("ratio");
  if (ratio != coding.end() && ratio->is_number() && *ratio > 1.0) {
    char text[32];
    std::snprintf(text, sizeof text, ", %.2fx", ratio->get<double>());
    out += text;
  }
  const auto sealed = coding.find("sealed");
  if (sealed != coding.end() && *sealed == true) out += ", sealed";
  return out + refused_text(coding, "refused_lossy", "lossy refused") + refused_text(coding, "refused", "refused");
}

Json coding_json(const kvbm_tier_codec_stats_t& tier) {
  Json out = json_of(edge_of(tier));
  out["coded"] = tier.coded;
  out["left_plain"] = tier.left_plain;
  out["sealed_records"] = tier.sealed;
  out["refused_lossy"] = tier.refused_lossy;
  out["missing_keys"] = tier.missing_keys;
  return out;
}

Json coding_json(const kvbm_node_row_t& row) {
  Json out = json_of(edge_of(row));
  out["refused"] = row.codec_refused;
  return out;
}

std::string id_text(const uint8_t (&node)[16]) {
  std::string id;
  char two[3];
  for (const uint8_t byte : node) {
    std::snprintf(two, sizeof two, "%02x", byte);
    id += two;
  }
  return id;
}

Json peer_json(const kvbm_node_row_t& row) {
  const std::string id = id_text(row.node);
  return {{"node", id.find_first_not_of('0') == std::string::npos ? Json() : Json(id)},  // null: never connected
          {"address", row.address},
          {"state", row.state},
          {"capacity_bytes", row.capacity_bytes},
          {"used_bytes", row.used_bytes},
          {"records", row.records},
          {"fetched_bytes", row.fetched_bytes},
          {"served_bytes", row.served_bytes},
          {"path", row.path},
          {"path_reason", row.path_reason},
          {"local_bytes", row.local_bytes},
          {"coding", coding_json(row)}};
}

}  // namespace kvbm::node
