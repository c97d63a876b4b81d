#include "manager/host/host_record.h"

#include <algorithm>
#include <cstring>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "manager/host/host_tier.h"

namespace kvbm::manager {

namespace {
// Offset at which a slot without a head keeps a parent: behind the word that would be the magic.
constexpr size_t kNotedParentAt = 16;
}  // namespace

namespace {

codec::Header header_of(HostTier& host, const HeadFacts& facts, size_t leaves, size_t attribute_bytes) {
  const Family& family = host.families().get(facts.family);
  if ((facts.flags & codec::kContentKey) != 0) host.note_positions();
  codec::Header header;
  header.flags = facts.flags;
  header.ns = family.ns;
  header.key = facts.key;
  header.parent = facts.parent;
  header.component = family.component;
  header.shard = family.shard;
  header.geometry = family.geometry;
  header.record_id = host.new_record_id();
  header.tokens = facts.tokens;
  header.leaf_count = static_cast<uint32_t>(leaves);
  header.raw_bytes = facts.payload_bytes;
  header.stored_bytes = facts.payload_bytes;
  header.attribute_bytes = static_cast<uint32_t>(attribute_bytes);
  return header;
}

Code head_is_there(HostTier& host, SlotId slot, const HeadFacts& facts, const Result<size_t>& written) {
  if (!written.ok()) return written.status().code();
  host.table().set_payload_bytes(slot, static_cast<uint32_t>(facts.payload_bytes));
  host.table().set_flags(slot, kHasHead);
  return Code::ok;
}

}  // namespace

Code write_head(HostTier& host, SlotId slot, const HeadFacts& facts, std::span<const codec::Leaf> leaves,
                ConstBytes attributes) {
  const codec::Header header = header_of(host, facts, leaves.size(), attributes.size());
  return head_is_there(host, slot, facts, codec::encode_head(header, leaves, attributes, host.arena().head(slot)));
}

Result<std::vector<std::byte>> encode_head(HostTier& host, const HeadFacts& facts, std::span<const codec::Leaf> leaves,
                                           ConstBytes attributes) {
  std::vector<std::byte> out(codec::head_bytes(static_cast<uint32_t>(leaves.size()), attributes.size()));
  const codec::Header header = header_of(host, facts, leaves.size(), attributes.size());
  const auto written = codec::encode_head(header, leaves, attributes, out);
  if (!written.ok()) return written.status();
  return out;
}

void note_payload_bytes(HostTier& host, SlotId slot, uint64_t bytes) noexcept {
  host.table().set_payload_bytes(slot, static_cast<uint32_t>(bytes));
  std::memset(host.arena().head(slot).data() + kNotedParentAt, 0, sizeof(Key));
}

void note_parent(HostTier& host, SlotId slot, const Key& parent) noexcept {
  std::memcpy(host.arena().head(slot).data() + kNotedParentAt, parent.bytes.data(), parent.bytes.size());
}

Result<codec::HeadView> read_head(HostTier& host, SlotId slot) {
  auto view = codec::HeadView::parse(host.arena().head(slot));
  if (!view.ok()) return view;
  const Identity id = host.table().identity(slot);
  const codec::Header& header = view.value().header();
  const Family& family = host.families().get(id.family);
  if (header.key != id.key || header.ns != family.ns || header.component != family.component ||
      header.shard != family.shard || header.stored_bytes > host.arena().block_bytes()) {
    return Status(Code::damaged, "a host record names another block");
  }
  return view;
}

bool lies_lossy(HostTier& host, SlotId slot) noexcept {
  if ((host.table().flags(slot) & kHasHead) == 0) return false;  // this process made the record, so it is lossless
  const auto header = codec::peek_header(ConstBytes(host.arena().head(slot)).first(codec::kHeaderBytes));
  return header.ok() && (header.value().flags & codec::kLossy) != 0;
}

std::optional<codec::Position> position_of(HostTier& host, SlotId slot) noexcept {
  if ((host.table().flags(slot) & kHasHead) == 0) return std::nullopt;  // see publish_managed
  const ConstBytes head = host.arena().head(slot);
  const auto header = codec::peek_header(head.first(codec::kHeaderBytes));
  if (!header.ok() || (header.value().flags & codec::kContentKey) == 0) return std::nullopt;
  const MemoryWait no_error_path;  // a damaged head may make the parser allocate an error text
  const auto view = codec::HeadView::parse(head);
  return view.ok() ? codec::find_position(view.value().attributes()) : std::nullopt;
}

// Allocates nothing: every block that is registered passes through here.
Code make_head(HostTier& host, SlotId slot, HeadFacts facts, ConstBytes attributes) {
  facts.payload_bytes = host.table().payload_bytes(slot);
  facts.flags |= codec::kOpaque;
  const MutableBytes head = host.arena().head(slot);
  const uint32_t leaves = codec::opaque_leaf_count(facts.payload_bytes);
  if (codec::head_bytes(leaves, attributes.size()) > head.size()) return Code::invalid_argument;
  const ConstBytes payload = host.arena().payload(slot);
  for (uint32_t i = 0; i < leaves; ++i) {
    codec::Leaf leaf = codec::opaque_leaf(facts.payload_bytes, i);
    leaf.hash = codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes));
    codec::put_leaf(head, i, leaf);
  }
  std::copy(attributes.begin(), attributes.end(), head.begin() + static_cast<ptrdiff_t>(codec::head_bytes(leaves, 0)));
  const codec::Header header = header_of(host, facts, leaves, attributes.size());
  return head_is_there(host, slot, facts, codec::finish_head(header, head));
}

Code ensure_head(HostTier& host, SlotId slot) {
  block::BlockTable& table = host.table();
  const uint8_t before = table.set_flags(slot, kMakingHead);
  if ((before & kHasHead) != 0) {
    if ((before & kMakingHead) == 0) table.clear_flags(slot, kMakingHead);
    return Code::ok;
  }
  if ((before & kMakingHead) != 0) return Code::again;
  const Identity id = table.identity(slot);
  HeadFacts facts;
  facts.family = id.family;
  facts.key = id.key;
  std::memcpy(facts.parent.bytes.data(), host.arena().head(slot).data() + kNotedParentAt, sizeof(Key));
  const Code code = make_head(host, slot, facts, {});
  if (code == Code::ok) host.keep_over_restart(slot);
  table.clear_flags(slot, kMakingHead);
  return code;
}

std::vector<Key> unit_keys(const codec::HeadView& head) {
  const auto attributes = codec::parse_attributes(head.attributes());
  if (!attributes.ok()) return {};
  for (const codec::AttributeView& attribute : attributes.value()) {
    if (attribute.tag == codec::Attribute::unit_keys) return codec::parse_unit_keys(attribute.value);
  }
  return {};
}

Code describe_for_put(HostTier& host, SlotId slot, tier::PutItem& item) {
  const Code made = ensure_head(host, slot);
  if (made != Code::ok) return made;
  if (!host.trust(slot)) return Code::damaged;
  const auto view = read_head(host, slot);
  if (!view.ok()) return view.status().code();
  const codec::Header& header = view.value().header();
  item.id = host.table().identity(slot);
  item.has_parent = header.parent != Key{};
  item.parent = {header.parent, item.id.family};
  item.uses = static_cast<uint16_t>(host.table().info(slot).uses);
  item.head = ConstBytes(host.arena().head(slot)).first(view.value().head_bytes());
  item.payload = ConstBytes(host.arena().payload(slot)).first(header.stored_bytes);
  return Code::ok;
}

}  // namespace kvbm::manager
