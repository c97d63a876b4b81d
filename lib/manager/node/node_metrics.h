// A node's counters of its connections as Prometheus text. docs/operations.md lists the names.
#pragma once

#include <string>

namespace kvbm::manager {

class Node;

std::string node_metrics_text(Node& node);

}  // namespace kvbm::manager
