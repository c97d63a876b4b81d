// What a node counts of its connections, as Prometheus text. Names: docs/operations.md lists them.
#pragma once

#include <string>

namespace kvbm::manager {

class Node;

std::string node_metrics_text(Node& node);

}  // namespace kvbm::manager
