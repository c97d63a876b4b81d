// Coded leaves for device memory: leaves that the device can decode are sent coded, others are decoded here.
#include <cstring>
#include <memory>
#include <utility>

#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/operation/load.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

// Returns the predicate for leaves that the device decodes; null: it decodes none. The caller holds the cache and
// thereby the device.
tier::DecodesLeaf LoadOperation::device_decodes() const {
  if (flight_ == nullptr || !host_.options().device.decode) return {};
  device::Transfers& transfers = request_.cache->device()->transfers();
  return [&transfers](codec::LeafCodec codec, ConstBytes coded) { return transfers.decodes(codec, coded); };
}

// Fills in `move`, which is complete for a plain leaf, with the leaf's address and codec. `payload`: the base of the
// offsets. `own`: memory of the leaf, if it was decoded here. A damaged leaf is sent as 0xFF: the device's check
// fails, and the old content of the pages is overwritten. Codes as of codec::decode_leaf().
Code LoadOperation::name_coded(const CodedLanding& coded, uint32_t leaf, std::byte* payload, device::LeafMove& move,
                               std::shared_ptr<void>& own) {
  const codec::OpenedLeaf& lies = coded.leaves[leaf];
  move.record = payload + lies.offset;
  if (lies.codec == codec::LeafCodec::raw) return Code::ok;
  const ConstBytes bytes(move.record, lies.bytes);
  if (request_.cache->device()->transfers().decodes(lies.codec, bytes)) {
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

}  // namespace kvbm::manager
