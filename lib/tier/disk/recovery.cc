// Opens a directory: checks its ownership, reads its state, and finds the records in it. Blocks.
#include <algorithm>

#include "tier/disk/disk_core.h"
#include "tier/disk/segment_scan.h"

namespace kvbm::tier::disk {
namespace {

constexpr uint64_t kMinSegmentBytes = 64 * 1024;
constexpr uint32_t kMinSegments = 3;
constexpr size_t kStagingSlots = 16;
constexpr std::string_view kSuperblockName = "superblock";
constexpr size_t kAhead = 8;  // rows with an index chunk that is being prefetched

// Size of the superblock and the lock file.
constexpr uint64_t kFixedBytes = kSuperblockBytes + kPage;

// Locations are 32-bit page numbers.
constexpr uint64_t kMostBytes = (uint64_t{1} << 32) * kPage;

constexpr uint64_t least_bytes(uint64_t segment_bytes) { return kFixedBytes + kMinSegments * segment_bytes; }

// Formats the least capacity in the form in which a capacity is configured, rounded up.
std::string too_small(uint64_t capacity_bytes, uint64_t segment_bytes) {
  const uint64_t least = least_bytes(segment_bytes);
  const bool mebi = least >= uint64_t{1} << 20;
  const uint64_t unit = uint64_t{1} << (mebi ? 20 : 10);
  return std::to_string(capacity_bytes) + " bytes given, at least " + std::to_string((least + unit - 1) / unit) +
         (mebi ? "MiB" : "KiB") + " needed for 3 segments";
}

}  // namespace

uint64_t least_disk_bytes() noexcept { return least_bytes(default_segment_bytes(0)); }

uint64_t default_segment_bytes(uint64_t capacity_bytes) noexcept {
  constexpr uint64_t kLeast = uint64_t{16} << 20;
  constexpr uint64_t kMost = uint64_t{256} << 20;
  constexpr uint64_t kFiles = 512;
  return round_up(std::max(std::clamp(capacity_bytes / 64, kLeast, kMost), capacity_bytes / kFiles), kPage);
}

uint64_t most_disk_bytes() noexcept { return kMostBytes; }

Status DiskCore::open(FileSystem& fs, Random& random) {
  if (options_.capacity_bytes > kMostBytes) {
    return {Code::bad_config, "the disk tier's capacity is too large",
            std::to_string(options_.capacity_bytes) + " bytes given, one holds " + std::to_string(kMostBytes >> 40) +
                "TiB at most; make several tiers of it"};
  }
  auto directory = fs.open_directory(options_.path, true);
  if (!directory.ok()) return directory.status();
  directory_ = std::move(directory).value();
  // Checked before anything is written: a directory of another program stays as it is.
  auto names = directory_->list();
  if (!names.ok()) return names.status();
  if (Status s = check_directory(names.value()); !s.ok()) return s;
  auto lock = directory_->lock();
  if (!lock.ok()) return lock.status();
  directory_lock_ = std::move(lock).value();
  // Listed once more: the owner before may have made segments since, written to them, and died.
  names = directory_->list();
  if (!names.ok()) return names.status();
  auto staging = fs.staging(kStagingSlots * kSlotBytes);
  if (!staging.ok()) return staging.status();
  staging_ = std::move(staging).value();
  if (Status s = load_superblock(names.value(), random); !s.ok()) return s;
  if (Status s = load_segments(names.value()); !s.ok()) return s;
  {
    MutexLock control(control_);
    MutexLock state(mutex_);
    for (size_t i = kStagingSlots; i-- > 0;) staging_free_.push_back(staging_.get() + i * kSlotBytes);
    prune_tombstones();
    erased_.clear();
  }
  check_free_space();
  return {};
}

Status DiskCore::check_directory(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!is_tier_file(name))
      return {Code::exists, "the tier directory holds a file that is not kvbm's; nothing was changed",
              options_.path + "/" + name + ": move it away, or choose an empty directory"};
  }
  return {};
}

