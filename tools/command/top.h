// `kvbm top`: shows the inside of a store while a trace goes through it.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_top(Registry& registry);

}  // namespace kvbm::command
