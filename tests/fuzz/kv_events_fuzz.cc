// Input: the payload of a message of KV events, as any sender on the network may make it.
#include <algorithm>

#include "target.h"
#include "watch/event.h"
#include "watch/render.h"
#include "watch/tally.h"

namespace kv_events_fuzz {

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

KVBM_FUZZ_TARGET(kv_events) {
  using namespace kvbm;
  auto decoded = watch::decode({reinterpret_cast<const char*>(data), size});
  if (!decoded.ok()) {
    check(decoded.status().code() == Code::damaged);
    return 0;
  }
  watch::Message message;
  message.stream = "fuzz";
  message.batch = std::move(decoded).value();
  for (const watch::Event& event : message.batch.events) {
    check(event.kind == watch::Kind::cleared || event.fields.is_object());
    check(event.hashes.size() <= size);
  }
  const std::string lines = watch::render_events(message, true);
  check(static_cast<size_t>(std::count(lines.begin(), lines.end(), '\n')) == message.batch.events.size());
  watch::Tally tally(4);
  tally.take(message, 1);
  const watch::Frame frame = tally.frame({}, 1, true);
  for (const watch::Row& row : frame.rows) check(row.blocks_known <= row.stored);
  const std::string text = watch::render_text(frame, {}, 0);
  for (const char c : text) check(c == '\n' || (c >= ' ' && c <= '~'));
  return 0;
}

}  // namespace kv_events_fuzz