Status DiskCore::load_superblock(const std::vector<std::string>& names, Random& random) {
  MutexLock control(control_);
  const bool there = std::find(names.begin(), names.end(), kSuperblockName) != names.end();
  const bool segments =
      std::any_of(names.begin(), names.end(), [](const std::string& n) { return segment_number(n) != UINT32_MAX; });
  if (!there && segments)
    return {Code::damaged, "the tier directory has segments but no superblock; remove it to start empty",
            options_.path};
  const uint64_t wanted =
      options_.segment_bytes != 0 ? options_.segment_bytes : default_segment_bytes(options_.capacity_bytes);
  if (wanted < kMinSegmentBytes || wanted % kPage != 0)
    return {Code::bad_config, "disk segments must be a multiple of 4 KiB and at least 64 KiB", std::to_string(wanted)};
  const auto enough = [&](uint64_t bytes) { return options_.capacity_bytes >= least_bytes(bytes); };
  if (!there && !enough(wanted))
    return {Code::bad_config, "the disk tier's capacity is too small", too_small(options_.capacity_bytes, wanted)};
  auto file = directory_->open(kSuperblockName, there ? OpenMode::read_write : OpenMode::create, false);
  if (!file.ok()) return file.status();
  superblock_file_ = std::move(file).value();
  Result<Superblock> known = Status(Code::miss, "new directory");
  if (there) {
    known = read_superblock(*superblock_file_);
    // The file exists, but the owner died before the first write: treated as new.
    if (known.status().code() == Code::damaged && !segments) known = Status(Code::miss, "new directory");
    if (!known.ok() && known.status().code() != Code::miss)
      return {known.status().code(), known.status().what(),
              options_.path + (known.status().code() == Code::damaged ? ": remove it to start empty" : "")};
  }
  if (known.ok()) {
    superblock_ = std::move(known).value();
    // Nothing has this size yet: it may stem from a capacity that the file system had no space for.
    if (!segments) superblock_.segment_bytes = wanted;
  } else {
    superblock_.directory_id = random.next();
    superblock_.segment_bytes = wanted;
    if (Status s = superblock_file_->allocate(kSuperblockBytes); !s.ok()) return s;
  }
  if (!enough(superblock_.segment_bytes))
    return {Code::bad_config, "the disk tier's capacity is too small for this directory",
            too_small(options_.capacity_bytes, superblock_.segment_bytes)};
  ++superblock_.epoch;
  superblock_.capacity_bytes = options_.capacity_bytes;
  if (Status s = write_superblock(*superblock_file_, superblock_); !s.ok()) return s;
  if (Status s = directory_->sync(); !s.ok()) return s;
  segment_bytes_ = superblock_.segment_bytes;
  segment_pages_ = pages(segment_bytes_);
  directory_id_ = superblock_.directory_id;
  epoch_ = superblock_.epoch;
  max_segments_ = static_cast<uint32_t>((options_.capacity_bytes - kFixedBytes) / segment_bytes_);
  MutexLock state(mutex_);
  epochs_ = superblock_.epochs;
  floors_ = superblock_.floors;
  for (const Tombstone& t : superblock_.tombstones) erased_[t.family] = std::max(erased_[t.family], t.sequence);
  return {};
}

// A file of a segment's size, without a header.
Result<std::unique_ptr<Segment>> DiskCore::make_file(uint32_t number) {
  auto segment = std::make_unique<Segment>();
  auto file = directory_->open(segment_name(number), OpenMode::create, options_.direct);
  if (!file.ok()) return file.status();
  segment->file = std::move(file).value();
  segment->life = SegmentLife{directory_id_, number, 0, epoch_, 0, segment_bytes_};
  if (Status s = segment->file->allocate(segment_bytes_); !s.ok()) {
    segment->file.reset();
    // Removes the file that was only partly allocated. Otherwise the next open would find half a segment, and the file
    // system would not get the space back now.
    (void)directory_->remove(segment_name(number)).ok();
    return s;
  }
  return segment;
}

// Makes as many files as there is space for, n at most; their names are durable. `why_not`: why there are fewer.
std::vector<std::unique_ptr<Segment>> DiskCore::make_files(uint32_t first, uint32_t n, Status& why_not) {
  std::vector<std::unique_ptr<Segment>> out;
  for (uint32_t i = 0; i < n; ++i) {
    auto made = make_file(first + i);
    why_not = made.status();
    if (!made.ok()) break;
    out.push_back(std::move(made).value());
  }
  if (out.empty()) return out;
  if (Status s = directory_->sync(); !s.ok()) {
    why_not = std::move(s);
  } else {
    return out;
  }
  for (auto& segment : out) {
    const uint32_t number = segment->life.segment;
    segment.reset();
    (void)directory_->remove(segment_name(number)).ok();
  }
  return {};
}

Result<std::unique_ptr<Segment>> DiskCore::make_segment(uint32_t number, uint64_t sequence) {
  auto made = make_file(number);
  if (!made.ok()) return made;
  std::unique_ptr<Segment> segment = std::move(made).value();
  const SegmentLife life{directory_id_, number, static_cast<uint32_t>(sequence), epoch_, sequence, segment_bytes_};
  const AlignedBuffer page(kPage);
  if (page.data() == nullptr) return Status(Code::no_memory, "no memory for a segment header");
  encode_segment_header(life, page.span());
  Status s = segment->file->write_now(0, page.span());
  if (s.ok()) s = segment->file->sync_now();
  if (s.ok()) s = directory_->sync();
  if (!s.ok()) {
    segment->file.reset();
    (void)directory_->remove(segment_name(number)).ok();
    return s;
  }
  segment->begin_life(life);
  return segment;
}

