// `kvbm node`, `put`, `get`, `exists`, `peers`: run a node of a pool, and use a pool from a shell.
#pragma once

namespace kvbm::node {
struct MemberOptions;
}

namespace kvbm::command {

class Command;
class Registry;
void add_node(Registry& registry);
// Adds --protect and --trusted-network to a command that is a node.
void add_protection(Command app, node::MemberOptions& member);

}  // namespace kvbm::command
