#include "codec/hash/leaf_hash.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "codec/hash/copy_hint.h"
#include "codec/hash/kernel.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kvbm::codec {
namespace {

// Smallest target of unknown use that is written past the caches: measured in tools/bench/copy.cc, `kvbm bench copy`,
// as the size where streaming wins against libc memcpy on rotating memory.
constexpr uint64_t kStreamFrom = 16 * 1024;
// Smallest pieces that the slow path writes past the caches. In that path rows begin at any address, and smaller pieces
// would write many cache lines partly.
constexpr uint64_t kSlowStreamPiece = 16 * 1024;

Ask usual_ask() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return Ask::second_level;
#endif
  return Ask::first_level;
}

const Kernel* best_kernel() noexcept {
  if (const Kernel* kernel = avx512_kernel(usual_ask())) return kernel;
  if (const Kernel* kernel = avx2_kernel(usual_ask())) return kernel;
  return portable_kernel();
}

std::atomic<const Kernel*> g_kernel{nullptr};

const Kernel& kernel() noexcept {
  const Kernel* chosen = g_kernel.load(std::memory_order_relaxed);
  if (chosen == nullptr) {
    chosen = best_kernel();
    g_kernel.store(chosen, std::memory_order_relaxed);
  }
  return *chosen;
}

// Folds the high half of the product onto the low one: every bit of both factors reaches the result.
uint64_t fold(uint64_t a, uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t finish(const uint64_t* lanes, uint64_t bytes) noexcept {
  uint64_t h = bytes * kLengthFactor;
  for (size_t l = 0; l < kLanes; l += 2) h += fold(lanes[l] ^ kLaneMerge[l], lanes[l + 1] ^ kLaneMerge[l + 1]);
  h = (h ^ (h >> 37)) * 0x165667919E3779F9ULL;  // the end mix of XXH3
  return h ^ (h >> 32);
}

void start(LeafState& state) noexcept {
  std::memcpy(state.lanes, kLaneStart.data(), sizeof state.lanes);
  state.row = 0;
}

// Makes a walk over a source, which is never written through.
Walk walk_of(const std::byte* data, uint64_t bytes) noexcept {
  Walk walk;
  walk.at = const_cast<std::byte*>(data);
  walk.left = bytes;
  return walk;
}

Walk walk_of(std::span<const StridedRun> runs) noexcept {
  Walk walk;
  walk.run = runs.data();
  walk.end = runs.data() + runs.size();
  walk.enter();
  return walk;
}

// Facts about a list of pieces that decide how it is handled; found in one pass over the runs, not over the pieces.
struct Shape {
  uint64_t bytes = 0;
  uint64_t smallest = UINT64_MAX;
  uint64_t size_bits = 0;     // OR of all piece sizes; 0 for a single piece, where rows never straddle
  uint64_t address_bits = 0;  // OR of all piece addresses
};

Shape shape_of(std::span<const StridedRun> runs) noexcept {
  Shape shape;
  for (const StridedRun& run : runs) {
    if (run.total() == 0) continue;
    shape.bytes += run.total();
    shape.smallest = std::min(shape.smallest, run.bytes);
    shape.size_bits |= run.bytes;
    shape.address_bits |= reinterpret_cast<uintptr_t>(run.data);
    if (run.count0 > 1) shape.address_bits |= static_cast<uint64_t>(run.stride0);
    if (run.count1 > 1) shape.address_bits |= static_cast<uint64_t>(run.stride1);
  }
  return shape;
}

Shape shape_of(const std::byte* data, uint64_t bytes) noexcept {
  return {bytes, bytes, 0, reinterpret_cast<uintptr_t>(data)};
}

Store store_for(const Shape& target, CopyHint hint) noexcept {
  if (hint == CopyHint::cached || (hint == CopyHint::automatic && target.bytes < kStreamFrom)) return Store::cached;
  if (target.address_bits % kChunkBytes == 0) return Store::stream;
  // Lines at the ends of such pieces are written partly, which is slow unless pieces are long.
  return target.address_bits % 16 == 0 && target.smallest >= kSlowStreamPiece ? Store::stream16 : Store::cached;
}

void take(Walk& from, std::byte* out, uint64_t bytes) noexcept {
  while (bytes > 0) {
    const uint64_t n = std::min(bytes, from.left);
    std::memcpy(out, from.at, n);
    from.advance(n);
    out += n;
    bytes -= n;
  }
}

void give(Walk& to, const std::byte* in, uint64_t bytes) noexcept {
  while (bytes > 0) {
    const uint64_t n = std::min(bytes, to.left);
    std::memcpy(to.at, in, n);
    to.advance(n);
    in += n;
    bytes -= n;
  }
}

// Handles a row that pieces cut at odd places, or the last one: reads it once into `row`, hashes and writes it from
// there.
void staged_row(const Kernel& k, LeafState& state, Walk* to, Walk& from, uint64_t bytes) noexcept {
  alignas(64) std::byte row[kRowBytes];
  take(from, row, bytes);
  std::memset(row + bytes, 0, kRowBytes - bytes);
  Walk nowhere;
  Walk staged = walk_of(row, kRowBytes);
  k.rows(state, nowhere, staged, 1, Store::none);
  if (to != nullptr) give(*to, row, bytes);
}

// Handles pieces of any size: whole rows if both sides have one in a single piece, staged rows between.
void odd_rows(const Kernel& k, LeafState& state, Walk& to, Walk& from, uint64_t rows, Store store) noexcept {
  while (rows > 0) {
    const uint64_t whole = std::min(rows, std::min(from.left, to.left) / kRowBytes);
    if (whole > 0) k.rows(state, to, from, whole, store);
    rows -= whole;
    if (rows == 0) return;
    staged_row(k, state, &to, from, kRowBytes);
    --rows;
  }
}

uint64_t copy_pieces(Walk to, const Shape& target, Walk from, const Shape& source, Store store,
                     CopyOrder order) noexcept {
  const Kernel& k = kernel();
  LeafState state;
  start(state);
  const uint64_t bytes = target.bytes;
  if ((target.size_bits | source.size_bits) % kChunkBytes == 0) {
    if (bytes >= kRowBytes) k.rows(state, to, from, bytes / kRowBytes, store);
  } else {
    // Inside odd target pieces rows begin anywhere, which streaming stores do not allow.
    const bool stream = target.size_bits == 0 && source.smallest >= kSlowStreamPiece;
    odd_rows(k, state, to, from, bytes / kRowBytes, stream ? store : Store::cached);
  }
  if (bytes % kRowBytes != 0) staged_row(k, state, &to, from, bytes % kRowBytes);
  if (order == CopyOrder::now && store != Store::cached) order_copies();
  return finish(state.lanes, bytes);
}

uint64_t second_level_cache() noexcept {
  constexpr uint64_t kUsual = 1024 * 1024;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  const long reported = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return reported > 0 ? static_cast<uint64_t>(reported) : kUsual;
#else
  return kUsual;
#endif
}

std::atomic<uint64_t> g_second_level_cache{0};

}  // namespace

