// Attacks on bulk between two nodes that need no key: changes bytes of a block, and makes every hash in it agree with
// them. The hashes detect faults, and have no key.
#pragma once

#include "base/bytes.h"

namespace kvbm::test {

// `bulk` is all of one push: a record (head and payload), or a slice of a session of one leaf. Changes every bit of the
// payload's byte at `at` (from the end where that is beyond it), and mends leaf hash, root hash and checksums. False,
// and nothing is changed, where it is neither.
bool forge_bulk(MutableBytes bulk, size_t at);

}  // namespace kvbm::test
