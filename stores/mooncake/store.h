// Operations in transit to the helper and back, and the thread that sends and receives them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "helper.h"
#include "kvbm_plugin.h"
#include "memory.h"
#include "settings.h"

namespace kvbm_mooncake {

using Clock = std::chrono::steady_clock;

class Store {
 public:
  // `config` must outlive the store. Throws std::bad_alloc and std::system_error.
  Store(Settings settings, const kvbm_store_config_t& config);
  ~Store();
  // Must be called before any other function. Returns "", or why Mooncake cannot be used here.
  std::string open(uint64_t timeout_ns);
  void start(kvbm_store_op_t* const* ops, size_t n);
  void cancel(const kvbm_store_op_t* op);
  [[nodiscard]] const Settings& settings() const { return settings_; }
  // Returns half of the memory less 4 KiB, so that two objects always fit in it.
  [[nodiscard]] uint64_t max_object_bytes() const { return settings_.memory_bytes / 2 - 4096; }

 private:
  struct Waiting {
    uint64_t id = 0;
    kvbm_store_op_t* op = nullptr;
    Clock::time_point end;
  };
  // An operation that the helper has received. `op` is NULL once the operation has ended here: the helper may still
  // read or write its piece of memory.
  struct Flight {
    kvbm_store_op_t* op = nullptr;
    Clock::time_point end;
    uint64_t place = 0;
    uint64_t bytes = 0;
    bool has_memory = false;
  };

  void run();
  void take_calls();
  void end_overdue();
  void give_up(uint64_t id, const char* why);
  void send_waiting();
  bool send(const Waiting& one);
  void receive();
  void greeted(const std::string& sentence);
  void answered(const char* message, size_t length);
  void helper_is_gone();
  bool start_helper();
  void wait();
  void finish(kvbm_store_op_t* op, kvbm_status_t status, const char* why);

  const Settings settings_;
  const kvbm_store_config_t& config_;
  SharedMemory memory_;
  Fd wake_;

  std::mutex mutex_;  // a leaf
  std::deque<Waiting> incoming_;
  std::vector<uint64_t> cancelled_;
  bool stops_ = false;
  uint64_t last_id_ = 0;

  // Used by the thread alone, once it runs.
  Helper helper_;
  bool is_greeted_ = false;
  bool is_full_ = false;  // until poll() says that the socket takes more
  Clock::time_point start_again_;
  std::string refusal_;  // the helper's reason, until a helper works
  std::deque<Waiting> waiting_;
  std::map<uint64_t, Flight> flights_;
  std::thread thread_;
};

}  // namespace kvbm_mooncake
