#include "capi/session_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "copy/queue.h"
#include "manager/node/node.h"
#include "manager/operation/cache.h"
#include "manager/session/sessions.h"

namespace kvbm::capi {

void SessionState::end(const Status& why) {
  MutexLock lock(mutex);
  ended = true;
  status = why;
  changed.notify_all();
}

Status SessionState::wait(const Clock& clock, uint64_t timeout_ns, const std::pair<uint32_t, uint32_t>* layer) {
  const uint64_t deadline_ns = deadline_after(clock, timeout_ns);
  MutexLock lock(mutex);
  for (;;) {
    if (layer != nullptr && layers.count(*layer) != 0) return {};
    if (ended) return status;
    const uint64_t now = clock.now_ns();
    if (now >= deadline_ns) return {Code::again, "it goes on"};
    // At most an hour at a time: a far deadline must not overflow the standard library's clock.
    changed.wait_for(mutex, std::chrono::nanoseconds(std::min<uint64_t>(deadline_ns - now, 3'600'000'000'000ULL)));
  }
}

SessionSubmission::SessionSubmission(Gate& all, Gate& of_cache, const Clock& clock)
    : gates_{&all, &of_cache}, clock_(clock), begun_ns_(clock.now_ns()) {}

Result<std::shared_ptr<SessionSubmission>> SessionSubmission::take(kvbm_cache_t& cache, kvbm_queue_t* queue,
                                                                   size_t places, uint64_t user_data) {
  std::shared_ptr<SessionSubmission> out(
      new SessionSubmission(cache.tenancy->gate, *cache.gate, cache.tenancy->context->executor->clock()));
  for (Gate* gate : out->gates_) gate->enter();
  out->inside_ = true;
  out->user_data_ = user_data;
  if (queue == nullptr) return out;
  out->queue_ = queue->queue;
  for (; out->places_ < places; ++out->places_) {
    if (!out->queue_->reserve()) {
      return Status(Code::again, "the queue is full",
                    std::to_string(places) + " places are needed: one for each layer, and one for the end");
    }
  }
  return out;
}

SessionSubmission::~SessionSubmission() { give_back(); }

void SessionSubmission::complete(copy::Completion completion, Code status) {
  if (queue_ == nullptr || places_ == 0) return;
  --places_;
  completion.user_data = user_data_;
  completion.status = status;
  completion.service_ns = clock_.now_ns() - begun_ns_;
  queue_->push(completion);
}

void SessionSubmission::layer(const copy::Completion& completion) { complete(completion, Code::ok); }

void SessionSubmission::end(const Status& why, const copy::Completion& completion) {
  state_->end(why);
  complete(completion, why.code());
  give_back();
}

void SessionSubmission::give_back() {
  for (; places_ > 0; --places_) queue_->unreserve();
  if (std::exchange(inside_, false)) {
    gates_[1]->leave();
    gates_[0]->leave();
  }
}

Result<manager::Node*> node_of(const kvbm_cache_t& cache) {
  if (cache.tenancy->node != nullptr) return cache.tenancy->node.get();
  return Status(Code::wrong_state, "sessions are between nodes, and this manager is none",
                "set node.listen or node.peers");
}

cluster::session::RequestId to_request(const kvbm_request_id_t& request) noexcept {
  cluster::session::RequestId out;
  std::memcpy(out.bytes.data(), request.bytes, out.bytes.size());
  return out;
}

manager::SessionBlocks to_blocks(const kvbm_cache_t& cache, const uint32_t* block_ids, size_t n,
                                 uint64_t first_position, uint64_t begin, uint64_t end) noexcept {
  return {{block_ids, n * cache.cache->parts().size()}, n, first_position, begin, end};
}

}  // namespace kvbm::capi
