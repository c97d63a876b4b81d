// kvbm node, put, get, exists, peers: a node of a pool, and a pool by hand.
#pragma once

namespace kvbm::node {
struct MemberOptions;
}

namespace kvbm::command {

class Command;
class Registry;
void add_node(Registry& registry);
// --protect and --trusted-network, of every command that is a node.
void add_protection(Command app, node::MemberOptions& member);

}  // namespace kvbm::command
