#include <utility>

#include "capi/guard.h"
#include "capi/handles.h"
#include "copy/queue.h"
#include "manager/operation/operation.h"

using kvbm::Code;
using kvbm::capi::fail;
using kvbm::capi::guarded;

// Completions and events cross the boundary unchanged.
static_assert(sizeof(kvbm::copy::Completion) == sizeof(kvbm_completion_t));
static_assert(offsetof(kvbm::copy::Completion, status) == offsetof(kvbm_completion_t, status));
static_assert(offsetof(kvbm::copy::Completion, service_ns) == offsetof(kvbm_completion_t, service_ns));
static_assert(sizeof(kvbm::copy::Event) == sizeof(kvbm_event_t));
static_assert(offsetof(kvbm::copy::Event, parent) == offsetof(kvbm_event_t, parent));
static_assert(offsetof(kvbm::copy::Event, component) == offsetof(kvbm_event_t, component));

extern "C" {

kvbm_status_t kvbm_queue_create(kvbm_context_t* context, uint32_t depth, kvbm_queue_t** out_queue, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (context == nullptr || out_queue == nullptr)
      return fail(err, Code::invalid_argument, "context or out_queue is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*context->core, err);
    if (here != KVBM_OK) return here;
    auto queue = kvbm::copy::Queue::create(depth);
    if (!queue.ok()) return fail(err, queue.status());
    *out_queue = new kvbm_queue{context->core, std::move(queue).value()};
    return kvbm::capi::done(err);
  });
}

void kvbm_queue_release(kvbm_queue_t* queue) {
  if (queue != nullptr) kvbm::capi::drop(queue, *queue->context);
}

int kvbm_queue_fd(const kvbm_queue_t* queue) { return queue != nullptr ? queue->queue->fd() : -1; }

size_t kvbm_queue_poll(kvbm_queue_t* queue, kvbm_completion_t* out_completions, size_t capacity) {
  if (queue == nullptr || out_completions == nullptr || queue->context->fork.forked()) return 0;
  return queue->queue->poll({reinterpret_cast<kvbm::copy::Completion*>(out_completions), capacity});
}

size_t kvbm_queue_wait(kvbm_queue_t* queue, kvbm_completion_t* out_completions, size_t capacity, uint64_t timeout_ns) {
  if (queue == nullptr || out_completions == nullptr || queue->context->fork.forked()) return 0;
  return queue->queue->wait({reinterpret_cast<kvbm::copy::Completion*>(out_completions), capacity}, timeout_ns);
}

kvbm_status_t kvbm_queue_cancel(kvbm_queue_t* queue, uint64_t operation) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (queue == nullptr) return kvbm::capi::invalid("queue is NULL");
    if (queue->context->fork.forked()) return KVBM_ERR_FORKED;
    const auto found = queue->registry->find(operation);
    if (found == nullptr) return KVBM_ERR_STALE;
    found->cancel();
    return KVBM_OK;
  });
}

size_t kvbm_queue_poll_events(kvbm_queue_t* queue, kvbm_event_t* out_events, size_t capacity) {
  if (queue == nullptr || out_events == nullptr || queue->context->fork.forked()) return 0;
  return queue->queue->poll_events({reinterpret_cast<kvbm::copy::Event*>(out_events), capacity});
}

}  // extern "C"
