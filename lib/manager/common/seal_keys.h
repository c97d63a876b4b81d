// Keys that seal records when they leave the host: seal.key_file.
#pragma once

#include "base/status.h"
#include "codec/seal/seal.h"
#include "manager/common/options.h"

namespace kvbm::manager {

// Reads options.seal_key_file into options.seal_keys, which stays null for an empty path. A ring that is set already
// is kept: tiers and links of one manager share one ring, even if the file changes. bad_config: the file cannot be
// read, other users may read or write it, or it holds no keys. No text contains a key.
Status load_seal_keys(Options& options);

}  // namespace kvbm::manager
