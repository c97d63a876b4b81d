// `kvbm replay`: replays a trace over eviction policies, or through the library with real bytes.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_replay(Registry& registry);

}  // namespace kvbm::command
