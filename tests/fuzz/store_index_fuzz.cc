// Index objects of stores, which any writer of a bucket may have made. Every input is also parsed with its hash made
// right.
#include <algorithm>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "target.h"
#include "tier/store/store_format.h"
#include "tier/store/store_index.h"

namespace store_index_fuzz {

namespace {

using namespace kvbm;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// Records of an index that parses lie inside their packs. The index can be added and dropped again.
void parse(ConstBytes bytes) {
  const auto index = tier::store::decode_index(bytes);
  if (!index.ok()) return;
  tier::store::StoreIndex known(uint64_t{1} << 26, 1);
  for (const auto& pack : index.value().packs) {
    for (const auto& record : pack.records) check(record.offset + record.bytes() <= pack.bytes);
    (void)known.add(pack);
  }
  for (const auto& name : index.value().erased) (void)known.erase(name);
  tier::store::FamilyErasure erasure;
  for (const auto& row : index.value().families) erasure.add(row.family, row.until_ms);
  while (known.erase_families(erasure, 1)) {
  }
  for (const auto& pack : index.value().packs) (void)known.drop(pack.stamp);
  check(known.records() == 0 && known.packs() == 0 && known.payload_bytes() == 0);
}

}  // namespace

KVBM_FUZZ_TARGET(store_index) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  parse(bytes);
  if (size < tier::store::kIndexHeaderBytes) return 0;
  std::vector<std::byte> right(bytes.begin(), bytes.end());
  store_le<uint64_t>(right.data() + 8, codec::leaf_hash(ConstBytes(right).subspan(16)));
  parse(right);
  return 0;
}

}  // namespace store_index_fuzz
