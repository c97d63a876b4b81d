// The keys that records are sealed with when they leave the host: seal.key_file.
#pragma once

#include "base/status.h"
#include "codec/seal.h"
#include "manager/options.h"

namespace kvbm::manager {

// Reads options.seal_key_file into options.seal_keys, which stay null for an empty path. A ring that is there already is
// kept: tiers and links of one manager have one ring, whatever happens to the file meanwhile. bad_config: the file cannot
// be read, others than its owner may read or write it, or it holds no keys. No text names a key.
Status load_seal_keys(Options& options);

}  // namespace kvbm::manager
