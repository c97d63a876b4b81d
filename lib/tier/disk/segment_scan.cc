#include "tier/disk/segment_scan.h"

#include <algorithm>

#include "codec/hash/leaf_hash.h"

namespace kvbm::tier::disk {
namespace {

// A window over a file that is read forwards.
class Window {
 public:
  Window(File& file, uint64_t end) : file_(file), end_(end), buffer_(std::min<uint64_t>(end, uint64_t{4} << 20)) {}

  // The bytes [offset, offset + bytes), or an empty span if the file does not have them.
  Result<ConstBytes> at(uint64_t offset, uint64_t bytes) {
    if (offset + bytes > end_) return ConstBytes{};
    if (offset < start_ || offset + bytes > start_ + have_) {
      const uint64_t from = offset & ~(kPage - 1);
      const uint64_t needed = round_up(offset + bytes, kPage) - from;
      if (needed > buffer_.size()) buffer_ = AlignedBuffer(needed);
      if (buffer_.data() == nullptr) return Status(Code::no_memory, "no memory to scan a segment");
      const uint64_t want = std::min(buffer_.size(), end_ - from);
      have_ = 0;
      auto got = file_.read_now(from, buffer_.span().first(want));
      if (!got.ok()) return got.status();
      start_ = from;
      have_ = got.value();
      if (offset + bytes > start_ + have_) return ConstBytes{};
    }
    return ConstBytes(buffer_.data() + (offset - start_), bytes);
  }

 private:
  File& file_;
  uint64_t end_;
  AlignedBuffer buffer_;
  uint64_t start_ = 0, have_ = 0;
};

bool leaves_verify(const codec::HeadView& head, ConstBytes payload) {
  for (uint32_t i = 0; i < head.header().leaf_count; ++i) {
    const codec::Leaf leaf = head.leaf(i);
    if (uint64_t{leaf.offset} + leaf.stored_bytes > payload.size()) return false;
    if (codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes)) != leaf.hash) return false;
  }
  return true;
}

bool envelope_fits(const Envelope& e, const SegmentLife& life, uint64_t head_at) {
  return e.directory_id == life.directory_id && e.segment == life.segment && e.generation == life.generation &&
         e.epoch == life.epoch && e.place().fits(life.segment_bytes) && e.place().head_at() == head_at;
}

// Adds the record at `offset`, if there is one of this life: with a head on its own pages, or one that `shares` a page.
// Returns its end; 0: there is no good head.
Result<uint64_t> add_record(Window& window, const SegmentLife& life, uint64_t offset, bool shares, ScanResult& out) {
  constexpr uint64_t kNone = 0;
  auto first = window.at(offset, kHeadUnit);
  if (!first.ok()) return first.status();
  if (first.value().empty()) return kNone;
  const auto peek = codec::peek_header(first.value().first(codec::kHeaderBytes));
  if (!peek.ok()) return kNone;
  const codec::Header& header = peek.value();
  const auto head_bytes = static_cast<uint32_t>(codec::head_bytes(header));
  if (header.stored_bytes > life.segment_bytes || (shares && !may_share(head_bytes, header.stored_bytes))) return kNone;
  auto area = window.at(offset, shares ? kHeadUnit : head_area(head_bytes));
  if (!area.ok()) return area.status();
  if (area.value().empty()) return kNone;
  auto envelope = decode_head_area(area.value(), head_bytes);
  if (!envelope.ok() || !envelope_fits(envelope.value(), life, offset) ||
      envelope.value().payload_bytes != header.stored_bytes)
    return kNone;
  const std::vector<std::byte> head_copy(area.value().begin(), area.value().begin() + head_bytes);
  auto head = codec::HeadView::parse(head_copy);
  if (!head.ok()) return kNone;
  const RecordPlace place = envelope.value().place();
  auto payload = window.at(place.payload_at(), round_up(place.payload_bytes, kPage));
  if (!payload.ok()) return payload.status();
  if (payload.value().size() < place.payload_bytes) return kNone;
  if (!leaves_verify(head.value(), payload.value().first(place.payload_bytes))) {
    ++out.damaged;
    return place.end();
  }
  Row& row = out.rows.emplace_back();
  row.key = header.key;
  row.page = place.page;
  row.back = place.back;
  row.head_bytes = head_bytes;
  row.payload_bytes = header.stored_bytes;
  row.family = Family{header.ns, header.geometry, header.component, header.shard};
  row.parent = header.parent;
  row.has_parent = header.parent != Key{};
  row.uses = static_cast<uint8_t>(std::min<uint16_t>(envelope.value().uses, UINT8_MAX));
  row.priority = envelope.value().priority;
  return place.end();
}

}  // namespace

