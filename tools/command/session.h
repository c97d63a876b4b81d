// `kvbm session send | receive`: moves a request's KV from a prefill side to a decode side, in two shells.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_session(Registry& registry);

}  // namespace kvbm::command
