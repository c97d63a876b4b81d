// Geometries, shards, record shapes and arrangements of any numbers. What is accepted stays inside its bounds: leaves
// cover the payload in order, every run lies inside its tensor, and a record that is gathered and scattered into other
// memory and gathered again is the same record.
#include <algorithm>
#include <cstring>
#include <vector>

#include "layout/engine_forms.h"
#include "layout/plan.h"
#include "layout/record_shape.h"
#include "layout/shard.h"
#include "target.h"

namespace layout_fuzz {

namespace {

using namespace kvbm;
using namespace kvbm::layout;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

class Numbers {
 public:
  Numbers(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  uint64_t bytes(size_t n) {
    uint64_t out = 0;
    for (size_t i = 0; i < n && left_ != 0; ++i, --left_) out = out << 8 | *data_++;
    return out;
  }
  // Draws a size that mostly fits in memory, and sometimes any number.
  uint64_t any(uint64_t small) {
    const uint64_t how = bytes(1);
    return how < 250 ? 1 + how % small : bytes(how == 255 ? 8 : 4);
  }
  uint32_t any32(uint64_t small) { return static_cast<uint32_t>(any(small)); }

 private:
  const uint8_t* data_;
  size_t left_;
};

constexpr uint64_t kMost = 1 << 18;  // bytes of payload or of tensors that are really made

// Leaves follow each other without a gap and know where they are.
void check_leaves(const RecordShape& shape) {
  check(shape.leaf_count() <= kLeafCountLimit && shape.payload_bytes() <= kPayloadLimit);
  uint64_t end = 0;
  const uint32_t n = std::min<uint32_t>(shape.leaf_count(), 2048);
  for (uint32_t i = 0; i < n; ++i) {
    const LeafExtent leaf = shape.leaf(i);
    check(leaf.offset == end && leaf.bytes != 0 && leaf.bytes <= kLeafLimit);
    check(leaf.layer < shape.layers() && leaf.plane < shape.planes() && leaf.unit < shape.units());
    check(leaf.first_head + leaf.heads <= shape.heads() && leaf.first_token + leaf.tokens <= shape.tokens());
    check(shape.leaf_at(leaf.offset) == i && shape.leaf_at(leaf.offset + leaf.bytes - 1) == i);
    end += leaf.bytes;
  }
  if (n == shape.leaf_count()) check(end == shape.payload_bytes());
  const LeafExtent last = shape.leaf(shape.leaf_count() - 1);
  check(last.offset + last.bytes == shape.payload_bytes());
}

// Copies one run to or from the bytes of its leaf; every piece is inside the tensors.
template <class Copy>
void each_piece(const StridedRun& run, const std::vector<std::vector<std::byte>>& memory, Copy copy) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < run.count0; ++i) {
    for (uint64_t j = 0; j < run.count1; ++j) {
      std::byte* piece = run.data + static_cast<int64_t>(i) * run.stride0 + static_cast<int64_t>(j) * run.stride1;
      check(std::any_of(memory.begin(), memory.end(), [&](const std::vector<std::byte>& m) {
        return piece >= m.data() && piece + run.bytes <= m.data() + m.size();
      }));
      copy(piece, at, run.bytes);
      at += run.bytes;
    }
  }
}

struct Memory {
  std::vector<std::vector<std::byte>> tensors;
  std::vector<Tensor> views;
  Memory(Form form, const RecordShape& shape, uint64_t bytes, uint64_t seed) {
    uint64_t x = seed | 1;
    for (uint32_t i = 0; i < form_tensors(form, shape); ++i) {
      tensors.emplace_back(bytes);
      for (std::byte& b : tensors.back()) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        b = static_cast<std::byte>(x);
      }
    }
    for (auto& t : tensors) views.push_back({t.data(), t.size()});
  }
};

void gather(const Arrangement& pages, std::span<const BlockId> ids, const RecordShape& shape, const Memory& memory,
            std::vector<std::byte>& out) {
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const LeafExtent leaf = shape.leaf(i);
    uint64_t moved = 0;
    each_piece(plan_leaf(pages, leaf, ids[leaf.unit]), memory.tensors,
               [&](const std::byte* piece, uint64_t at, uint64_t bytes) {
                 check(at + bytes <= leaf.bytes);
                 std::memcpy(out.data() + leaf.offset + at, piece, bytes);
                 moved += bytes;
               });
    check(moved == leaf.bytes);
  }
}

