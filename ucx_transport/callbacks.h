// Callbacks for UCX. No exception leaves them. They do not call the host, and call UCX only as its documentation
// allows inside a callback (receiving the data of the active message at hand, freeing a finished request).
#pragma once

#include <ucp/api/ucp.h>

#include "base/status.h"

namespace kvbm::ucx {

class Transport;
struct Operation;
struct Peer;

struct Callbacks {
  static Status install(Transport& transport);
  // Return the parameters of a request that ends in `operation`.
  static ucp_request_param_t sending(Operation* operation, uint32_t flags);
  static ucp_request_param_t receiving(Operation* operation);

  static void sent(void* request, ucs_status_t status, void* operation);
  static void landed(void* request, ucs_status_t status, size_t bytes, void* operation);
  static void knock(ucp_conn_request_h request, void* listener);
  static void broken(void* transport, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t control(void* transport, const void* head, size_t head_size, void* data, size_t size,
                              const ucp_am_recv_param_t* param);
  static ucs_status_t message(void* transport, const void* head, size_t head_size, void* data, size_t size,
                              const ucp_am_recv_param_t* param);
  static ucs_status_t bulk(void* transport, const void* head, size_t head_size, void* data, size_t size,
                           const ucp_am_recv_param_t* param);

 private:
  // Runs the work of a callback. If it runs out of memory, the connection of `peer` ends; null: of none.
  template <class Body>
  static void guarded(Transport& transport, Peer* peer, Body&& body) noexcept;
};

}  // namespace kvbm::ucx
