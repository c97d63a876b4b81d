// Drives a store's table (kvbm_plugin.h) like libkvbm, and watches how it handles each operation. It trusts nothing.
// Operations that are finished twice, never, or with a wrong pointer, and writes beside the given memory, are
// recorded and not fatal. Writes to other places cannot be contained, because the store is in the process.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capi/plugin/store_module.h"
#include "capi/plugin/store_url.h"
#include "kvbm_plugin.h"

namespace kvbm::plugin {

using Clock = std::chrono::steady_clock;
using Data = std::vector<uint8_t>;

// A single request to a store.
struct Request {
  uint32_t kind = 0;
  std::string name;
  std::string after = {};  // LIST
  Data data = {};          // PUT
  uint64_t bytes = 0;      // GET, LIST: size of the buffer
  uint64_t offset = 0;     // GET
  uint32_t flags = 0;
  uint64_t expire_s = 0;
  uint64_t timeout_ns = 0;  // 0: the runner's
};

// An operation, and the memory that it names, between guards. It lives as long as its runner.
class Operation {
 public:
  explicit Operation(Request request);

  // An operation's state may be read only after wait().
  [[nodiscard]] bool ok() const { return finished_ && status_ == KVBM_OK; }
  [[nodiscard]] bool is_finished() const { return finished_; }
  [[nodiscard]] kvbm_status_t status() const { return status_; }
  [[nodiscard]] uint64_t done() const { return std::min(op_.done, op_.bytes); }
  [[nodiscard]] bool more() const { return op_.more != 0; }
  // Returns "KVBM_ERR_IO (connection reset)", or that it was never finished.
  [[nodiscard]] std::string answer() const;
  [[nodiscard]] const std::string& name() const { return request_.name; }
  [[nodiscard]] const uint8_t* data() const { return storage_.data() + kGuard; }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(ended_ - started_).count(); }
  [[nodiscard]] Clock::time_point ended() const { return ended_; }
  // Frees large memory of a finished operation.
  void forget_data();

 private:
  friend class StoreRunner;
  friend struct RunnerState;
  static constexpr size_t kGuard = 64;

  // Returns the fault of a finished operation, or "".
  [[nodiscard]] std::string fault(kvbm_status_t status) const;
  [[nodiscard]] bool guards_are_whole() const;

  Request request_;
  Data storage_;
  kvbm_store_op_t op_{};
  kvbm_store_op_t given_{};
  bool begun_ = false;  // a store that blocks has a thread for it
  bool finished_ = false;
  bool cancelled_ = false;
  kvbm_status_t status_ = KVBM_OK;
  Clock::time_point started_;
  Clock::time_point ended_;
};

struct RunnerLimits {
  uint64_t timeout_ns = 10'000'000'000;  // of an operation if a rule sets no other
  uint64_t grace_ns = 2'000'000'000;     // how late an operation may end
};

// Violations in operations of all rules; the first of each kind.
struct Misdeeds {
  void note(std::string Misdeeds::*which, const std::string& seen);
  // Returns "" if there is none.
  std::string first(std::string Misdeeds::*which);

  std::mutex mutex;
  std::string finished;   // not exactly once
  std::string untouched;  // memory or fields that are not the store's
  std::string answers;    // invalid statuses and numbers
  std::string blocked;    // start() that did not return
};

struct RunnerState;

class StoreRunner {
 public:
  struct Opened {
    kvbm_status_t status = KVBM_OK;
    std::string message;
    std::string fault;  // fault of open() itself; "" if there is none
    std::unique_ptr<StoreRunner> runner;
  };
  // Opens a store. `table` and `url` must live as long as the process, because a store that never finishes is left
  // behind.
  static Opened open(const kvbm_store_table_t& table, const capi::StoreUrl& url, const capi::StoreOptions& options,
                     const RunnerLimits& limits, std::shared_ptr<Misdeeds> misdeeds);
  // Closes the store, unless it still has an operation.
  ~StoreRunner();
  StoreRunner(const StoreRunner&) = delete;
  StoreRunner& operator=(const StoreRunner&) = delete;

  [[nodiscard]] const kvbm_store_facts_t& facts() const;
  [[nodiscard]] uint64_t object_bytes() const;
  [[nodiscard]] uint32_t concurrency() const;
  [[nodiscard]] bool can_cancel() const;
  // Returns whether an operation never finished.
  [[nodiscard]] bool is_stuck() const;

  std::vector<Operation*> start(std::vector<Request> requests);
  void cancel(Operation& operation);
  // Waits until the operation is finished, or its time and the grace are over.
  const Operation& wait(Operation& operation);

  // Starts the operation, waits for it, and retries while the store reports that it is busy.
  Operation& run(const Request& request);

 private:
  explicit StoreRunner(std::shared_ptr<RunnerState> state);

  std::shared_ptr<RunnerState> state_;
  std::vector<std::thread> workers_;
};

}  // namespace kvbm::plugin
