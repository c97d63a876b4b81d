// What an error of the server's means: a status of the table's, and a clause for people.
#pragma once

#include <string>
#include <string_view>

#include "kvbm_plugin.h"

namespace kvbm_redis {

struct Verdict {
  kvbm_status_t status = KVBM_OK;
  std::string clause;  // what was answered, and the remedy
  // Not a passing state but another program than Redis: refused when a store is opened.
  bool is_no_redis = false;
  // The connection leads to the wrong server; another may lead to the right one.
  bool closes = false;
};

// `where` names the server in clauses. Secrets that the server repeats are left out.
Verdict judge_error(std::string_view error, const std::string& where);
// Of bytes that are no reply.
Verdict judge_garbage(std::string_view line, const std::string& where, bool is_tls);

// "MOVED 3999 127.0.0.1:6381" and "ASK ...". False: another error, or one that makes no sense.
struct Redirect {
  bool is_ask = false;
  unsigned slot = 0;
  std::string host;  // "": that of the server that says so
  uint16_t port = 0;
};
bool read_redirect(std::string_view error, Redirect* out);

// The slot of a cluster that has a key; our keys have no braces.
unsigned slot_of(std::string_view key);

// Printable ASCII, at most `room` bytes.
std::string for_people(std::string_view text, size_t room);

}  // namespace kvbm_redis