Result<FooterTail> read_footer_tail(File& file, const SegmentLife& life) {
  const AlignedBuffer page(kPage);
  if (page.data() == nullptr) return Status(Code::no_memory, "no memory to read a segment's footer");
  auto got = file.read_now(life.segment_bytes - kPage, page.span());
  if (!got.ok()) return got.status();
  if (got.value() != kPage) return Status(Code::miss, "the segment file is cut short");
  return decode_footer_tail(life, ConstBytes(page.span()).last(kFooterTailBytes));
}

Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life, const FooterTail& tail,
                                     AlignedBuffer& buffer) {
  const uint64_t bytes = life.segment_bytes - tail.start_page * kPage;
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
  if (buffer.data() == nullptr) return Status(Code::no_memory, "no memory to read a segment's footer");
  auto got = file.read_now(tail.start_page * kPage, buffer.span().first(bytes));
  if (!got.ok()) return got.status();
  if (got.value() != bytes) return Status(Code::miss, "the segment file is cut short");
  return decode_footer(life, ConstBytes(buffer.span()).first(bytes));
}

Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life) {
  const auto tail = read_footer_tail(file, life);
  if (!tail.ok()) return tail.status();
  AlignedBuffer buffer;
  return read_footer(file, life, tail.value(), buffer);
}

Result<ScanResult> scan_records(File& file, const SegmentLife& life) {
  ScanResult result;
  Window window(file, life.segment_bytes);
  uint64_t last_good = kPage;
  for (uint64_t offset = kPage; offset < life.segment_bytes && offset <= last_good + kScanAhead;) {
    const uint64_t before = last_good;
    const auto whole = add_record(window, life, offset, false, result);
    if (!whole.ok()) return whole.status();
    last_good = std::max(last_good, whole.value());
    if (whole.value() == 0) {
      // Reads the heads that share this page and their payloads at once: one after the other would read the window
      // again.
      auto group = window.at(offset, std::min(kPage + kHeadUnits * kSharedPayload, life.segment_bytes - offset));
      if (!group.ok()) return group.status();
    }
    for (uint32_t unit = 0; unit < kHeadUnits && whole.value() == 0; ++unit) {
      const auto part = add_record(window, life, offset + unit * kHeadUnit, true, result);
      if (!part.ok()) return part.status();
      last_good = std::max(last_good, part.value());
    }
    offset = last_good != before ? last_good : offset + kPage;
  }
  return result;
}

Result<bool> verify_record(File& file, const Row& row) {
  const RecordPlace place = row.place();
  const uint64_t head_bytes = place.shares() ? kPage : place.area_bytes();
  const AlignedBuffer buffer(head_bytes + round_up(place.payload_bytes, kPage));
  if (buffer.data() == nullptr) return Status(Code::no_memory, "no memory to verify a record");
  const MutableBytes area = buffer.span().first(head_bytes);
  const MutableBytes payload = buffer.span().subspan(head_bytes);
  auto got = file.read_now(place.head_page_at(), area);
  if (!got.ok()) return got.status();
  if (got.value() != area.size()) return false;
  got = file.read_now(place.payload_at(), payload);
  if (!got.ok()) return got.status();
  if (got.value() != payload.size()) return false;
  auto head = codec::HeadView::parse(ConstBytes(area).subspan(place.head_at() - place.head_page_at(), row.head_bytes));
  if (!head.ok() || head.value().header().key != row.key || head.value().header().stored_bytes != row.payload_bytes)
    return false;
  return leaves_verify(head.value(), ConstBytes(payload).first(row.payload_bytes));
}

}  // namespace kvbm::tier::disk