void scatter(const Arrangement& pages, std::span<const BlockId> ids, const RecordShape& shape, const Memory& memory,
             const std::vector<std::byte>& in) {
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const LeafExtent leaf = shape.leaf(i);
    each_piece(plan_leaf(pages, leaf, ids[leaf.unit]), memory.tensors,
               [&](std::byte* piece, uint64_t at, uint64_t bytes) {
                 std::memcpy(piece, in.data() + leaf.offset + at, bytes);
               });
  }
}

void check_copies(const RecordShape& shape, Numbers& in) {
  const auto from = static_cast<Form>(in.bytes(1) % kFormCount);
  const auto to = static_cast<Form>(in.bytes(1) % kFormCount);
  const uint64_t blocks = in.any(8);
  const uint64_t stride = in.bytes(1) < 200 ? 0 : in.any(4096);
  const uint32_t n = form_tensors(from, shape);
  if (n == 0 || n > 64) return;
  // Works on numbers only: no memory is touched, and an accepted extent holds what the shape needs.
  const uint64_t whole = shape.unit_bytes() * shape.planes() * shape.layers();
  const uint64_t claimed = in.any(1 << 20);
  std::vector<std::byte> one(1);
  const std::vector<Tensor> claims(n, Tensor{one.data(), claimed});
  const auto refused_or_fits = arrange(from, shape, blocks, claims, stride);
  if (refused_or_fits.ok())
    check(static_cast<unsigned __int128>(claimed) * n >= static_cast<unsigned __int128>(whole) * blocks);
  if (blocks < shape.units() || blocks > 64 || whole > kMost || blocks * whole > kMost) return;
  const uint64_t bytes = blocks * whole / n + (stride != 0 ? blocks * std::min<uint64_t>(stride, 4096) : 0);
  const Memory source(from, shape, bytes, 7);
  const uint32_t m = form_tensors(to, shape);
  const Memory target(to, shape, blocks * whole / m, 9);
  const auto a = arrange(from, shape, blocks, source.views, stride);
  const auto b = arrange(to, shape, blocks, target.views);
  check(b.ok());
  if (stride == 0) check(a.ok());
  if (!a.ok()) return;
  std::vector<BlockId> ids(shape.units());
  const uint64_t first = in.bytes(1);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<BlockId>((first + i) % blocks);
  check(a.value().check_blocks(ids).ok() && b.value().check_blocks(ids).ok());
  std::vector<std::byte> record(shape.payload_bytes());
  std::vector<std::byte> again(shape.payload_bytes());
  gather(a.value(), ids, shape, source, record);
  scatter(b.value(), ids, shape, target, record);
  gather(b.value(), ids, shape, target, again);
  check(record == again);
}

ComponentGeometry component(Numbers& in) {
  const auto element = static_cast<Element>(in.bytes(1) % kElementCount);
  switch (in.bytes(1) % 5) {
    case 0:
      return sliding_window(in.any32(3), in.any32(4), in.any32(32), element, in.any32(64));
    case 1:
      return latent(in.any32(3), in.any32(600), element);
    case 2:
      return state(in.any32(3), in.any(4096));
    default:
      return attention(in.any32(3), in.any32(4), in.any32(32), element);
  }
}

}  // namespace

KVBM_FUZZ_TARGET(layout) {
  Numbers in(data, size);
  std::vector<ComponentGeometry> components;
  for (uint64_t n = 1 + in.bytes(1) % 3; n != 0; --n) components.push_back(component(in));
  const auto geometry = Geometry::make(in.any32(16), components, in.any32(3));
  if (!geometry.ok()) return 0;
  check(geometry.value().fingerprint() != 0);
  for (uint16_t c = 0; c < components.size(); ++c) {
    Shard shard = whole_shard(components[c]);
    if (in.bytes(1) > 128) {
      shard.first_layer = static_cast<uint16_t>(in.any(3) - 1), shard.layers = static_cast<uint16_t>(in.any(3));
      shard.first_head = static_cast<uint16_t>(in.any(3) - 1), shard.heads = static_cast<uint16_t>(in.any(3));
    }
    const auto tensor =
        tensor_parallel_shard(components[c], in.any32(4) - 1, in.any32(8), in.any32(2) - 1, in.any32(3));
    if (tensor.ok()) check(check_shard(geometry.value(), c, tensor.value()).ok());
    const auto shape = RecordShape::make(geometry.value(), c, shard, in.any32(3));
    if (!shape.ok()) continue;
    check(check_shard(geometry.value(), c, shard).ok());
    check_leaves(shape.value());
    check_copies(shape.value(), in);
  }
  return 0;
}

}  // namespace layout_fuzz
