#include "copy/local/remote_pool.h"

#include <poll.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "base/errno_status.h"
#include "base/memory/shared_memory.h"
#include "codec/record/record.h"

namespace kvbm::copy::local {

namespace {

// True if [at, at + stride * n) lies in `bytes`; no overflow.
bool fits(uint64_t at, uint64_t stride, uint64_t n, uint64_t bytes) noexcept {
  return at <= bytes && stride != 0 && n <= (bytes - at) / stride;
}

const char* fault_of(const tier::HostShape& s) noexcept {
  if (s.slots == 0 || s.slots >= kNoSlot) return "a peer's pool has no slots, or more than there are numbers";
  if (s.bytes > SIZE_MAX / 2) return "a peer's pool is larger than memory can be";
  if (s.block_bytes == 0 || s.block_bytes > s.payload_stride) return "a peer's pool has blocks that overlap";
  if (s.head_stride < codec::kHeaderBytes) return "a peer's pool has no room for heads";
  if (s.payload_at % 64 != 0 || s.payload_stride % 64 != 0 || s.head_at % 8 != 0 || s.head_stride % 8 != 0) {
    return "a peer's pool is not aligned";
  }
  if (!fits(s.payload_at, s.payload_stride, s.slots, s.bytes) || !fits(s.head_at, s.head_stride, s.slots, s.bytes)) {
    return "a peer's pool ends before its slots do";
  }
  return nullptr;
}

}  // namespace

void encode(const PoolOffer& offer, std::byte* out) noexcept {
  const tier::HostShape& s = offer.shape;
  const uint64_t words[] = {offer.id,         s.bytes,   s.block_bytes, s.payload_at,
                            s.payload_stride, s.head_at, s.head_stride, s.slots};
  static_assert(sizeof words == kOfferBytes);
  for (size_t i = 0; i < std::size(words); ++i) store_le(out + i * 8, words[i]);
}

Result<PoolOffer> decode_offer(ConstBytes bytes) {
  if (bytes.size() != kOfferBytes) return Status(Code::damaged, "a peer's pool is not described as pools are");
  const auto word = [bytes](size_t i) { return load_le<uint64_t>(bytes.data() + i * 8); };
  const PoolOffer offer{word(0), {word(1), word(2), word(3), word(4), word(5), word(6), word(7)}};
  if (const char* fault = fault_of(offer.shape)) return Status(Code::damaged, fault);
  return offer;
}

Result<std::shared_ptr<RemotePool>> RemotePool::map(int fd, const PoolOffer& offer, Fd owner, pid_t owner_pid) {
  if (const char* fault = fault_of(offer.shape)) return Status(Code::damaged, fault);
  const auto bytes = static_cast<size_t>(offer.shape.bytes);
  if (!owner) return Status(Code::no_memory, "no descriptor left to watch a pool's owner with");
  if (Status s = check_shared_memory(fd, bytes); !s.ok()) return s;
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return errno_status(errno, "cannot map a peer's pool", std::to_string(bytes) + " bytes");
  madvise(data, bytes, MADV_DONTFORK);
  madvise(data, bytes, MADV_HUGEPAGE);
  auto pool = std::shared_ptr<RemotePool>(new RemotePool());
  pool->offer_ = offer;
  pool->owner_ = std::move(owner);
  pool->owner_pid_ = owner_pid;
  pool->data_ = static_cast<const std::byte*>(data);
  return pool;
}

RemotePool::~RemotePool() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(offer_.shape.bytes));
}

bool RemotePool::alive() const noexcept {
  pollfd poll_owner{owner_.get(), POLLIN, 0};
  return poll(&poll_owner, 1, 0) <= 0;
}

}  // namespace kvbm::copy::local
