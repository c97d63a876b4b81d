// `kvbm codec compress|decompress|bench FILE`: tensor files, coded and back; what each mode makes of them.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_codec(Registry& registry);

}  // namespace kvbm::command
