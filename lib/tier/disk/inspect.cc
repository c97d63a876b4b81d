#include "tier/disk/inspect.h"

#include <algorithm>

#include "tier/disk/aligned_buffer.h"
#include "tier/disk/segment.h"
#include "tier/disk/segment_scan.h"

namespace kvbm::tier::disk {
namespace {

using RecordSeen = UniqueFunction<void(const SegmentReport&, const Row&, bool)>;

Result<SegmentLife> read_life(File& file) {
  const AlignedBuffer page(kPage);
  if (page.data() == nullptr) return Status(Code::no_memory, "no memory to read a segment header");
  auto got = file.read_now(0, page.span());
  if (!got.ok()) return got.status();
  return decode_segment_header(page.span().first(got.value()));
}

void count(const Row& row, bool damaged, SegmentReport& segment, InspectReport& report, RecordSeen& seen) {
  ++segment.records;
  segment.record_bytes += row.place().bytes();
  segment.uses += row.uses;
  segment.damaged += damaged ? 1 : 0;
  report.payload_bytes += row.payload_bytes;
  if (seen) seen(segment, row, damaged);
}

// Coded leaves are shorter than plain ones; sealing alone makes every leaf longer by the same amount.
bool is_coded(const codec::Header& head) {
  constexpr uint64_t kSealing = codec::kSealTagBytes + codec::kSealedHashBytes;
  const uint64_t sealing = (head.flags & codec::kSealed) != 0 ? head.leaf_count * kSealing : 0;
  return head.stored_bytes != head.raw_bytes + sealing;
}

void count_coding(const codec::Header& head, CodingReport& out) {
  const bool coded = is_coded(head);
  const bool sealed = (head.flags & codec::kSealed) != 0;
  ++out.heads;
  out.coded += coded ? 1 : 0;
  out.lossy += (head.flags & codec::kLossy) != 0 ? 1 : 0;
  if (sealed) {
    ++out.sealed;
    ++out.keys[head.key_id];
  }
  if (!coded && !sealed) return;
  out.plain_bytes += head.raw_bytes;
  out.stored_bytes += head.stored_bytes;
}

// Skips heads that cannot be read, do not verify, or are being written.
void read_heads(File& file, const std::vector<Row>& rows, uint64_t most, CodingReport& out) {
  const AlignedBuffer page(kPage);
  if (page.data() == nullptr) return;
  const uint64_t n = std::min<uint64_t>(most, rows.size());
  for (uint64_t i = 0; i < n; ++i) {
    const Row& row = rows[static_cast<size_t>(i * rows.size() / n)];
    const RecordPlace place = row.place();
    const uint64_t at = place.head_at() - place.head_page_at();
    auto got = file.read_now(place.head_page_at(), page.span());
    if (!got.ok() || got.value() < at + codec::kHeaderBytes) continue;
    const auto head = codec::peek_header(page.span().subspan(at, codec::kHeaderBytes));
    if (head.ok() && head.value().key == row.key) count_coding(head.value(), out);
  }
}

SegmentReport walk(File& file, uint32_t number, bool verify, uint64_t heads, InspectReport& report, RecordSeen& seen) {
  SegmentReport out;
  out.number = number + 1;
  auto life = read_life(file);
  if (!life.ok() || life.value().directory_id != report.superblock.directory_id || life.value().segment != number ||
      life.value().segment_bytes != report.superblock.segment_bytes) {
    out.state = "unreadable";
    return out;
  }
  out.generation = life.value().generation;
  out.epoch = life.value().epoch;
  out.sequence = life.value().sequence;
  auto footer = read_footer(file, life.value());
  if (footer.ok()) {
    out.state = "closed";
    read_heads(file, footer.value(), heads, report.coding);
    for (const Row& row : footer.value()) {
      bool damaged = false;
      if (verify) {
        auto good = verify_record(file, row);
        damaged = !good.ok() || !good.value();
      }
      count(row, damaged, out, report, seen);
    }
    return out;
  }
  auto scanned = scan_records(file, life.value());
  if (!scanned.ok()) {
    out.state = "unreadable";
    return out;
  }
  for (const Row& row : scanned.value().rows) count(row, false, out, report, seen);
  read_heads(file, scanned.value().rows, heads, report.coding);
  out.records += scanned.value().damaged;
  out.damaged = scanned.value().damaged;
  out.state = out.records == 0 ? "free" : "open";
  return out;
}

}  // namespace

Result<InspectReport> inspect(FileSystem& fs, const std::string& path, bool verify, uint64_t heads,
                              UniqueFunction<void(uint64_t, uint64_t)> progress, RecordSeen record) {
  auto directory = fs.visit_directory(path);
  if (!directory.ok()) return directory.status();
  auto names = directory.value()->list();
  if (!names.ok()) return names.status();
  InspectReport report;
  std::vector<uint32_t> numbers;
  bool known = false;
  for (const std::string& name : names.value()) {
    if (const uint32_t number = segment_number(name); number != UINT32_MAX)
      numbers.push_back(number);
    else if (name == "superblock")
      known = true;
    else if (!is_tier_file(name))
      report.foreign.push_back(name);
  }
  if (!known) return Status(Code::miss, "not a tier directory: it has no superblock", path);
  // Only a test: the lock is released at once, before anything is read.
  report.in_use = directory.value()->lock().status().code() == Code::in_use;
  auto file = directory.value()->open("superblock", OpenMode::read_only, false);
  if (!file.ok()) return file.status();
  auto superblock = read_superblock(*file.value());
  if (!superblock.ok()) return superblock.status();
  report.superblock = std::move(superblock).value();
  report.file_bytes = kSuperblockBytes;
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto segment = directory.value()->open(segment_name(numbers[i]), OpenMode::read_only, false);
    if (!segment.ok()) return segment.status();
    auto size = segment.value()->size();
    if (size.ok()) report.file_bytes += size.value();
    report.segments.push_back(walk(*segment.value(), numbers[i], verify, heads, report, record));
    report.records += report.segments.back().records;
    report.damaged += report.segments.back().damaged;
    if (progress) progress(i + 1, numbers.size());
  }
  return report;
}

}  // namespace kvbm::tier::disk
