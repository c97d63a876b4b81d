// Result of one operation. The capi layer passes it to callers as kvbm_completion_t, field by field.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/status.h"

namespace kvbm::copy {

enum class OpKind : int32_t { store = 1, load = 2, prefetch = 3, offload = 4, offer = 5, receive = 6, layer = 7 };

struct Completion {
  uint64_t user_data = 0;
  uint64_t operation = 0;
  OpKind op = OpKind::store;
  Code status = Code::ok;
  uint64_t items_done = 0;
  uint64_t items = 0;
  uint64_t bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t service_ns = 0;
};

enum class EventKind : int32_t { stored = 1, removed = 2, cleared = 3, disabled = 4 };

struct Event {
  uint64_t sequence = 0;
  EventKind kind = EventKind::stored;
  uint32_t tier = 0;
  NamespaceId ns;
  Key key;
  Key parent;
  uint32_t component = 0;
  uint32_t reserved = 0;
};

}  // namespace kvbm::copy
