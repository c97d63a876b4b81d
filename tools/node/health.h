// The pages of `kvbm node --http`: /healthz, /readyz, /metrics, and as JSON /peers and /tiers. Each shows the
// member's current state.
#pragma once

#include <string>

#include "node/http_server.h"
#include "node/member.h"

namespace kvbm::node {

// Returns their paths, with commas.
std::string health_pages();
// `member` must outlive the server's last page.
void add_health_pages(HttpServer& server, const Member& member);

}  // namespace kvbm::node
