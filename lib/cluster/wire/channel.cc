#include "cluster/wire/channel.h"

namespace kvbm::cluster {

void Channel::seal(MutableBytes message) noexcept {
  store_le<uint64_t>(message.data() + kTagBytes, next_out_++);
  const Mac mac = send_(message.subspan(kTagBytes));
  std::memcpy(message.data(), mac.data(), kTagBytes);
}

Result<ConstBytes> Channel::open(ConstBytes message) noexcept {
  if (broken_) return Status(Code::damaged, "peer: this channel has seen a message that was not its peer's");
  broken_ = true;
  if (message.size() < kOverhead) return Status(Code::damaged, "peer: a message is shorter than its tag");
  // Checks the tag first: nothing of a message counts before it.
  const Mac mac = receive_(message.subspan(kTagBytes));
  if (!equal_secret(std::as_bytes(std::span(mac)).first(kTagBytes), message.first(kTagBytes))) {
    return Status(Code::damaged, "peer: a message's tag does not fit: it was changed on its way");
  }
  if (load_le<uint64_t>(message.data() + kTagBytes) != next_in_) {
    return Status(Code::damaged, "peer: a message came out of its order: it was repeated, dropped or moved");
  }
  broken_ = false;
  ++next_in_;
  return message.subspan(kOverhead);
}

}  // namespace kvbm::cluster
