// Memory of this process that other processes may map and read, and can neither write, nor shrink, nor punch holes
// into: a memfd, mapped writable here once, and sealed after that.
//
// F_SEAL_SHRINK and F_SEAL_GROW (Linux 3.17) fix the size, so no reader gets a SIGBUS behind its end.
// F_SEAL_FUTURE_WRITE (5.1) refuses every later writable mapping, write() and hole punch, also by the owner. The
// existing mapping stays writable, and allocated pages stay allocated. On hugetlb pages that seal was accepted but not
// enforced before 5.13. So it is tested after sealing instead of asking for a version. F_SEAL_SEAL forbids other seals.
//
// A hole would still be a SIGBUS if the system has no page left for it. So a pool is allocated as a whole before it is
// sealed, and a reader checks that too.
#pragma once

#include <cstddef>

#include "base/io/fd.h"
#include "base/status.h"

namespace kvbm {

// Makes an empty file of `bytes` bytes, to be mapped, filled and sealed. hugetlb: of reserved huge pages; no_memory or
// unsupported if there are none. `bytes` is a multiple of 2 MiB.
Result<Fd> make_shared_memory(size_t bytes, bool hugetlb);

// Allocates remaining holes, seals, and tests that writing is impossible from now on. unsupported: this kernel cannot
// do it, and the memory must not be shared.
Status seal_shared_memory(int fd, size_t bytes);

// Run by the reader: checks that the descriptor is such memory, of exactly that size. not_permitted with the reason if
// it is not: unsealed memory could be shrunk under the reader.
Status check_shared_memory(int fd, size_t bytes);

}  // namespace kvbm
