// Stands in for prefill->decode sessions in a build without them: a node makes none.
#include "capi/absent/absent.h"
#include "cluster/mesh/session_host.h"
#include "manager/session/node_sessions.h"

namespace kvbm::manager {

std::shared_ptr<NodeSessions> NodeSessions::create(const Environment&, Options, cluster::Mesh&,
                                                   copy::TransportThread&) {
  return nullptr;
}
cluster::SessionCounts NodeSessions::counts() const { return {}; }
void NodeSessions::close() {}
void NodeSessions::detach() {}

}  // namespace kvbm::manager

using kvbm::capi::absent;
using kvbm::capi::kNoSessions;

extern "C" {

kvbm_status_t kvbm_offer_options_init(kvbm_offer_options_t*, uint32_t) { return absent(nullptr, kNoSessions); }
kvbm_status_t kvbm_offer_open(kvbm_cache_t*, const kvbm_request_id_t*, const uint32_t*, size_t,
                              const kvbm_offer_options_t*, kvbm_queue_t*, uint64_t, kvbm_offer_t**, kvbm_error_t* err) {
  return absent(err, kNoSessions);
}
kvbm_status_t kvbm_offer_publish(kvbm_offer_t*, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t, kvbm_error_t* err) {
  return absent(err, kNoSessions);
}
kvbm_status_t kvbm_offer_publish_on_stream(kvbm_offer_t*, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t, void*,
                                           kvbm_error_t* err) {
  return absent(err, kNoSessions);
}
kvbm_status_t kvbm_offer_publish_all(kvbm_offer_t*, kvbm_error_t* err) { return absent(err, kNoSessions); }
kvbm_status_t kvbm_offer_abort(kvbm_offer_t*, const char*) { return absent(nullptr, kNoSessions); }
kvbm_status_t kvbm_offer_wait(kvbm_offer_t*, uint64_t, kvbm_error_t* err) { return absent(err, kNoSessions); }
void kvbm_offer_release(kvbm_offer_t*) {}

kvbm_status_t kvbm_session_options_init(kvbm_session_options_t*, uint32_t) { return absent(nullptr, kNoSessions); }
kvbm_status_t kvbm_session_open(kvbm_cache_t*, const kvbm_request_id_t*, const uint32_t*, size_t, const kvbm_source_t*,
                                size_t, const kvbm_session_options_t*, kvbm_queue_t*, uint64_t, kvbm_session_t**,
                                kvbm_error_t* err) {
  return absent(err, kNoSessions);
}
kvbm_status_t kvbm_session_wait(kvbm_session_t*, uint64_t, kvbm_error_t* err) { return absent(err, kNoSessions); }
kvbm_status_t kvbm_session_wait_layer(kvbm_session_t*, uint32_t, uint32_t, uint64_t, kvbm_error_t* err) {
  return absent(err, kNoSessions);
}
kvbm_status_t kvbm_session_abort(kvbm_session_t*, const char*) { return absent(nullptr, kNoSessions); }
void kvbm_session_release(kvbm_session_t*) {}

}  // extern "C"
