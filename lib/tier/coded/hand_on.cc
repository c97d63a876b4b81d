#include "tier/coded/hand_on.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/io/file.h"

namespace kvbm::tier::coded {

namespace {

bool lies_in(MutableBytes target, ConstBytes bytes) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(target.data());
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  return at >= begin && at - begin <= target.size() && bytes.size() <= target.size() - (at - begin);
}

// True if the receiver decodes at least half of the coded bytes.
bool takes_most(ConstBytes opened, std::span<const codec::OpenedLeaf> leaves, const DecodesLeaf& decodes) {
  uint64_t taken = 0;
  uint64_t coded = 0;
  for (const codec::OpenedLeaf& leaf : leaves) {
    if (leaf.codec == codec::LeafCodec::raw) continue;
    coded += leaf.bytes;
    if (decodes(leaf.codec, opened.subspan(leaf.offset, leaf.bytes))) taken += leaf.bytes;
  }
  // A record that is sealed but not coded is plain once it is open.
  return taken != 0 && taken >= coded - taken;
}

}  // namespace

uint64_t landing_of(MutableBytes target, uint64_t stored_bytes) noexcept {
  const uint64_t room = target.size() / kIoAlign * kIoAlign;
  const uint64_t needed = round_up(stored_bytes, kIoAlign);
  return needed > room ? kNoLanding : room - needed;
}

Status hand_on(GetItem& item, const codec::HeadView& coded, ConstBytes stored, const std::shared_ptr<void>& lender,
               const codec::DecodeRules& rules, const DecodesLeaf& decodes, codec::Workspace& workspace) {
  const MutableBytes head = item.head.first(codec::plain_head_bytes(coded));
  std::vector<codec::OpenedLeaf> leaves(coded.header().leaf_count);
  const bool sealed = (coded.header().flags & codec::kSealed) != 0;
  const uint64_t bytes = codec::opened_bytes(coded);
  uint64_t at = landing_of(item.payload, bytes);
  if (at == kNoLanding) {  // the target ends within a page
    if (bytes > item.payload.size()) return {Code::invalid_argument, "a record to hand on: no room for it"};
    at = item.payload.size() - bytes;
  }
  const MutableBytes landing = item.payload.subspan(at, bytes);
  const MutableBytes deciphered = sealed ? landing : MutableBytes();
  const Status opened = codec::open_record(coded, stored, rules, head, deciphered, leaves, workspace);
  if (!opened.ok()) return opened;
  const bool lent = !sealed && lender != nullptr;
  if (takes_most(sealed ? ConstBytes(landing) : stored, leaves, decodes)) {
    uint64_t first = at;
    if (lent) {
      item.lent = stored;
      item.lender = lender;
      first = 0;
    } else if (!sealed && lies_in(item.payload, stored)) {
      first = static_cast<uint64_t>(stored.data() - item.payload.data());
    } else if (!sealed) {
      std::memcpy(landing.data(), stored.data(), bytes);
    }
    for (codec::OpenedLeaf& leaf : leaves) leaf.offset += first;
    item.coded = std::move(leaves);
    return {};
  }
  if (!sealed && !lies_in(item.payload, stored)) {
    const MutableBytes plain = item.payload.first(coded.header().raw_bytes);
    return codec::decode_record(coded, stored, rules, 0, 0, head, plain, workspace);
  }
  const uint64_t first = sealed ? at : static_cast<uint64_t>(stored.data() - item.payload.data());
  for (codec::OpenedLeaf& leaf : leaves) leaf.offset += first;
  const auto plain = codec::HeadView::parse(head);
  if (!plain.ok()) return plain.status();
  return codec::decode_opened(plain.value(), leaves, item.payload, workspace);
}

}  // namespace kvbm::tier::coded
