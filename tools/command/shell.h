// `kvbm completion` and the hidden `kvbm man`: shell completion and the manual page. Both are generated from the
// command's own option tree, so that they are always up to date.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_completion(Registry& registry);
void add_man(Registry& registry);

}  // namespace kvbm::command
