// State that a session's or an offer's handle shares with the links' thread, on which it ends.
//
// Invariant: a submission's places in the queue and its gates are released exactly once: at its end, or, if it was
// refused, by its destructor. Lock: SessionState::mutex, a leaf.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "capi/handles.h"
#include "copy/completion.h"

namespace kvbm::cluster::session {
struct RequestId;
}
namespace kvbm::manager {
struct SessionBlocks;
}

namespace kvbm::capi {

struct SessionState {
  Mutex mutex;
  std::condition_variable_any changed;
  bool ended KVBM_GUARDED_BY(mutex) = false;
  Status status KVBM_GUARDED_BY(mutex);
  std::set<std::pair<uint32_t, uint32_t>> layers KVBM_GUARDED_BY(mutex);  // component and layer of each layer in place

  void end(const Status& why);
  // Waits. Returns the final status; again at the timeout. With a layer: ok once that is in place.
  Status wait(const Clock& clock, uint64_t timeout_ns, const std::pair<uint32_t, uint32_t>* layer = nullptr);
};

class SessionSubmission {
 public:
  // Reserves `places` in the queue, which may be null. again: it has too few.
  static Result<std::shared_ptr<SessionSubmission>> take(kvbm_cache_t& cache, kvbm_queue_t* queue, size_t places,
                                                         uint64_t user_data);
  ~SessionSubmission();
  SessionSubmission(const SessionSubmission&) = delete;
  SessionSubmission& operator=(const SessionSubmission&) = delete;

  [[nodiscard]] const std::shared_ptr<SessionState>& state() const noexcept { return state_; }
  void layer(const copy::Completion& completion);
  void end(const Status& why, const copy::Completion& completion);

 private:
  SessionSubmission(Gate& all, Gate& of_cache, const Clock& clock);
  void complete(copy::Completion completion, Code status);
  void give_back();

  const std::array<Gate*, 2> gates_;  // outlive this: their owners wait for it
  const Clock& clock_;
  const uint64_t begun_ns_;
  const std::shared_ptr<SessionState> state_ = std::make_shared<SessionState>();
  std::shared_ptr<copy::Queue> queue_;
  size_t places_ = 0;
  uint64_t user_data_ = 0;
  bool inside_ = false;
};

// Returns the node that the cache's manager is. wrong_state: it is none; the text names the remedy.
Result<manager::Node*> node_of(const kvbm_cache_t& cache);
cluster::session::RequestId to_request(const kvbm_request_id_t& request) noexcept;
manager::SessionBlocks to_blocks(const kvbm_cache_t& cache, const uint32_t* block_ids, size_t n,
                                 uint64_t first_position, uint64_t begin, uint64_t end) noexcept;

}  // namespace kvbm::capi
