#include "manager/operation/device_mover.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "codec/leaf/leaf_coding.h"
#include "device/context/device.h"
#include "device/transfer/leaf_table.h"
#include "device/transfer/transfers.h"
#include "manager/stack/delivery.h"

namespace kvbm::manager {

DeviceMover::DeviceMover(device::Transfers& transfers, DeviceFlight::Way way,
                         std::shared_ptr<device::StreamPoint> after, std::shared_ptr<void> keep,
                         std::shared_ptr<device::Landmark> landmark)
    : transfers_(transfers), flight_(transfers, way, std::move(after), std::move(keep), std::move(landmark)) {}

DeviceMover::~DeviceMover() = default;

bool DeviceMover::is_lost() const noexcept { return transfers_.device().is_lost(); }

LeafMover::Added DeviceMover::add(size_t number, const LeafRecord& record, const LeafPlace& place) {
  if (flight_.full()) return {};
  const bool in_runs = record.coded == nullptr && !record.on_device;
  return in_runs ? add_many(number, record, place) : add_one(number, record, place);
}

// Adds a leaf of a record that is coded, or in memory of the device. Such a record has a head that is compared.
LeafMover::Added DeviceMover::add_one(size_t number, const LeafRecord& record, const LeafPlace& place) {
  Added added;
  const codec::Leaf& leaf = place.leaf;
  const codec::Leaf expected = record.head->leaf(place.index);
  if (expected.offset != leaf.offset || expected.raw_bytes != leaf.raw_bytes) {
    added.code = Code::damaged;
    return added;
  }
  device::LeafMove move;
  move.device = place.part.run(place.index, place.block);
  move.record = record.payload + leaf.offset;
  move.expected = expected.hash;
  move.check = true;
  move.on_device = record.on_device;
  if (!record.on_device) {
    std::shared_ptr<void> own;
    added.code = name_coded(record, place.index, move, own);
    if (added.code != Code::ok) return added;
    if (own != nullptr) added.spent = leaf.raw_bytes;
    if (own != nullptr) flight_.own(std::move(own));
  }
  flight_.add(number, place.index, move);
  added.leaves = added.away = 1;
  return added;
}

// Adds leaves of a plain record in host memory as one run, from that one on, as far as the head describes them.
LeafMover::Added DeviceMover::add_many(size_t number, const LeafRecord& record, const LeafPlace& place) {
  Added added;
  const device::LeafTable& table = *place.part.table();
  // Else the record was checked whole, or is a managed block without a head (host.managed_hashes).
  const bool compared = record.head != nullptr;
  const uint32_t first = place.index;
  uint32_t last = first;
  for (; last < table.group_end(first) && table.layer(last) <= place.last_layer; ++last) {
    if (!compared) continue;
    const codec::Leaf expected = record.head->leaf(last);
    if (expected.offset != table.offset(last) || expected.raw_bytes != table.bytes(last)) break;
    flight_.expect(expected.hash);
  }
  if (last == first) {
    added.code = Code::damaged;
    return added;
  }
  flight_.add_many(number, table, first, last, place.block, record.payload + table.offset(first), compared);
  added.leaves = added.away = last - first;
  return added;
}

// Fills in `move`, which is complete for a plain leaf, with the leaf's address and codec. `own`: memory of the leaf, if
// it was decoded here. A damaged leaf is sent as 0xFF: the device's check fails, and the old content of the pages is
// overwritten. Codes as of codec::decode_leaf().
Code DeviceMover::name_coded(const LeafRecord& record, uint32_t leaf, device::LeafMove& move,
                             std::shared_ptr<void>& own) {
  const codec::OpenedLeaf& lies = record.coded->leaves[leaf];
  move.record = record.payload + lies.offset;
  if (lies.codec == codec::LeafCodec::raw) return Code::ok;
  const ConstBytes bytes(move.record, lies.bytes);
  if (transfers_.decodes(lies.codec, bytes)) {
    move.codec = lies.codec;
    move.coded_bytes = lies.bytes;
    move.check_coded = !lies.verified;
    move.coded_hash = lies.hash;
    return Code::ok;
  }
  const uint64_t raw_bytes = move.device.total();
  std::shared_ptr<std::byte[]> plain(new std::byte[raw_bytes]);
  if (coder_ == nullptr) coder_ = std::make_unique<codec::Workspace>();
  Code code = Code::damaged;
  if (lies.verified || codec::leaf_hash(bytes) == lies.hash) {
    code = codec::decode_leaf(lies.codec, bytes, {plain.get(), raw_bytes}, *coder_).code();
  }
  if (code == Code::damaged) std::memset(plain.get(), 0xFF, raw_bytes);
  if (code != Code::ok && code != Code::damaged) return code;
  move.record = plain.get();
  own = std::move(plain);
  return Code::ok;
}

bool DeviceMover::take(Moved& out) {
  for (;;) {
    if (trip_ != nullptr && run_ == trip_->runs.size()) trip_ = nullptr;
    if (trip_ == nullptr) {
      if (flight_.away() == 0) return false;
      trip_ = flight_.take();
      if (trip_ == nullptr) return false;
      run_ = at_ = 0;
    }
    const DeviceFlight::Run& run = trip_->runs[run_++];
    const size_t first = std::exchange(at_, at_ + run.count);
    if (run.record == DeviceFlight::kNoRecord) continue;
    out = Moved{run.record, run.first_leaf, run.count, run.bytes, trip_->code, {}};
    if (out.code != Code::ok) return true;
    out.hashes = std::span<const uint64_t>(trip_->hashes).subspan(first, run.count);
    const auto good = std::span<const uint8_t>(trip_->good).subspan(first, run.count);
    if (std::find(good.begin(), good.end(), uint8_t{0}) != good.end()) out.code = Code::damaged;
    return true;
  }
}

}  // namespace kvbm::manager
