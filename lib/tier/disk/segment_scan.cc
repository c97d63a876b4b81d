#include "tier/disk/segment_scan.h"

#include <algorithm>

#include "codec/leaf_hash.h"

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
      if (bytes > buffer_.size()) buffer_ = AlignedBuffer(bytes);
      if (buffer_.data() == nullptr) return Status(Code::no_memory, "no memory to scan a segment");
      const uint64_t want = std::min(buffer_.size(), end_ - offset);
      have_ = 0;
      auto got = file_.read_now(offset, buffer_.span().first(want));
      if (!got.ok()) return got.status();
      start_ = offset;
      have_ = got.value();
      if (bytes > have_) return ConstBytes{};
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

bool envelope_fits(const Envelope& e, const SegmentLife& life, uint64_t offset) {
  return e.directory_id == life.directory_id && e.segment == life.segment && e.generation == life.generation &&
         e.epoch == life.epoch && e.page * kPage == offset;
}

struct Candidate {
  Row row;
  bool head_good = false;
  bool good = false;
  uint64_t bytes = 0;
};

// What lies at `offset`, if it is a record of this life.
Result<Candidate> record_at(Window& window, const SegmentLife& life, uint64_t offset) {
  Candidate out;
  auto first = window.at(offset, kPage);
  if (!first.ok()) return first.status();
  if (first.value().empty()) return out;
  auto peek = codec::peek_header(first.value().first(codec::kHeaderBytes));
  if (!peek.ok()) return out;
  const uint32_t head_bytes = peek.value().head_bytes;
  const codec::Header header = peek.value().header;
  if (header.stored_bytes > life.segment_bytes) return out;
  auto area = window.at(offset, head_area(head_bytes));
  if (!area.ok()) return area.status();
  if (area.value().empty()) return out;
  auto envelope = decode_head_area(area.value(), head_bytes);
  if (!envelope.ok() || !envelope_fits(envelope.value(), life, offset) ||
      envelope.value().payload_bytes != header.stored_bytes)
    return out;
  auto whole = window.at(offset, record_bytes(head_bytes, header.stored_bytes));
  if (!whole.ok()) return whole.status();
  if (whole.value().empty()) return out;
  auto head = codec::HeadView::parse(whole.value().first(head_bytes));
  if (!head.ok()) return out;
  out.head_good = true;
  out.bytes = whole.value().size();
  out.good = leaves_verify(head.value(), whole.value().subspan(head_area(head_bytes), header.stored_bytes));
  out.row.key = header.key;
  out.row.page = pages(offset);
  out.row.head_bytes = head_bytes;
  out.row.payload_bytes = header.stored_bytes;
  out.row.family = Family{header.ns, header.geometry, header.component, header.shard};
  out.row.parent = header.parent;
  out.row.has_parent = header.parent != Key{};
  out.row.uses = static_cast<uint8_t>(std::min<uint16_t>(envelope.value().uses, UINT8_MAX));
  out.row.priority = envelope.value().priority;
  return out;
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

Result<std::vector<Row>> read_footer(File& file, const SegmentLife& life, const FooterTail& tail, AlignedBuffer& buffer) {
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
    auto record = record_at(window, life, offset);
    if (!record.ok()) return record.status();
    const Candidate& c = record.value();
    if (!c.head_good) {
      offset += kPage;
      continue;
    }
    if (c.good)
      result.rows.push_back(c.row);
    else
      ++result.damaged;
    offset += c.bytes;
    last_good = offset;
  }
  return result;
}

Result<bool> verify_record(File& file, const Row& row) {
  const AlignedBuffer buffer(record_bytes(row.head_bytes, row.payload_bytes));
  if (buffer.data() == nullptr) return Status(Code::no_memory, "no memory to verify a record");
  auto got = file.read_now(row.page * kPage, buffer.span());
  if (!got.ok()) return got.status();
  if (got.value() != buffer.size()) return false;
  const ConstBytes all = buffer.span();
  auto head = codec::HeadView::parse(all.first(row.head_bytes));
  if (!head.ok() || head.value().header().key != row.key || head.value().header().stored_bytes != row.payload_bytes)
    return false;
  return leaves_verify(head.value(), all.subspan(head_area(row.head_bytes), row.payload_bytes));
}

}  // namespace kvbm::tier::disk