// `valid`: the header names this directory and segment.
Status DiskCore::open_segment_file(uint32_t number, std::unique_ptr<Segment>& out, bool& valid) {
  auto file = directory_->open(segment_name(number), OpenMode::read_write, options_.direct);
  if (!file.ok()) return file.status();
  out = std::make_unique<Segment>();
  out->file = std::move(file).value();
  auto size = out->file->size();
  if (!size.ok()) return size.status();
  valid = false;
  out->life = SegmentLife{directory_id_, number, 0, 0, 0, segment_bytes_};
  if (size.value() != segment_bytes_) {
    if (size.value() > segment_bytes_) {
      if (Status s = out->file->truncate(segment_bytes_); !s.ok()) return s;
    }
    return out->file->allocate(segment_bytes_);
  }
  const AlignedBuffer page(kPage);
  if (page.data() == nullptr) return {Code::no_memory, "no memory for a segment header"};
  auto got = out->file->read_now(0, page.span());
  if (!got.ok()) return {};  // unreadable: renewed if it can be written, else refused there
  auto life = decode_segment_header(page.span());
  if (life.status().code() == Code::newer_version) return life.status();
  if (!life.ok() || life.value().directory_id != directory_id_ || life.value().segment != number ||
      life.value().segment_bytes != segment_bytes_)
    return {};
  out->life = life.value();
  valid = true;
  return {};
}

Status DiskCore::load_segments(const std::vector<std::string>& names) {
  std::vector<uint32_t> used;  // segments that an earlier owner has written to
  std::vector<uint32_t> blank;
  uint32_t count = 0;
  for (const std::string& name : names) {
    const uint32_t number = segment_number(name);
    if (number == UINT32_MAX) continue;
    if (number >= max_segments_) {
      if (Status s = directory_->remove(name); !s.ok()) return s;  // the capacity was lowered
    } else {
      count = std::max(count, number + 1);
    }
  }
  {
    MutexLock state(mutex_);
    segments_.reserve(max_segments_);
  }
  for (uint32_t i = 0; i < std::max(count, kMinSegments); ++i) {
    std::unique_ptr<Segment> segment;
    bool valid = false;
    if (std::find(names.begin(), names.end(), segment_name(i)) != names.end()) {
      if (Status s = open_segment_file(i, segment, valid); !s.ok()) return s;
    } else {
      auto made = make_segment(i, 0);
      if (!made.ok()) return made.status();
      segment = std::move(made).value();
    }
    MutexLock state(mutex_);
    if (valid && segment->life.sequence != 0)
      used.push_back(i);
    else
      blank.push_back(i);
    next_life_ = std::max(next_life_, segment->life.sequence + 1);
    segments_.push_back(std::move(segment));
  }
  {
    MutexLock state(mutex_);
    for (const auto& [family, sequence] : erased_) next_life_ = std::max(next_life_, sequence + 1);
  }
  // Of two copies the later one counts.
  std::sort(used.begin(), used.end(),
            [this](uint32_t a, uint32_t b) { return segment(a).life.sequence < segment(b).life.sequence; });
  const std::map<uint32_t, FooterTail> tails = reserve_index(used);
  AlignedBuffer buffer;
  for (const uint32_t number : used) {
    const auto tail = tails.find(number);
    if (Status s = recover_segment(number, tail != tails.end() ? &tail->second : nullptr, buffer); !s.ok()) return s;
    MutexLock state(mutex_);
    if (segments_[number]->state == SegmentState::free) blank.push_back(number);
  }
  for (const uint32_t number : blank) {
    if (Status s = renew_segment(number); !s.ok()) return s;
  }
  return {};
}

// Returns the tails of footers, by segment. A footer that cannot be read here costs the index's growth, or a scan.
std::map<uint32_t, FooterTail> DiskCore::reserve_index(const std::vector<uint32_t>& used) {
  std::map<uint32_t, FooterTail> tails;
  uint64_t rows = 0;
  for (const uint32_t number : used) {
    Segment& s = segment(number);
    auto tail = read_footer_tail(*s.file, s.life);
    if (!tail.ok()) continue;
    rows += tail.value().rows;
    tails.emplace(number, tail.value());
  }
  MutexLock state(mutex_);
  index_.reserve(rows);
  return tails;
}

