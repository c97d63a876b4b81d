// kvbm node, put, get, exists, peers: a node of a pool, and a pool by hand.
#pragma once

namespace kvbm::command {

class Registry;
void add_node(Registry& registry);

}  // namespace kvbm::command
