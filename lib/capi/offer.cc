#include <utility>

#include "base/thread/memory_wait.h"
#include "capi/guard.h"
#include "capi/session_state.h"
#include "copy/queue.h"
#include "manager/node/node.h"
#include "manager/operation/cache.h"
#include "manager/session/sessions.h"

using kvbm::Code;
using kvbm::Status;
using kvbm::capi::fail;
using kvbm::capi::guarded;
using kvbm::capi::SessionSubmission;

struct kvbm_offer {
  std::shared_ptr<kvbm::capi::Tenancy> tenancy;
  std::shared_ptr<kvbm::capi::SessionState> state;
  std::shared_ptr<kvbm::manager::SessionOffer> offer;
};

namespace {

kvbm_offer_options_t default_offer_options() {
  kvbm_offer_options_t defaults{};
  defaults.timeout_ns = 60'000'000'000;
  return defaults;
}

kvbm_status_t open_offer(kvbm_cache_t& cache, const kvbm_request_id_t& id, const uint32_t* block_ids, size_t n,
                         const kvbm_offer_options_t& given, kvbm_queue_t* queue, uint64_t user_data,
                         kvbm_offer_t** out_offer, kvbm_error_t* err) {
  if (kvbm::capi::items({n, cache.cache->parts().size()}) == kvbm::capi::kTooMany) {
    return fail(err, kvbm::capi::refuse_count("n_block_ids * parts"));
  }
  const auto node = kvbm::capi::node_of(cache);
  if (!node.ok()) return fail(err, node.status());
  const auto blocks = kvbm::capi::to_blocks(cache, block_ids, n, given.first_position, given.begin, given.end);
  auto what = kvbm::manager::session_parts(*cache.cache, blocks, kvbm::cluster::session::Use::source);
  if (!what.ok()) return fail(err, what.status());
  auto submission = SessionSubmission::take(cache, queue, 1, user_data);
  if (!submission.ok()) return fail(err, submission.status());
  auto handle = std::make_unique<kvbm_offer>();
  handle->tenancy = cache.tenancy;
  handle->state = submission.value()->state();
  kvbm::manager::Sessions::OfferRequest request;
  request.request = kvbm::capi::to_request(id);
  request.rank = static_cast<uint16_t>(given.rank);
  request.what = std::move(what).value();
  request.cache = cache.cache;
  request.deadline_ns = kvbm::deadline_after(cache.tenancy->context->executor->clock(), given.timeout_ns);
  request.done = [taken = std::move(submission).value()](const kvbm::cluster::session::SenderEvent& end) {
    kvbm::copy::Completion completion;
    completion.op = kvbm::copy::OpKind::offer;
    completion.items_done = end.sinks_done;
    completion.items = end.sinks;
    completion.bytes = end.bytes;
    taken->end(end.status, completion);
  };
  auto offer = node.value()->sessions().offer(std::move(request));
  if (!offer.ok()) return fail(err, offer.status());
  handle->offer = std::move(offer).value();
  *out_offer = handle.release();
  return kvbm::capi::done(err);
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_offer_options_init(kvbm_offer_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, default_offer_options());
}

kvbm_status_t kvbm_offer_open(kvbm_cache_t* cache, const kvbm_request_id_t* request, const uint32_t* block_ids,
                              size_t n_block_ids, const kvbm_offer_options_t* options, kvbm_queue_t* queue,
                              uint64_t user_data, kvbm_offer_t** out_offer, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (cache == nullptr || request == nullptr || block_ids == nullptr || n_block_ids == 0 || out_offer == nullptr) {
      return fail(err, Code::invalid_argument,
                  "cache, request, block_ids or out_offer is NULL, or there are no blocks");
    }
    kvbm_offer_options_t given = default_offer_options();
    if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
    if (given.rank > UINT16_MAX) return fail(err, Code::invalid_argument, "options.rank is 65,536 or more");
    const kvbm_status_t here = kvbm::capi::check_process(*cache->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return open_offer(*cache, *request, block_ids, n_block_ids, given, queue, user_data, out_offer, err);
  });
}

kvbm_status_t kvbm_offer_publish(kvbm_offer_t* offer, uint32_t component, uint32_t first_layer, uint32_t n_layers,
                                 uint64_t begin, uint64_t end, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (offer == nullptr) return fail(err, Code::invalid_argument, "offer is NULL");
    if (component > UINT16_MAX) return fail(err, Code::invalid_argument, "no component has this number");
    const kvbm_status_t here = kvbm::capi::check_process(*offer->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, offer->offer->publish(static_cast<kvbm::Component>(component), first_layer, n_layers, begin, end));
  });
}

kvbm_status_t kvbm_offer_publish_on_stream(kvbm_offer_t* offer, uint32_t component, uint32_t first_layer,
                                           uint32_t n_layers, uint64_t begin, uint64_t end, void* stream,
                                           kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (offer == nullptr) return fail(err, Code::invalid_argument, "offer is NULL");
    if (component > UINT16_MAX) return fail(err, Code::invalid_argument, "no component has this number");
    const kvbm_status_t here = kvbm::capi::check_process(*offer->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, offer->offer->publish_after(static_cast<kvbm::Component>(component), first_layer, n_layers, begin,
                                                 end, static_cast<kvbm::device::CuStream>(stream)));
  });
}

kvbm_status_t kvbm_offer_publish_all(kvbm_offer_t* offer, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (offer == nullptr) return fail(err, Code::invalid_argument, "offer is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*offer->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, offer->offer->publish_all());
  });
}

kvbm_status_t kvbm_offer_abort(kvbm_offer_t* offer, const char* reason) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (offer == nullptr) return kvbm::capi::invalid("offer is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*offer->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    return kvbm::capi::to_c(offer->offer->abort(reason != nullptr ? reason : "").code());
  });
}

kvbm_status_t kvbm_offer_wait(kvbm_offer_t* offer, uint64_t timeout_ns, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (offer == nullptr) return fail(err, Code::invalid_argument, "offer is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*offer->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, offer->state->wait(offer->tenancy->context->executor->clock(), timeout_ns));
  });
}

void kvbm_offer_release(kvbm_offer_t* offer) {
  if (offer == nullptr || kvbm::capi::forked(*offer->tenancy)) return;
  const kvbm::MemoryWait no_error_path;  // without the abort the manager waits for the lent blocks
  (void)kvbm_offer_abort(offer, "its handle was released");
  delete offer;
}

}  // extern "C"
