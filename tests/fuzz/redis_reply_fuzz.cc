// Replies of a Redis server. The first byte is the room for a value, the second one the size of the pieces that the
// bytes are cut into. The replies that follow are read one after the other, some into memory and some by the reader's
// own way.
#include <algorithm>
#include <vector>

#include "redis/answers.h"
#include "redis/reply.h"
#include "target.h"

namespace redis_reply_fuzz {

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

constexpr size_t kLimit = 4096;

// Bytes that a reply keeps.
size_t size_of(const kvbm_redis::Reply& reply) {
  size_t bytes = reply.text.size();
  for (const auto& item : reply.items) bytes += 16 + size_of(item);
  return bytes;
}

}  // namespace

KVBM_FUZZ_TARGET(redis_reply) {
  if (size < 2) return 0;
  const size_t room = data[0];
  const size_t piece = data[1] % 32 + 1;
  std::vector<char> memory(room + 1, '\x5a');
  kvbm_redis::ReplyReader reader;
  bool is_begun = false;
  unsigned number = 0;
  for (size_t at = 2; at < size;) {
    if (!is_begun) {
      reader.begin(number % 3 == 2 ? nullptr : memory.data(), number % 3 == 0 ? 0 : room, kLimit);
      is_begun = true;
    }
    const size_t now = std::min(piece, size - at);
    size_t direct_room = 0;
    if (char* direct = reader.direct(&direct_room); direct != nullptr) {
      check(direct >= memory.data() && direct_room > 0 && direct + direct_room <= memory.data() + room);
      const size_t filled = std::min(now, direct_room);
      std::copy_n(data + at, filled, direct);
      reader.filled(filled);
      at += filled;
      if (number % 5 == 4) reader.forget_memory();
      continue;
    }
    const size_t fed = reader.feed(reinterpret_cast<const char*>(data) + at, now);
    check(fed <= now && (fed > 0 || reader.is_broken()));
    at += fed;
    check(memory[room] == '\x5a');
    if (reader.is_broken()) {
      kvbm_redis::judge_garbage(reader.broken_line(), "there", number % 2 == 0);
      return 0;
    }
    if (!reader.is_whole()) continue;
    const kvbm_redis::Reply& reply = reader.reply();
    check(size_of(reply) <= kLimit);
    if (reply.is(kvbm_redis::Reply::Type::error)) {
      kvbm_redis::Redirect redirect;
      if (kvbm_redis::read_redirect(reply.text, &redirect)) check(redirect.slot < 16384 && redirect.port != 0);
      check(kvbm_redis::judge_error(reply.text, "there").status != KVBM_OK);
    }
    is_begun = false;
    ++number;
  }
  return 0;
}

}  // namespace redis_reply_fuzz
