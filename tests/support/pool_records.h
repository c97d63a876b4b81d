// Records in a host pool with bytes computed from a number, so that a reader can check them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "tier/host/host_arena.h"

namespace kvbm::test {

inline constexpr uint64_t kPoolBlockBytes = 192 * 1024 + 512;  // three whole leaves and a short one

Family pool_family();
Key pool_key(uint64_t number);
// The payload of the record of `number`.
std::vector<std::byte> pool_payload(uint64_t number, uint64_t bytes = kPoolBlockBytes);
// Writes a record as its owner does: the head is cleared first and written last.
void put_pool_record(const tier::HostArena& arena, SlotId slot, uint64_t number, uint64_t bytes = kPoolBlockBytes);
// Makes a shared host tier with the given number of slots. Returns null, and fails the test, if there is none.
std::unique_ptr<tier::HostArena> make_pool(uint32_t slots, uint64_t block_bytes = kPoolBlockBytes);

}  // namespace kvbm::test