CopyHint hint_for(uint64_t bytes) noexcept {
  uint64_t cache = g_second_level_cache.load(std::memory_order_relaxed);
  if (cache == 0) {
    cache = second_level_cache();
    g_second_level_cache.store(cache, std::memory_order_relaxed);
  }
  const uint64_t room = usual_ask() == Ask::second_level ? 2 * cache : cache / 2;
  return bytes <= room ? CopyHint::cached : CopyHint::automatic;
}

void order_copies() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

uint64_t leaf_hash_reference(ConstBytes bytes) noexcept {
  uint64_t lanes[kLanes];
  std::memcpy(lanes, kLaneStart.data(), sizeof lanes);
  for (uint64_t row = 0; row * kRowBytes < bytes.size(); ++row) {
    uint64_t words[kLanes] = {};
    std::memcpy(words, bytes.data() + row * kRowBytes, std::min(kRowBytes, bytes.size() - row * kRowBytes));
    for (size_t l = 0; l < kLanes; ++l) {
      const uint64_t mixed = words[l] ^ (kLaneKey[l] + row * kRowStep);
      lanes[l] += (mixed & UINT32_MAX) * (mixed >> 32);
      lanes[l ^ 1] += words[l];
    }
    if ((row + 1) % kRowsPerScramble != 0) continue;
    for (size_t l = 0; l < kLanes; ++l) {
      lanes[l] = (lanes[l] ^ (lanes[l] >> 47) ^ kLaneScramble[l]) * kScrambleFactor;
    }
  }
  return finish(lanes, bytes.size());
}

LeafHasher::LeafHasher() noexcept { start(state_); }

void LeafHasher::add(ConstBytes piece) noexcept {
  const Kernel& k = kernel();
  Walk nowhere;
  Walk from = walk_of(piece.data(), piece.size());
  if (piece.size() >= kRowBytes) k.rows(state_, nowhere, from, piece.size() / kRowBytes, Store::none);
  if (piece.size() % kRowBytes != 0) staged_row(k, state_, nullptr, from, piece.size() % kRowBytes);
  bytes_ += piece.size();
}

uint64_t LeafHasher::hash() const noexcept { return finish(state_.lanes, bytes_); }

uint64_t leaf_hash(ConstBytes bytes) noexcept {
  LeafHasher hasher;
  hasher.add(bytes);
  return hasher.hash();
}

uint64_t copy_hashed(std::byte* target, const std::byte* source, size_t bytes, CopyHint hint,
                     CopyOrder order) noexcept {
  const Shape shape = shape_of(target, bytes);
  return copy_pieces(walk_of(target, bytes), shape, walk_of(source, bytes), {bytes, bytes, 0, 0},
                     store_for(shape, hint), order);
}

uint64_t gather_hashed(std::byte* target, std::span<const StridedRun> source, CopyHint hint, CopyOrder order) noexcept {
  const Shape from = shape_of(source);
  const Shape to = shape_of(target, from.bytes);
  return copy_pieces(walk_of(target, from.bytes), to, walk_of(source), from, store_for(to, hint), order);
}

uint64_t scatter_hashed(std::span<const StridedRun> target, const std::byte* source, CopyHint hint,
                        CopyOrder order) noexcept {
  const Shape to = shape_of(target);
  return copy_pieces(walk_of(target), to, walk_of(source, to.bytes), {to.bytes, to.bytes, 0, 0}, store_for(to, hint),
                     order);
}

const char* kernel_name() noexcept { return kernel().name; }

bool force_kernel(const char* name) noexcept {
  if (name == nullptr) {
    g_kernel.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  for (const Kernel* k : {portable_kernel(), avx2_kernel(Ask::first_level), avx2_kernel(Ask::second_level),
                          avx512_kernel(Ask::first_level), avx512_kernel(Ask::second_level)}) {
    if (k == nullptr || std::string_view(k->name) != name) continue;
    g_kernel.store(k, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace kvbm::codec
