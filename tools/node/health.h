// The pages of `kvbm node --http`: /healthz, /readyz, /metrics, and as JSON /peers and /tiers, each from the member as
// it is now.
#pragma once

#include <string>

#include "node/http_server.h"
#include "node/member.h"

namespace kvbm::node {

// Their paths, with commas.
std::string health_pages();
// `member` outlives the server's last page.
void add_health_pages(HttpServer& server, const Member& member);

}  // namespace kvbm::node
