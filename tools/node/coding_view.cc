#include "node/coding_view.h"

#include <cstdio>

namespace kvbm::node {

namespace {

using Json = nlohmann::ordered_json;

// What both kinds of edges say.
struct Edge {
  bool automatic = false;
  uint32_t setting = 0;  // a mode of the configuration
  uint32_t mode = 0;     // what is done now
  uint64_t plain_bytes = 0, stored_bytes = 0;
  uint64_t refused = 0;
  const char* refused_what = "";
  bool sealed = false;
};

std::string mode_name(uint32_t mode) {
  const char* name = kvbm_codec_mode_name(mode);
  return name != nullptr ? name : "mode " + std::to_string(mode);
}

std::string setting_name(const Edge& edge) { return edge.automatic ? "auto" : mode_name(edge.setting); }

std::string text_of(const Edge& edge) {
  std::string out = setting_name(edge);
  if (edge.automatic) {
    out += edge.mode == KVBM_CODEC_OFF ? ": plain" : ": " + mode_name(edge.mode);
  } else if (edge.mode != edge.setting) {
    out += ": " + mode_name(edge.mode);  // a namespace's own
  }
  // Sealing alone makes records a little longer.
  if (edge.stored_bytes != 0 && edge.plain_bytes > edge.stored_bytes) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, ", %.2fx",
                  static_cast<double>(edge.plain_bytes) / static_cast<double>(edge.stored_bytes));
    out += ratio;
  }
  if (edge.sealed) out += ", sealed";
  if (edge.refused != 0) out += ", " + std::to_string(edge.refused) + " " + edge.refused_what;
  return out;
}

Json json_of(const Edge& edge) {
  Json ratio = nullptr;
  if (edge.stored_bytes != 0) ratio = static_cast<double>(edge.plain_bytes) / static_cast<double>(edge.stored_bytes);
  return {{"setting", setting_name(edge)},
          {"mode", mode_name(edge.mode)},
          {"ratio", std::move(ratio)},
          {"saved_bytes", static_cast<int64_t>(edge.plain_bytes) - static_cast<int64_t>(edge.stored_bytes)},
          {"sealed", edge.sealed}};
}

Edge edge_of(const kvbm_tier_codec_stats_t& tier) {
  return {tier.automatic != 0, tier.setting,       tier.mode,       tier.plain_bytes,
          tier.stored_bytes,   tier.refused_lossy, "lossy refused", tier.seals != 0};
}

Edge edge_of(const kvbm_node_row_t& row) {
  const bool automatic = row.codec_automatic != 0;
  const uint32_t setting = automatic ? uint32_t{KVBM_CODEC_OFF} : row.codec;
  return {automatic, setting,           row.codec, row.codec_plain_bytes, row.codec_stored_bytes,
          row.codec_refused, "refused", row.codec_sealed != 0};
}

}  // namespace

std::string coding_text(const kvbm_tier_codec_stats_t& tier) { return text_of(edge_of(tier)); }
std::string coding_text(const kvbm_node_row_t& row) { return text_of(edge_of(row)); }

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
  return {{"node", id_text(row.node)},
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
