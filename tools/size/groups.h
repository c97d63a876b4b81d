// Computes the memory of a layer of each kind.
#pragma once

#include <string>

#include "size/layers.h"
#include "size/reader.h"
#include "size/types.h"

namespace kvbm::size {

// Returns the group of one layer. The caller sets its `layers`.
LayerGroup group_of(Reader& in, const TypeFacts& type, const std::string& type_name, const Layer& layer);
// Returns the state of a recurrent mixer beside attention in the same layer.
LayerGroup mamba_group(Reader& in, const std::string& type_name);

}  // namespace kvbm::size
