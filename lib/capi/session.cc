#include <utility>

#include "base/thread/memory_wait.h"
#include "capi/guard.h"
#include "capi/session_state.h"
#include "copy/queue.h"
#include "manager/node/node.h"
#include "manager/operation/cache.h"
#include "manager/session/sessions.h"

using kvbm::Code;
using kvbm::Component;
using kvbm::Status;
using kvbm::capi::fail;
using kvbm::capi::guarded;
using kvbm::capi::SessionSubmission;

struct kvbm_session {
  std::shared_ptr<kvbm::capi::Tenancy> tenancy;
  std::shared_ptr<kvbm::capi::SessionState> state;
  std::shared_ptr<kvbm::manager::SessionReceipt> receipt;
  std::vector<kvbm::cluster::session::Part> parts;
};

namespace {

kvbm_session_options_t default_session_options() {
  kvbm_session_options_t defaults{};
  defaults.timeout_ns = 60'000'000'000;
  return defaults;
}

// Reports of a session in progress and at its end; on the links' thread.
class Progress {
 public:
  Progress(std::shared_ptr<SessionSubmission> taken, const kvbm::manager::SessionParts& what, bool tell_layers)
      : taken_(std::move(taken)), what_(what), tell_layers_(tell_layers) {}

  void layer(Component component, uint16_t layer) {
    {
      const auto& state = taken_->state();
      kvbm::MutexLock lock(state->mutex);
      state->layers.emplace(component, layer);
      state->changed.notify_all();
    }
    ++layers_;
    const uint64_t bytes = what_.layer_bytes(component);
    bytes_ += bytes;
    if (!tell_layers_) return;
    kvbm::copy::Completion completion = now();
    completion.op = kvbm::copy::OpKind::layer;
    completion.operation = uint64_t{component} << 32 | layer;
    completion.bytes = bytes;
    taken_->layer(completion);
  }
  void end(const Status& status) { taken_->end(status, now()); }

 private:
  [[nodiscard]] kvbm::copy::Completion now() const {
    kvbm::copy::Completion completion;
    completion.op = kvbm::copy::OpKind::receive;
    completion.items_done = layers_;
    completion.items = what_.layers;
    completion.bytes = bytes_;
    return completion;
  }

