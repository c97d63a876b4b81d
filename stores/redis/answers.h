// Translates a server's error into a status of the table and a clause for people.
#pragma once

#include <string>
#include <string_view>

#include "kvbm_plugin.h"

namespace kvbm_redis {

struct Verdict {
  kvbm_status_t status = KVBM_OK;
  std::string clause;  // the server's answer, and the remedy
  // True if the answer comes from another program than Redis. Opening a store fails then, because this does not pass.
  bool is_no_redis = false;
  // The connection leads to the wrong server; another may lead to the right one.
  bool closes = false;
};

// Judges an error. `where` names the server in clauses. Secrets that the server repeats are left out.
Verdict judge_error(std::string_view error, const std::string& where);
// Judges bytes that are no reply.
Verdict judge_garbage(std::string_view line, const std::string& where, bool is_tls);

// Reads "MOVED 3999 127.0.0.1:6381" and "ASK ...". Returns false for another error, or one that makes no sense.
struct Redirect {
  bool is_ask = false;
  unsigned slot = 0;
  std::string host;  // "": the host that sent the redirect
  uint16_t port = 0;
};
bool read_redirect(std::string_view error, Redirect* out);

// Returns the cluster slot of a key. Keys of this store have no braces.
unsigned slot_of(std::string_view key);

// Returns the text as printable ASCII, at most `room` bytes.
std::string for_people(std::string_view text, size_t room);

}  // namespace kvbm_redis
