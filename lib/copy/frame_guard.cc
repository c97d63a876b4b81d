#include "copy/frame_guard.h"

#include <cstring>
#include <new>

namespace kvbm::copy {

namespace {
constexpr size_t kBlockBytes = 16;
constexpr uint64_t kBlocksOfAFrame = 3;  // two of the header, and one that masks the tag
}  // namespace

const char* protection_name(Protection how) noexcept {
  switch (how) {
    case Protection::off:
      return "off";
    case Protection::authenticate:
      return "authenticate";
    case Protection::encrypt:
      return "encrypt";
  }
  return "unknown";
}

Result<std::unique_ptr<FrameGuard>> FrameGuard::make(Protection how, const uint8_t* key, uint64_t most_blocks) {
  std::unique_ptr<FrameGuard> out(new FrameGuard(how, most_blocks));
  if (Status opened = out->gcm_.open(); !opened.ok()) return opened;
  if (!out->gcm_.set_key(key)) return Status(Code::internal, "libcrypto refuses a key of a connection");
  return out;
}

Code FrameGuard::begin(ConstBytes header, uint64_t payload_bytes, codec::AesGcm::Use use) noexcept {
  const uint64_t blocks = kBlocksOfAFrame + payload_bytes / kBlockBytes + 1;
  if (blocks > blocks_left_) return Code::closed;
  blocks_left_ -= blocks;
  codec::AesGcm::Nonce nonce{};
  const uint64_t number = frames_++;  // blocks_left_ is used up long before it could wrap
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return gcm_.begin(nonce, use) && gcm_.associate(header) ? Code::ok : Code::internal;
}

bool FrameGuard::seal(ConstBytes from, std::byte* to) noexcept {
  return encrypts() ? gcm_.pass(from, to) : gcm_.associate(from);
}

bool FrameGuard::open(MutableBytes bytes) noexcept {
  return encrypts() ? gcm_.pass(bytes, bytes.data()) : gcm_.associate(bytes);
}

}  // namespace kvbm::copy
