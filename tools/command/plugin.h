// `kvbm plugin`: checks shared libraries that kvbm would load.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_plugin(Registry& registry);

}  // namespace kvbm::command
