// The keys that records are sealed with when they leave the host: seal.key_file.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "codec/seal.h"

namespace kvbm::manager {

// Null for an empty path. bad_config: the file cannot be read, others than its owner may read or write it, or it holds
// no keys. No text names a key.
Result<std::shared_ptr<const codec::KeyRing>> read_seal_keys(const std::string& path);

}  // namespace kvbm::manager
