// A store made of a C table (kvbm_store_table_t), isolated from its faults.
//
// Operations that the store finishes twice, or was never given, are ignored and counted. Impossible lengths are
// errors. Memory of an operation lives until the store has finished it, however late. A store that blocks runs on
// threads of its own here. A store that is left may log at any time: from then on its lines are dropped, because the
// log ends with its context. Lock: mutex_ is a leaf; neither the table nor the log is called under it.
#pragma once

#include <condition_variable>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/telemetry/log.h"
#include "base/thread/mutex.h"
#include "base/thread/thread_executor.h"
#include "capi/plugin/store_url.h"
#include "kvbm.h"
#include "tier/store/object_store.h"

namespace kvbm::capi {

class TableStore final : public tier::store::ObjectStore {
 public:
  // Opens the store at `place`, a URL with the store's own options alone. Errors are the table's, with its text.
  static Result<std::unique_ptr<TableStore>> open(const kvbm_store_table_t& table, StoreUrl place, Log* log,
                                                  uint64_t timeout_ns);
  ~TableStore() override;

  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return facts_; }
  void start(std::unique_ptr<tier::store::ObjectRequest> request) override;
  void cancel(uint64_t id) noexcept override;
  std::unique_ptr<tier::store::ObjectRequest> run(std::unique_ptr<tier::store::ObjectRequest> request,
                                                  UniqueFunction<void()> late) override;
  void close() noexcept override;
  void leave(std::unique_ptr<ObjectStore> self) noexcept override;

 private:
  struct Flight {
    kvbm_store_op_t op{};
    std::unique_ptr<tier::store::ObjectRequest> request;
  };
  TableStore(const kvbm_store_table_t& table, StoreUrl place, Log* log);
  std::shared_ptr<Flight> begin(std::unique_ptr<tier::store::ObjectRequest> request);
  static void finished(void* context, kvbm_store_op_t* op, kvbm_status_t status);
  static void logged(void* context, int32_t level, const char* text);

  const kvbm_store_table_t& table_;
  const StoreUrl place_;
  std::vector<kvbm_store_option_t> options_;
  kvbm_store_config_t config_{};  // the store may keep a pointer to it
  void* store_ = nullptr;
  bool blocks_ = false;
  tier::store::StoreFacts facts_;
  std::unique_ptr<ThreadExecutor> threads_;  // for a store that blocks
  Mutex mutex_;
  std::unordered_map<const kvbm_store_op_t*, std::shared_ptr<Flight>> flights_ KVBM_GUARDED_BY(mutex_);
  Log* log_ KVBM_GUARDED_BY(mutex_);              // null once the store was left
  uint32_t logging_ KVBM_GUARDED_BY(mutex_) = 0;  // lines that are being written
  std::condition_variable logged_;
  uint64_t unknown_ KVBM_GUARDED_BY(mutex_) = 0;  // operations finished twice, or never given to the store
};

}  // namespace kvbm::capi
