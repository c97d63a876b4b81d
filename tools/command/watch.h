// `kvbm watch`: shows the KV events of an engine, or of kvbm itself, as they happen.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_watch(Registry& registry);

}  // namespace kvbm::command
