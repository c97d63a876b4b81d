// How much a layer of each kind keeps.
#pragma once

#include <string>

#include "size/layers.h"
#include "size/reader.h"
#include "size/types.h"

namespace kvbm::size {

// One layer's; `layers` of the group is left to the caller.
LayerGroup group_of(Reader& in, const TypeFacts& type, const std::string& type_name, const Layer& layer);
// The state of a recurrent mixer beside attention in the same layer.
LayerGroup mamba_group(Reader& in, const std::string& type_name);

}  // namespace kvbm::size
