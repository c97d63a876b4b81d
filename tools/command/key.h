// `kvbm key new`: makes a key for a pool of nodes.
#pragma once

namespace kvbm::command {

class Registry;
void add_key(Registry& registry);

}  // namespace kvbm::command
