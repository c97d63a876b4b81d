// Passes UCX's log lines to the open hosts; UCX itself would print them on the process's standard output.
#pragma once

#include "copy/transport_abi.h"

namespace kvbm::ucx {

// Between the two calls the host gets warnings and errors, from any thread of UCX. Both are idempotent.
void start_log(const kvbm_transport_host_t* host);
void stop_log(const kvbm_transport_host_t* host);

}  // namespace kvbm::ucx
