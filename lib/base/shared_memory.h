// Memory of this process that other processes may map and read, and can neither write, nor shrink, nor punch holes
// into: a memfd, mapped writable here once, and sealed after that.
//
// F_SEAL_SHRINK and F_SEAL_GROW (Linux 3.17) fix the size, so no reader meets a SIGBUS behind its end.
// F_SEAL_FUTURE_WRITE (5.1) refuses every writable mapping, write() and hole punched from now on, also by the owner,
// while the mapping that is there stays writable: pages that were allocated stay allocated. On hugetlb pages that seal
// was accepted and not enforced before 5.13, so it is tried out after sealing instead of asking for a version.
// F_SEAL_SEAL ends the matter. A hole would still be a SIGBUS where the system has no page left for it, so a pool is
// allocated whole before it is sealed, and a reader asks for that too.
#pragma once

#include <cstddef>

#include "base/fd.h"
#include "base/status.h"

namespace kvbm {

// An empty file of that many bytes, to be mapped, filled and sealed. hugetlb: of reserved huge pages; no_memory or
// unsupported where there are none. `bytes` is a multiple of 2 MiB.
Result<Fd> make_shared_memory(size_t bytes, bool hugetlb);

// Allocates what is still a hole, seals, and makes sure that nobody can write from now on. unsupported: this kernel
// cannot do it, and the memory must not be handed to anybody.
Status seal_shared_memory(int fd, size_t bytes);

// The reader's side: the descriptor is such memory, of exactly that size. not_permitted with the reason if it is not:
// what is not sealed could be shrunk under the reader.
Status check_shared_memory(int fd, size_t bytes);

}  // namespace kvbm
