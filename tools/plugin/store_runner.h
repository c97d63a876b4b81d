// Drives a table of a store (kvbm_plugin.h) as libkvbm does, and watches what it does with each operation. It believes
// nothing: an operation that is finished twice, never, or by another's pointer, and memory that is written beside what
// was given, are noted and not fatal. What a store writes elsewhere cannot be contained: it is in the process.
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

#include "capi/store_module.h"
#include "capi/store_url.h"
#include "kvbm_plugin.h"

namespace kvbm::plugin {

using Clock = std::chrono::steady_clock;
using Data = std::vector<uint8_t>;

// What is asked of a store once.
struct Request {
  uint32_t kind = 0;
  std::string name;
  std::string after = {};  // LIST
  Data data = {};          // PUT
  uint64_t bytes = 0;      // GET, LIST: room
  uint64_t offset = 0;     // GET
  uint32_t flags = 0;
  uint64_t expire_s = 0;
  uint64_t timeout_ns = 0;  // 0: the runner's
};

// One operation, and the memory that it names, between guards. It lives as long as its runner.
class Operation {
 public:
  explicit Operation(Request request);

  // The state of an operation is read after wait() alone.
  [[nodiscard]] bool ok() const { return finished_ && status_ == KVBM_OK; }
  [[nodiscard]] bool is_finished() const { return finished_; }
  [[nodiscard]] kvbm_status_t status() const { return status_; }
  [[nodiscard]] uint64_t done() const { return std::min(op_.done, op_.bytes); }
  [[nodiscard]] bool more() const { return op_.more != 0; }
  // "KVBM_ERR_IO (connection reset)", or that it was never finished.
  [[nodiscard]] std::string answer() const;
  [[nodiscard]] const std::string& name() const { return request_.name; }
  [[nodiscard]] const uint8_t* data() const { return storage_.data() + kGuard; }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(ended_ - started_).count(); }
  [[nodiscard]] Clock::time_point ended() const { return ended_; }
  // Of one that is finished: gives large memory back.
  void forget_data();

 private:
  friend class StoreRunner;
  friend struct RunnerState;
  static constexpr size_t kGuard = 64;

  // What is wrong with it as it was finished; "" if nothing is.
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
  uint64_t timeout_ns = 10'000'000'000;  // of an operation where a rule says nothing else
  uint64_t grace_ns = 2'000'000'000;     // how late an operation may be
};

// What was seen of operations, whichever rule started them; the first of each kind.
struct Misdeeds {
  void note(std::string Misdeeds::*which, const std::string& seen);
  // "" if there is none.
  std::string first(std::string Misdeeds::*which);

  std::mutex mutex;
  std::string finished;   // not exactly once
  std::string untouched;  // memory or fields that are not the store's
  std::string answers;    // statuses and numbers that cannot be
  std::string blocked;    // start() that did not return
};

struct RunnerState;

class StoreRunner {
 public:
  struct Opened {
    kvbm_status_t status = KVBM_OK;
    std::string message;
    std::string fault;  // of open() itself; "" if nothing is wrong with it
    std::unique_ptr<StoreRunner> runner;
  };
  // `table` and `url` have to live as long as the process: a store that does not let go is left behind.
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
  // Whether an operation never came back.
  [[nodiscard]] bool is_stuck() const;

  std::vector<Operation*> start(std::vector<Request> requests);
  void cancel(Operation& operation);
  // Until it is finished, or its time and the grace are over.
  const Operation& wait(Operation& operation);

  // Started, waited for, and tried again while the store says that it is busy.
  Operation& run(const Request& request);

 private:
  explicit StoreRunner(std::shared_ptr<RunnerState> state);

  std::shared_ptr<RunnerState> state_;
  std::vector<std::thread> workers_;
};

}  // namespace kvbm::plugin
