// `kvbm demo`: shows the main job on one screen.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_demo(Registry& registry);

}  // namespace kvbm::command
