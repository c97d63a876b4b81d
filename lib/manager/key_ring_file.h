// The file of seal.key_file (codec/seal.h says what is in it).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "codec/seal.h"

namespace kvbm::manager {

// Null for an empty path: nothing is sealed. bad_config naming the file, never a key: it cannot be read, others may
// read it, or it holds no keys.
Result<std::shared_ptr<const codec::KeyRing>> read_key_ring(const std::string& path);

}  // namespace kvbm::manager
