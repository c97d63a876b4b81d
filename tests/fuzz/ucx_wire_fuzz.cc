// The heads of the UCX module's frames and the keys of its memory: the first byte says which.
#include <cstddef>
#include <cstdint>

#include "../../ucx_transport/wire.h"
#include "target.h"

namespace ucx_wire_fuzz {

KVBM_FUZZ_TARGET(ucx_wire) {
  using namespace kvbm::ucx;
  if (size == 0) return 0;
  const void* rest = data + 1;
  const size_t left = size - 1;
  if (const auto key = parse_key(rest, left)) {
    // A parsed key has its packed part inside the message and a range that does not wrap.
    if (sizeof(KeyHead) + key->packed != left || key->base + key->bytes < key->base) __builtin_trap();
  }
  if (const auto head = parse<ControlHead>(rest, left)) {
    if (valid(*head) && (head->magic != kMagic || left != sizeof(ControlHead))) __builtin_trap();
  }
  const uint64_t part = uint64_t{data[0]} << (data[0] % 57);
  if (const auto head = parse<BulkHead>(rest, left); head && valid(*head, part)) {
    // A part must lie inside its push.
    if (head->offset + part < part || head->offset + part > head->total || (part == 0 && head->total != 0))
      __builtin_trap();
  }
  return 0;
}

}  // namespace ucx_wire_fuzz
