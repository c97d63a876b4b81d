#include "tier/host/host_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/bytes.h"

namespace kvbm::tier {

namespace {

constexpr uint64_t kMagic = 0x3145'4D4F'484D'4256ULL;
// Replaces the magic while the file is given its shape: it is still recognised as a host tier's.
constexpr uint64_t kNoShape = ~kMagic;
constexpr uint64_t kVersion = 2;
constexpr size_t kMagicAt = 0, kVersionAt = 8, kBlockBytesAt = 16, kSlotsAt = 24, kFloorAt = 32, kForeignAt = 40;
constexpr size_t kIdBytes = 16, kEpochAt = 16;  // of a row

// Stores in program order, and never torn.
void put(std::byte* at, uint64_t value) noexcept {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at)).store(value, std::memory_order_seq_cst);
}
uint64_t get(const std::byte* at) noexcept { return load_le<uint64_t>(at); }

}  // namespace

static_assert(sizeof(NamespaceId) == kIdBytes && kEpochAt + 8 == HostFile::kRowBytes);
static_assert(kForeignAt + HostFile::kRows / 8 <= HostFile::kHeaderBytes);

bool HostFile::is_one(std::span<const std::byte> page) noexcept {
  const uint64_t magic = get(page.data() + kMagicAt);
  if (magic == kMagic || magic == kNoShape) return true;
  return std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool HostFile::begin() noexcept {
  const bool same = get(page_ + kMagicAt) == kMagic && get(page_ + kVersionAt) == kVersion &&
                    get(page_ + kBlockBytesAt) == block_bytes_ && get(page_ + kSlotsAt) == slots_;
  floor_ = same ? get(page_ + kFloorAt) : 0;
  return same;
}

void HostFile::forget() noexcept { put(page_ + kMagicAt, kNoShape); }

void HostFile::found() noexcept {
  std::memset(page_ + 8, 0, kBytes - 8);
  put(page_ + kVersionAt, kVersion);
  put(page_ + kBlockBytesAt, block_bytes_);
  put(page_ + kSlotsAt, slots_);
  put(page_ + kMagicAt, kMagic);
}

size_t HostFile::find(const NamespaceId& base_id) const noexcept {
  for (size_t i = 0; i < kRows; ++i) {
    if (get(row(i) + kEpochAt) != 0 && std::memcmp(row(i), base_id.bytes.data(), kIdBytes) == 0) return i;
  }
  return kRows;
}

uint64_t HostFile::epoch(const NamespaceId& base_id) const noexcept {
  const size_t i = find(base_id);
  return i == kRows ? floor_ : get(row(i) + kEpochAt);
}

std::vector<EpochRow> HostFile::epochs() const {
  std::vector<EpochRow> out;
  for (size_t i = 0; i < kRows; ++i) {
    const uint64_t epoch = get(row(i) + kEpochAt);
    if (epoch == 0) continue;
    out.push_back({{}, epoch, 0, is_foreign(i)});
    std::memcpy(out.back().base.bytes.data(), row(i), kIdBytes);
  }
  return out;
}

bool HostFile::is_foreign(size_t i) const noexcept {
  return (get(page_ + kForeignAt + i / 64 * 8) >> (i % 64) & 1) != 0;
}

void HostFile::mark_foreign(size_t i, bool yes) noexcept {
  std::byte* const word = page_ + kForeignAt + i / 64 * 8;
  const uint64_t bit = uint64_t{1} << (i % 64);
  put(word, yes ? get(word) | bit : get(word) & ~bit);
}

// Finds a row for a new namespace: an unused one, else a foreign one, else the one with the lowest epoch. For a foreign
// namespace: kRows if no row may be used.
size_t HostFile::make_row(bool foreign) noexcept {
  size_t unused = kRows, lowest = kRows, stranger = kRows;
  size_t strangers = 0;
  for (size_t i = 0; i < kRows; ++i) {
    const uint64_t epoch = get(row(i) + kEpochAt);
    if (epoch == 0) {
      unused = std::min(unused, i);
      continue;
    }
    strangers += is_foreign(i) ? 1 : 0;
    size_t& best = is_foreign(i) ? stranger : lowest;
    if (best == kRows || epoch < get(row(best) + kEpochAt)) best = i;
  }
  if (unused != kRows && (!foreign || strangers < kForeignRows)) return unused;
  if (foreign && (strangers == 0 || stranger == kRows)) return kRows;
  const size_t goes = stranger != kRows ? stranger : lowest;
  const uint64_t epoch = get(row(goes) + kEpochAt);
  if (goes != stranger && epoch > get(page_ + kFloorAt)) put(page_ + kFloorAt, epoch);
  put(row(goes) + kEpochAt, 0);
  return goes;
}

void HostFile::set_epoch(const NamespaceId& base_id, uint64_t epoch, bool foreign) noexcept {
  size_t i = find(base_id);
  if (i != kRows && !foreign) mark_foreign(i, false);
  if (epoch <= this->epoch(base_id)) return;
  if (i == kRows) {
    i = make_row(foreign);
    if (i == kRows) return;
    mark_foreign(i, foreign);
    std::memcpy(row(i), base_id.bytes.data(), kIdBytes);
  }
  put(row(i) + kEpochAt, epoch);
}

void HostFile::forget_epoch(const NamespaceId& base_id) noexcept {
  const size_t i = find(base_id);
  if (i != kRows) put(row(i) + kEpochAt, 0);
}

}  // namespace kvbm::tier
