#include "manager/operation/leaf_mover.h"

namespace kvbm::manager {

LeafMover::Added HostScatter::add(size_t /*number*/, const LeafRecord& record, const LeafPlace& place) {
  const codec::Leaf& leaf = place.leaf;
  const StridedRun run = place.part.run(place.index, place.block);
  Added added;
  added.leaves = 1;
  added.moved = added.spent = leaf.raw_bytes;
  added.hash = codec::scatter_hashed({&run, 1}, record.payload + leaf.offset, hint_, codec::CopyOrder::later);
  if (record.head == nullptr) return added;
  const codec::Leaf expected = record.head->leaf(place.index);
  if (expected.hash != added.hash || expected.offset != leaf.offset || expected.raw_bytes != leaf.raw_bytes) {
    added.code = Code::damaged;
  }
  return added;
}

LeafMover::Added HostGather::add(size_t /*number*/, const LeafRecord& record, const LeafPlace& place) {
  const StridedRun run = place.part.run(place.index, place.block);
  Added added;
  added.leaves = 1;
  added.moved = added.spent = place.leaf.raw_bytes;
  added.hash = codec::gather_hashed(record.payload + place.leaf.offset, {&run, 1}, codec::CopyHint::automatic,
                                    codec::CopyOrder::later);
  return added;
}

}  // namespace kvbm::manager
