#include "cluster/session/wire.h"

#include <algorithm>
#include <concepts>
#include <cstring>

#include "cluster/session/slice.h"
#include "cluster/wire/wire_fields.h"

namespace kvbm::cluster::session {
namespace {

using Bytes = std::vector<std::byte>;

template <std::integral T>
void put(Bytes& out, T v) {
  const size_t at = out.size();
  out.resize(at + sizeof v);
  store_le<T>(out.data() + at, v);
}

void put_bytes(Bytes& out, const void* data, size_t size) {
  const auto* const from = static_cast<const std::byte*>(data);
  out.insert(out.end(), from, from + size);
}

using wire::Reader;

Status bad(const char* why) { return Status(Code::damaged, "a session message is not one", why); }

constexpr size_t kComponentBytes = 32;
constexpr size_t kPartBytes = 32;

void put(Bytes& w, const Range& r) {
  put(w, r.begin);
  put(w, r.end);
}

Range get_range(Reader& r) {
  Range range;
  range.begin = r.get<uint64_t>();
  range.end = r.get<uint64_t>();
  return range;
}

void put(Bytes& w, const Part& p, uint32_t grain = 0) {
  put(w, p.component);
  put(w, p.shard.first_layer);
  put(w, p.shard.layers);
  put(w, p.shard.first_head);
  put(w, p.shard.heads);
  put(w, p.shard.replicated);
  put(w, grain);
  put(w, p.range);
}

Part get_part(Reader& r, uint32_t* grain = nullptr) {
  Part p;
  p.component = r.get<uint16_t>();
  p.shard.first_layer = r.get<uint16_t>();
  p.shard.layers = r.get<uint16_t>();
  p.shard.first_head = r.get<uint16_t>();
  p.shard.heads = r.get<uint16_t>();
  p.shard.replicated = r.get<uint16_t>();
  const auto said = r.get<uint32_t>();
  if (grain != nullptr) {
    *grain = said;
  } else if (said != 0) {
    r.fail();
  }
  p.range = get_range(r);
  return p;
}

void put(Bytes& w, const layout::ComponentGeometry& c) {
  put(w, static_cast<uint8_t>(c.kind));
  put(w, static_cast<uint8_t>(c.element));
  put(w, static_cast<uint16_t>(c.planes));
  put(w, c.layers);
  put(w, c.heads);
  put(w, c.head_dim);
  put(w, c.window_tokens);
  put(w, uint32_t{0});
  put(w, c.state_bytes);
}

layout::ComponentGeometry get_component(Reader& r) {
  layout::ComponentGeometry c;
  c.kind = static_cast<layout::ComponentKind>(r.get<uint8_t>());
  c.element = static_cast<layout::Element>(r.get<uint8_t>());
  c.planes = r.get<uint16_t>();
  c.layers = r.get<uint32_t>();
  c.heads = r.get<uint32_t>();
  c.head_dim = r.get<uint32_t>();
  c.window_tokens = r.get<uint32_t>();
  r.zero<uint32_t>();
  c.state_bytes = r.get<uint64_t>();
  return c;
}

void put(Bytes& w, const Open& b) {
  put_bytes(w, b.request.bytes.data(), b.request.bytes.size());
  put(w, b.remaining_ns);
  put(w, b.sink_count);
  put(w, static_cast<uint16_t>(b.facts.components.size()));
  put(w, static_cast<uint16_t>(b.parts.size()));
  put(w, b.ways);
  put(w, b.slice_bytes);
  put(w, uint32_t{0});
  put_bytes(w, b.facts.model.data(), b.facts.model.size());
  for (const auto& c : b.facts.components) put(w, c);
  for (const Part& p : b.parts) put(w, p);
}

Result<Body> get_open(Reader& r) {
  Open b;
  r.get(b.request.bytes);
  b.remaining_ns = r.get<uint64_t>();
  b.sink_count = r.get<uint16_t>();
  const size_t components = r.get<uint16_t>();
  const size_t parts = r.get<uint16_t>();
  b.ways = r.get<uint16_t>();
  b.slice_bytes = r.get<uint32_t>();
  r.zero<uint32_t>();
  r.get(b.facts.model);
  static_assert(kComponentBytes == kPartBytes);
  if (components > layout::kMaxComponents || parts > layout::kMaxComponents) return bad("OPEN has too many components");
  if (!r.items(components + parts, kPartBytes, size_t{2} * layout::kMaxComponents))
    return bad("OPEN has another length");
  for (size_t i = 0; i < components; ++i) b.facts.components.push_back(get_component(r));
  for (size_t i = 0; i < parts; ++i) b.parts.push_back(get_part(r));
  if (!r.finished() || b.sink_count == 0) return bad("OPEN has values that none has");
  if (auto s = check_facts(b.facts); !s.ok()) return s;
  if (auto s = check_parts(b.facts, b.parts, "OPEN"); !s.ok()) return s;
  return Body(std::move(b));
}

void put(Bytes& w, const Accept& b) {
  put(w, b.facts_hash);
  put(w, b.slice_bytes);
  put(w, static_cast<uint16_t>(b.parts.size()));
  put(w, b.ways);
  for (size_t i = 0; i < b.parts.size(); ++i) put(w, b.parts[i], i < b.grains.size() ? b.grains[i] : 0);
}

Result<Body> get_accept(Reader& r) {
  Accept b;
  b.facts_hash = r.get<uint64_t>();
  b.slice_bytes = r.get<uint32_t>();
  const size_t parts = r.get<uint16_t>();
  b.ways = r.get<uint16_t>();
  if (!r.items(parts, kPartBytes, layout::kMaxComponents)) return bad("ACCEPT has another length");
  for (size_t i = 0; i < parts; ++i) b.parts.push_back(get_part(r, &b.grains.emplace_back()));
  if (!r.finished()) return bad("ACCEPT has values that none has");
  return Body(std::move(b));
}

void put(Bytes& w, const Published& b) {
  put(w, static_cast<uint16_t>(b.entries.size()));
  put(w, uint16_t{0});
  put(w, uint32_t{0});
  for (const PublishedEntry& e : b.entries) {
    put(w, e.component);
    put(w, e.first_layer);
    put(w, e.layers);
    put(w, uint16_t{0});
    put(w, e.range);
  }
}

Result<Body> get_published(Reader& r) {
  Published b;
  const size_t count = r.get<uint16_t>();
  r.zero<uint16_t>();
  r.zero<uint32_t>();
  if (!r.items(count, 24, kMaxPublishedEntries)) return bad("PUBLISHED has another length");
  for (size_t i = 0; i < count; ++i) {
    PublishedEntry e;
    e.component = r.get<uint16_t>();
    e.first_layer = r.get<uint16_t>();
    e.layers = r.get<uint16_t>();
    r.zero<uint16_t>();
    e.range = get_range(r);
    if (e.range.end > kMaxPosition) r.fail();
    b.entries.push_back(e);
  }
  if (!r.finished()) return bad("PUBLISHED has values that none has");
  return Body(std::move(b));
}

void put(Bytes& w, const Extent& e) {
  put(w, e.component);
  put(w, e.layer);
  put(w, e.first_head);
  put(w, e.heads);
  put(w, e.range);
}

// Bits of a pull's grain; the higher bits are ways.
constexpr uint32_t kGrainBits = 0x00FF'FFFF;

void put(Bytes& w, const Pull& b) {
  put(w, static_cast<uint16_t>(b.entries.size()));
  put(w, uint16_t{0});
  put(w, b.coding.mode);
  put(w, b.coding.flags);
  put(w, b.coding.codecs);
  for (const PullEntry& e : b.entries) {
    put(w, e.tag);
    put(w, e.slice);
    put(w, (e.extent.grain & kGrainBits) | uint32_t{e.ways} << 24);
    put(w, e.extent);
  }
}

Result<Body> get_pull(Reader& r) {
  Pull b;
  const size_t count = r.get<uint16_t>();
  r.zero<uint16_t>();
  b.coding.mode = r.get<uint8_t>();
  b.coding.flags = r.get<uint8_t>();
  b.coding.codecs = r.get<uint16_t>();
  if (!r.items(count, 40, kMaxPullEntries)) return bad("PULL has another length");
  for (size_t i = 0; i < count; ++i) {
    PullEntry e;
    e.tag = r.get<uint64_t>();
    e.slice = r.get<uint32_t>();
    const auto grain = r.get<uint32_t>();
    e.extent.grain = grain & kGrainBits;
    e.ways = static_cast<uint8_t>(grain >> 24);
    e.extent.component = r.get<uint16_t>();
    e.extent.layer = r.get<uint16_t>();
    e.extent.first_head = r.get<uint16_t>();
    e.extent.heads = r.get<uint16_t>();
    e.extent.range = get_range(r);
    b.entries.push_back(e);
  }
  if (!r.finished()) return bad("PULL has values that none has");
  return Body(std::move(b));
}

void put(Bytes&, const Done&) {}

void put(Bytes& w, const Abort& b) {
  const size_t size = std::min(b.text.size(), kMaxTextBytes);
  put(w, static_cast<int32_t>(b.code));
  put(w, static_cast<uint16_t>(size));
  put(w, uint16_t{0});
  put_bytes(w, b.text.data(), size);
}

// Makes the text safe for logs: one line of plain characters.
void make_plain(std::string& text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
}

Result<Body> get_abort(Reader& r) {
  Abort b;
  const auto code = r.get<int32_t>();
  const size_t size = r.get<uint16_t>();
  r.zero<uint16_t>();
  if (!r.items(size, 1, kMaxTextBytes) || code >= 0 || code < -999) return bad("ABORT has values that none has");
  b.code = static_cast<Code>(code);
  b.text.resize(size);
  r.bytes(b.text.data(), size);
  make_plain(b.text);
  return Body(std::move(b));
}

void put(Bytes& w, const Map& b) {
  put(w, static_cast<uint16_t>(b.place.size()));
  put(w, uint16_t{0});
  put(w, uint32_t{0});
  put_bytes(w, b.place.data(), b.place.size());
}

Result<Body> get_map(Reader& r) {
  Map b;
  const size_t size = r.get<uint16_t>();
  r.zero<uint16_t>();
  r.zero<uint32_t>();
  if (!r.items(size, 1, kMaxPlaceBytes)) return bad("MAP has another length");
  b.place.resize(size);
  r.bytes(b.place.data(), size);
  return Body(std::move(b));
}

void put(Bytes& w, const Shared& b) {
  const size_t text = std::min(b.text.size(), kMaxTextBytes);
  put(w, static_cast<int32_t>(b.code));
  put(w, static_cast<uint16_t>(b.memory.size()));
  put(w, static_cast<uint16_t>(text));
  put(w, b.slots);
  put(w, uint32_t{0});
  put(w, b.slot_bytes);
  put_bytes(w, b.memory.data(), b.memory.size());
  put_bytes(w, b.text.data(), text);
}

// A slot must hold a slice at least, and all slots together must not exceed the longest possible file.
Result<Body> get_shared(Reader& r) {
  Shared b;
  const auto code = r.get<int32_t>();
  const size_t memory = r.get<uint16_t>();
  const size_t text = r.get<uint16_t>();
  b.slots = r.get<uint32_t>();
  r.zero<uint32_t>();
  b.slot_bytes = r.get<uint64_t>();
  if (memory > kMaxSharedBytes || text > kMaxTextBytes || !r.items(memory + text, 1, kMaxSharedBytes + kMaxTextBytes)) {
    return bad("SHARED has another length");
  }
  b.code = static_cast<Code>(code);
  b.memory.resize(memory);
  r.bytes(b.memory.data(), memory);
  b.text.resize(text);
  r.bytes(b.text.data(), text);
  make_plain(b.text);
  const bool given = b.slots > 0 && b.slots <= kMaxSharedSlots && b.slot_bytes >= kMinSliceBytes &&
                     b.slot_bytes <= 2 * uint64_t{kMaxSliceBytes} && b.slot_bytes % 64 == 0 && memory > 0 && text == 0;
  const bool refused = b.slots == 0 && b.slot_bytes == 0 && memory == 0;
  if (code == 0 ? !given : !refused || code > 0 || code < -999) return bad("SHARED has values that none has");
  return Body(std::move(b));
}

void put(Bytes& w, const Release& b) {
  put(w, static_cast<uint16_t>(b.tags.size()));
  put(w, uint16_t{0});
  put(w, uint32_t{0});
  for (const uint64_t tag : b.tags) put(w, tag);
}

Result<Body> get_release(Reader& r) {
  Release b;
  const size_t count = r.get<uint16_t>();
  r.zero<uint16_t>();
  r.zero<uint32_t>();
  if (!r.items(count, sizeof(uint64_t), kMaxReleaseTags)) return bad("RELEASE has another length");
  for (size_t i = 0; i < count; ++i) b.tags.push_back(r.get<uint64_t>());
  return Body(std::move(b));
}

Result<Body> get_done(Reader& r) {
  if (!r.finished()) return bad("DONE has a body");
  return Body(Done{});
}

Type type_of(const Body& body, Type given) {
  switch (body.index()) {
    case 0:
      return Type::open;
    case 1:
      return Type::accept;
    case 2:
      return Type::published;
    case 3:
      return Type::pull;
    case 4:
      return Type::done;
    case 6:
      return Type::map;
    case 7:
      return Type::shared;
    case 8:
      return Type::release;
    default:
      return given;
  }
}

Result<Body> body_of(Type type, Reader& r) {
  switch (type) {
    case Type::open:
      return get_open(r);
    case Type::accept:
      return get_accept(r);
    case Type::pull:
      return get_pull(r);
    case Type::published:
      return get_published(r);
    case Type::done:
      return get_done(r);
    case Type::source_abort:
    case Type::sink_abort:
      return get_abort(r);
    case Type::shared:
      return get_shared(r);
    case Type::map:
      return get_map(r);
    case Type::release:
      return get_release(r);
  }
  return bad("unknown type");
}

constexpr uint32_t kSliceMagic = 0x4C53564B;  // "KVSL"
constexpr size_t kSlicePlaceAt = 84;
constexpr size_t kSliceHashAt = 88;

}  // namespace

std::vector<std::byte> encode(Header h, const Body& body) {
  Bytes w;
  w.reserve(256);
  put(w, static_cast<uint8_t>(type_of(body, h.type)));
  put(w, kWireVersion);
  put(w, h.source_rank);
  put(w, h.sink_rank);
  put(w, uint16_t{0});
  put(w, h.session);
  put(w, h.sequence);
  put(w, uint32_t{0});
  std::visit([&](const auto& b) { put(w, b); }, body);
  store_le<uint32_t>(w.data() + 20, static_cast<uint32_t>(w.size() - kHeaderBytes));
  return w;
}

Result<Header> peek(ConstBytes bytes) {
  if (bytes.size() < kHeaderBytes || bytes.size() > kMaxMessageBytes) return bad("its length");
  Reader r(bytes);
  Header h;
  const auto type = r.get<uint8_t>();
  if (type < 1 || type > 11 || type == 10) return bad("unknown type");
  h.type = static_cast<Type>(type);
  if (const auto version = r.get<uint8_t>(); version != kWireVersion) {
    return Status(version > kWireVersion ? Code::newer_version : Code::damaged, "a session message of another version",
                  std::to_string(version) + ", this side speaks " + std::to_string(kWireVersion));
  }
  h.source_rank = r.get<uint16_t>();
  h.sink_rank = r.get<uint16_t>();
  r.zero<uint16_t>();
  h.session = r.get<uint64_t>();
  h.sequence = r.get<uint32_t>();
  const auto body = r.get<uint32_t>();
  if (!r.good() || h.session == 0 || body != bytes.size() - kHeaderBytes) return bad("its header");
  return h;
}

Result<Body> decode(ConstBytes bytes) {
  const auto header = peek(bytes);
  if (!header.ok()) return header.status();
  Reader r(bytes.subspan(kHeaderBytes));
  return body_of(header.value().type, r);
}

void encode_slice_front(const SliceHead& h, std::byte* front) noexcept {
  std::byte* p = front;
  const auto le = [&p](auto v) {
    store_le(p, v);
    p += sizeof v;
  };
  le(kSliceMagic);
  le(uint32_t{kWireVersion});
  le(h.session);
  le(h.tag);
  std::memcpy(p, h.request.bytes.data(), 16);
  p += 16;
  le(h.slice);
  le(h.payload_bytes);
  le(h.leaves);
  le(h.row_bytes);
  le(h.extent.component);
  le(h.extent.layer);
  le(h.extent.first_head);
  le(h.extent.heads);
  le(h.extent.range.begin);
  le(h.extent.range.end);
  le(h.extent.grain);
  le(h.place);
  le(uint64_t{0});
  const size_t used = kSliceHeadBytes + size_t{h.leaves} * 8;
  std::memset(front + used, 0, slice_front_bytes(h.leaves) - used);
  store_le<uint64_t>(front + kSliceHashAt, codec::leaf_hash({front, slice_front_bytes(h.leaves)}));
}

uint32_t slice_place(const std::byte* front) noexcept { return load_le<uint32_t>(front + kSlicePlaceAt); }

bool check_slice_front(const SliceHead& want, std::byte* front) noexcept {
  // The front is small, so the expected one is rebuilt around the received hashes and compared.
  const auto came = load_le<uint64_t>(front + kSliceHashAt);
  std::byte head[kSliceHashAt];
  std::memcpy(head, front, sizeof head);
  encode_slice_front(want, front);
  return std::memcmp(head, front, sizeof head) == 0 && came == load_le<uint64_t>(front + kSliceHashAt);
}

}  // namespace kvbm::cluster::session
