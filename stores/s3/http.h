// Settings that all requests have in common, and small synchronous requests.
#pragma once

#include <curl/curl.h>

#include <string>

#include "fetch.h"

namespace kvbm_s3 {

// Initialises libcurl once per process.
void init_curl();
// Sets no signals, no redirects, HTTP 1.1 alone, and the certificates of the settings.
void set_common(CURL* easy, bool verifies, const std::string& ca_file);

FetchAnswer fetch(const FetchRequest& request);

}  // namespace kvbm_s3
