// Interface of a store: objects by name, written whole, read in ranges, listed in order. Implemented by the C table of
// kvbm_plugin.h (capi/plugin/table_store.h) and by the simulated store of the tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/function.h"
#include "base/status.h"

namespace kvbm::tier::store {

enum class Verb : uint8_t { put, get, remove, list };

// Memory for the bytes of a request. Not initialised.
struct Buffer {
  std::unique_ptr<std::byte[]> bytes;
  size_t size = 0;
  [[nodiscard]] MutableBytes span() const noexcept { return {bytes.get(), size}; }
  static Buffer of(size_t n) { return {std::make_unique_for_overwrite<std::byte[]>(n), n}; }
};

struct ObjectRequest {
  uint64_t id = 0;  // for cancel(); unique while in flight
  Verb verb = Verb::get;
  bool listed = false;  // put, remove: listings show this object
  std::string name;     // list: the prefix
  std::string after;    // list: begin behind this name
  Buffer data;          // put: bytes to write; get, list: memory for the answer
  uint64_t bytes = 0;   // of data that are used
  uint64_t offset = 0;  // get
  uint64_t timeout_ns = 0;
  uint64_t expire_s = 0;  // put; 0: no limit
  // Results.
  Code code = Code::internal;
  uint64_t done = 0;  // get, list: bytes of data that were filled; at most `bytes`
  bool more = false;  // list: more names follow
  std::string message;
  // Runs once, on any thread, and returns the request.
  UniqueFunction<void(std::unique_ptr<ObjectRequest>)> finished;
};

struct StoreFacts {
  uint32_t concurrency = 16;
  uint64_t object_bytes = uint64_t{4} << 20;
  uint64_t max_object_bytes = 0;  // 0: no limit
  std::string kind = "store";     // "s3"
  std::string description;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;  // nothing may be in flight
  [[nodiscard]] virtual const StoreFacts& facts() const noexcept = 0;
  // Never blocks. Statuses: ok, miss (get), again (busy: later), io_error, deadline, disk_full, unsupported;
  // not_permitted and bad_config (refused: a retry soon does not help). Thread: any.
  virtual void start(std::unique_ptr<ObjectRequest> request) = 0;
  // The result is no longer needed: finish the request soon. An id that is not in flight is ignored. Thread: any.
  virtual void cancel(uint64_t id) noexcept = 0;
  // Calls start() and waits: at most the request's timeout and a little. A request that does not end in that time is
  // cancelled, and null is returned. `late` runs when the store has ended it after all, on any thread; it may be empty.
  // For the few calls that must be on the medium before they return. Thread: not the executor's.
  virtual std::unique_ptr<ObjectRequest> run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> late) = 0;
  // Called after the last request has finished, those of run() included; waits for the store's threads.
  virtual void close() noexcept = 0;
  // Called instead of close() if some requests never finish. `self` is this object; it lives as long as they may touch
  // it.
  virtual void leave(std::unique_ptr<ObjectStore> self) noexcept = 0;
};

}  // namespace kvbm::tier::store
