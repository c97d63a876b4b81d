#include "node/health.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "node/coding_view.h"
#include "terminal/json_text.h"

namespace kvbm::node {

namespace {

struct Peers {
  size_t ready = 0;
  size_t absent = 0;
};

// Counts peers. This waits for a turn of the links' thread, so a node with a hung thread is not healthy.
Peers peers_of(const Member& member) {
  Peers out;
  for (const kvbm_node_row_t& row : member.nodes()) ++(std::strcmp(row.state, "ready") == 0 ? out.ready : out.absent);
  return out;
}

HttpServer::Reply health(const Member& member) {
  (void)peers_of(member);
  return {200, "text/plain; charset=utf-8", "ok\n"};
}

// Other nodes are no condition, because a pool that starts has none yet.
HttpServer::Reply readiness(const Member& member) {
  HttpServer::Reply out;
  const Peers peers = peers_of(member);
  const kvbm_manager_stats_t stats = member.stats();
  for (uint32_t t = 0; t < stats.n_tiers; ++t) {
    if (stats.tiers[t].disabled == 0) continue;
    out.code = 503;
    out.body += "tier " + std::to_string(t) + " is out of service\n";
  }
  if (out.code == 200) out.body = "ready\n";
  out.body +=
      "nodes connected: " + std::to_string(peers.ready) + " of " + std::to_string(peers.ready + peers.absent) + "\n";
  return out;
}

HttpServer::Reply json_page(const nlohmann::ordered_json& json) {
  return {200, "application/json", terminal::json_text(json) + "\n"};
}

HttpServer::Reply peers(const Member& member) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const kvbm_node_row_t& row : member.nodes()) rows.push_back(peer_json(row));
  return json_page(rows);
}

HttpServer::Reply tiers(const Member& member) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const kvbm_manager_stats_t stats = member.stats();
  for (uint32_t t = 0; t < stats.n_tiers; ++t) {
    const kvbm_tier_stats_t& s = stats.tiers[t];
    rows.push_back({{"tier", t},
                    {"blocks", s.blocks},
                    {"used_bytes", s.used_bytes},
                    {"capacity_bytes", s.capacity_bytes},
                    {"hits", s.hits},
                    {"stores", s.stores},
                    {"loads", s.loads},
                    {"damaged", s.damaged},
                    {"disabled", s.disabled != 0},
                    {"coding", coding_json(stats.codec[t])}});
  }
  return json_page(rows);
}

HttpServer::Reply metrics(const Member& member) {
  const Peers peers = peers_of(member);
  std::string text = member.metrics();
  text += "# HELP kvbm_node_peers Other nodes: connected, and addresses where no node answers.\n";
  text += "# TYPE kvbm_node_peers gauge\n";
  text += "kvbm_node_peers{state=\"ready\"} " + std::to_string(peers.ready) + "\n";
  text += "kvbm_node_peers{state=\"absent\"} " + std::to_string(peers.absent) + "\n";
  return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(text)};
}

struct Page {
  const char* path;
  HttpServer::Reply (*make)(const Member& member);
};
constexpr Page kPages[] = {
    {"/healthz", health}, {"/readyz", readiness}, {"/metrics", metrics}, {"/peers", peers}, {"/tiers", tiers}};

}  // namespace

std::string health_pages() {
  std::string text;
  for (const Page& page : kPages) text.append(text.empty() ? "" : ", ").append(page.path);
  return text;
}

void add_health_pages(HttpServer& server, const Member& member) {
  for (const Page& page : kPages) {
    server.add(page.path, [make = page.make, &member] { return make(member); });
  }
}

}  // namespace kvbm::node
