// Attacks on bulk between two nodes that need no key: changes bytes of a block, and makes every hash in it agree with
// them. The hashes detect faults, and have no key.
#pragma once

#include "base/bytes.h"

namespace kvbm::test {

// Forges `bulk`, which must be all of one push: a record (head and payload), or a slice of a session with one leaf.
// Inverts the payload's byte at `at` (counted from the end if it is beyond the payload), and makes leaf hash, root hash
// and checksums right again. Returns false, and changes nothing, if `bulk` is neither.
bool forge_bulk(MutableBytes bulk, size_t at);

}  // namespace kvbm::test