Status DiskCore::recover_segment(uint32_t number, const FooterTail* tail, AlignedBuffer& buffer) {
  Segment& s = segment(number);
  Result<std::vector<Row>> footer = Status(Code::miss, "no footer");
  if (tail != nullptr) footer = read_footer(*s.file, s.life, *tail, buffer);
  std::vector<Row> rows;
  bool durable = true;
  if (footer.ok()) {
    rows = std::move(footer).value();
  } else {
    auto scanned = scan_records(*s.file, s.life);
    if (scanned.ok()) rows = std::move(scanned.value().rows);
    // Another owner's life is never appended to: its last writes may still be in flight.
    durable = rows.empty() || s.file->sync_now().ok();
    if (!rows.empty() && durable) {
      const std::vector<std::byte> bytes = encode_footer(s.life, rows);
      const AlignedBuffer written(bytes.size());
      const uint64_t start = segment_bytes_ - bytes.size();
      const Row& last = rows.back();
      if (written.data() != nullptr && last.place().end() <= start) {
        std::memcpy(written.data(), bytes.data(), bytes.size());
        // A failure costs a scan at the next open, nothing else.
        (void)(s.file->write_now(start, written.span()).ok() && s.file->sync_now().ok());
      }
    }
  }
  MutexLock state(mutex_);
  adopt(number, rows);
  if (!durable) {
    // No later sync covers these records: the next one reports them as lost.
    segments_[number]->written = rows.size();
    segments_[number]->sync_failed = true;
  }
  return {};
}

void DiskCore::adopt(uint32_t number, const std::vector<Row>& rows) {
  Segment& s = *segments_[number];
  s.state = rows.empty() ? SegmentState::free : SegmentState::closed;
  s.next_page = segment_pages_;
  const uint32_t now = seconds();
  const Row* like = nullptr;  // a row of the family that was interned last: most have the one before
  Result<FamilyId> family = Status(Code::miss, "no row yet");
  bool dead = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (like == nullptr || like->family != row.family) {
      if (s.footer_size.list(row.family)) ++listed_[row.family];
      dead = is_erased(row.family, s.life.sequence);
      if (!dead) family = families_.intern(row.family);
    }
    like = &row;
    if (dead || !family.ok()) continue;
    if (i + kAhead < rows.size()) index_.prefetch({rows[i + kAhead].key, family.value()});
    const Identity id{row.key, family.value()};
    bool fresh = false;
    uint32_t entry = index_.insert(id, fresh);
    if (entry != DiskIndex::kNone && !fresh) {
      drop_entry(entry);
      entry = index_.insert(id);
    }
    if (entry == DiskIndex::kNone) continue;
    IndexEntry& e = index_.at(entry);
    e.location = number * segment_pages_ + row.page;
    e.set_place(row.place());
    e.uses = row.uses;
    e.priority = row.priority & 3U;
    e.last_use = now;
    if (row.has_parent) (void)index_.link(entry, Identity{row.parent, family.value()});
    s.live_bytes += e.bytes();
    ++s.live_records;
    stats_.payload_bytes += row.payload_bytes;
  }
}

Status DiskCore::renew_segment(uint32_t number) {
  MutexLock state(mutex_);
  Segment& s = *segments_[number];
  SegmentLife life{directory_id_, number, static_cast<uint32_t>(next_life_), epoch_, next_life_, segment_bytes_};
  ++next_life_;
  const AlignedBuffer page(kPage);
  if (page.data() == nullptr) return {Code::no_memory, "no memory for a segment header"};
  encode_segment_header(life, page.span());
  // No other thread can hold the mutex yet: open() has not returned.
  if (Status st = s.file->write_now(0, page.span()); !st.ok()) return st;
  if (Status st = s.file->sync_now(); !st.ok()) return st;
  s.begin_life(life);
  free_.push_back(number);
  return {};
}

// Returns true if a tombstone covers the records that the family wrote in `life`.
bool DiskCore::is_erased(const Family& family, uint64_t life) const {
  const auto one = erased_.find(family);
  const auto all = erased_.find(kEveryFamily);
  return (one != erased_.end() && life <= one->second) || (all != erased_.end() && life <= all->second);
}

// A tombstone is needed while a segment of its time still holds records of its family.
void DiskCore::prune_tombstones() {
  uint64_t oldest = UINT64_MAX;
  for (const auto& s : segments_) {
    if (s->state != SegmentState::free) oldest = std::min(oldest, s->life.sequence);
  }
  std::erase_if(superblock_.tombstones, [&](const Tombstone& t) KVBM_REQUIRES(mutex_) {
    return t.sequence < oldest || (t.family != kEveryFamily && !listed_.contains(t.family));
  });
}

}  // namespace kvbm::tier::disk
