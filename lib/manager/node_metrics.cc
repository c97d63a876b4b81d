// What a node counts of its connections, as Prometheus text. Names: docs/operations.md lists them.
#include <cctype>
#include <string>

#include "base/metrics.h"
#include "manager/node.h"

namespace kvbm::manager {

namespace {

// "KVBM_ERR_OWNER_GONE" as a label: "owner_gone".
std::string reason_of(Code code) {
  constexpr std::string_view kBefore = "KVBM_ERR_";
  std::string_view name = code_name(code);
  if (name.starts_with(kBefore)) name.remove_prefix(kBefore.size());
  std::string out;
  for (const char c : name) out.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return out;
}

}  // namespace

std::string node_metrics_text(Node& node) {
  const cluster::MeshCounts now = node.counts();
  MetricsRegistry registry;
  registry.counter("kvbm_node_connections_total", "Connections whose peer proved that it is of the pool.")
      .add(now.ready);
  registry.counter("kvbm_node_violations_total", "Messages of peers that broke the protocol or were changed.")
      .add(now.violations);
  registry.counter("kvbm_node_damaged_total", "Records of peers that were not what they have to be.").add(now.damaged);
  for (const auto& [code, n] : now.ended) {
    registry
        .counter("kvbm_node_connections_ended_total", "Connections, and tries to have one, that ended.",
                 {{"reason", reason_of(code)}})
        .add(n);
  }
  return registry.text();
}

}  // namespace kvbm::manager
