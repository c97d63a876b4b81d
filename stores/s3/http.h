// What all requests have in common, and the small ones that are waited for.
#pragma once

#include <curl/curl.h>

#include <string>

#include "fetch.h"

namespace kvbm_s3 {

// libcurl's own initialisation, once in a process.
void init_curl();
// No signals, no redirects, HTTP 1.1 alone, and certificates as they are given.
void set_common(CURL* easy, bool verifies, const std::string& ca_file);

FetchAnswer fetch(const FetchRequest& request);

}  // namespace kvbm_s3