  const std::shared_ptr<SessionSubmission> taken_;
  const kvbm::manager::SessionParts what_;
  const bool tell_layers_;
  uint64_t layers_ = 0;
  uint64_t bytes_ = 0;  // in place
};

kvbm_status_t open_session(kvbm_cache_t& cache, const kvbm::manager::SessionBlocks& blocks,
                           kvbm::manager::Sessions::ReceiveRequest request, const kvbm_session_options_t& given,
                           kvbm_queue_t* queue, uint64_t user_data, kvbm_session_t** out_session, kvbm_error_t* err) {
  const auto node = kvbm::capi::node_of(cache);
  if (!node.ok()) return fail(err, node.status());
  auto what = kvbm::manager::session_parts(*cache.cache, blocks, kvbm::cluster::session::Use::target);
  if (!what.ok()) return fail(err, what.status());
  const bool tell_layers = given.no_layers == 0;
  auto submission = SessionSubmission::take(cache, queue, tell_layers ? what.value().layers + 1 : 1, user_data);
  if (!submission.ok()) return fail(err, submission.status());
  auto handle = std::make_unique<kvbm_session>();
  handle->tenancy = cache.tenancy;
  handle->state = submission.value()->state();
  for (const auto& p : what.value().parts) handle->parts.push_back(p.part);
  auto progress = std::make_shared<Progress>(std::move(submission).value(), what.value(), tell_layers);
  request.what = std::move(what).value();
  request.cache = cache.cache;
  if (given.has_stream != 0) request.after = static_cast<kvbm::device::CuStream>(given.stream);
  request.deadline_ns = kvbm::deadline_after(cache.tenancy->context->executor->clock(), given.timeout_ns);
  request.layer_ready = [progress](Component component, uint16_t layer) { progress->layer(component, layer); };
  request.done = [progress](const Status& status) { progress->end(status); };
  progress.reset();  // a refused request is undone by dropping it
  auto receipt = node.value()->sessions().receive(std::move(request));
  if (!receipt.ok()) return fail(err, receipt.status());
  handle->receipt = std::move(receipt).value();
  *out_session = handle.release();
  return kvbm::capi::done(err);
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_session_options_init(kvbm_session_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, default_session_options());
}

kvbm_status_t kvbm_session_open(kvbm_cache_t* cache, const kvbm_request_id_t* request, const uint32_t* block_ids,
                                size_t n_block_ids, const kvbm_source_t* sources, size_t n_sources,
                                const kvbm_session_options_t* options, kvbm_queue_t* queue, uint64_t user_data,
                                kvbm_session_t** out_session, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (cache == nullptr || request == nullptr || block_ids == nullptr || n_block_ids == 0 || out_session == nullptr) {
      return fail(err, Code::invalid_argument,
                  "cache, request, block_ids or out_session is NULL, or there are no blocks");
    }
    if (sources == nullptr || n_sources == 0 || n_sources > 4096) {
      return fail(err, Code::invalid_argument, "a session has 1 to 4,096 sources: every prefill rank of the request");
    }
    kvbm_session_options_t given = default_session_options();
    if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
    const uint32_t ranks = given.ranks != 0 ? given.ranks : 1;
    if (ranks > UINT16_MAX || given.rank >= ranks) {
      return fail(err, Code::invalid_argument, "options.rank is below options.ranks, and that below 65,536");
    }
    if (given.has_stream > 1 || (given.has_stream == 0 && given.stream != nullptr)) {
      return fail(err, Code::invalid_argument, "options.stream is set and has_stream is not 1");
    }
    if (given.reserved != 0) return fail(err, Code::unsupported, "options.reserved must be zero");
    const kvbm_status_t here = kvbm::capi::check_process(*cache->tenancy->context, err);
    if (here != KVBM_OK) return here;
    kvbm::manager::Sessions::ReceiveRequest core;
    core.request = kvbm::capi::to_request(*request);
    core.rank = static_cast<uint16_t>(given.rank);
    core.ranks = static_cast<uint16_t>(ranks);
    core.budget_bytes = given.budget_bytes;
    for (size_t i = 0; i < n_sources; ++i) {
      if (sources[i].node == nullptr || sources[i].rank > UINT16_MAX || sources[i].reserved != 0) {
        return fail(err, Status(Code::invalid_argument, "a source has a node, and a rank below 65,536",
                                "sources[" + std::to_string(i) + "]"));
      }
      core.sources.push_back({0, static_cast<uint16_t>(sources[i].rank), sources[i].node});
    }
    if (kvbm::capi::items({n_block_ids, cache->cache->parts().size()}) == kvbm::capi::kTooMany) {
      return fail(err, kvbm::capi::refuse_count("n_block_ids * parts"));
    }
    const auto blocks =
        kvbm::capi::to_blocks(*cache, block_ids, n_block_ids, given.first_position, given.begin, given.end);
    return open_session(*cache, blocks, std::move(core), given, queue, user_data, out_session, err);
  });
}

kvbm_status_t kvbm_session_wait(kvbm_session_t* session, uint64_t timeout_ns, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (session == nullptr) return fail(err, Code::invalid_argument, "session is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*session->tenancy->context, err);
    if (here != KVBM_OK) return here;
    return fail(err, session->state->wait(session->tenancy->context->executor->clock(), timeout_ns));
  });
}

kvbm_status_t kvbm_session_wait_layer(kvbm_session_t* session, uint32_t component, uint32_t layer, uint64_t timeout_ns,
                                      kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (session == nullptr) return fail(err, Code::invalid_argument, "session is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*session->tenancy->context, err);
    if (here != KVBM_OK) return here;
    const bool wanted = std::any_of(session->parts.begin(), session->parts.end(), [&](const auto& p) {
      return p.component == component && layer >= p.shard.first_layer && layer - p.shard.first_layer < p.shard.layers;
    });
    if (!wanted) return fail(err, Code::invalid_argument, "this layer of this component is not wanted");
    const std::pair<uint32_t, uint32_t> one{component, layer};
    return fail(err, session->state->wait(session->tenancy->context->executor->clock(), timeout_ns, &one));
  });
}

kvbm_status_t kvbm_session_abort(kvbm_session_t* session, const char* reason) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (session == nullptr) return kvbm::capi::invalid("session is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*session->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    return kvbm::capi::to_c(session->receipt->abort(reason != nullptr ? reason : "").code());
  });
}

void kvbm_session_release(kvbm_session_t* session) {
  if (session == nullptr || kvbm::capi::forked(*session->tenancy)) return;
  const kvbm::MemoryWait no_error_path;  // without the abort the manager waits for the lent blocks
  (void)kvbm_session_abort(session, "its handle was released");
  delete session;
}

}  // extern "C"
