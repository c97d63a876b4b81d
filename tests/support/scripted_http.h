// An HTTP server that gives the answers that a test prescribes. It stands for a server that misbehaves, or for the
// metadata server of a cloud.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kvbm::test {

struct HttpRequest {
  std::string method;
  std::string target;                          // path and query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct HttpAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  long declared_bytes = -1;  // Content-Length, where it is not the body's
  enum class End { keeps, closes, hangs, drips } end = End::keeps;
  // closes: the connection ends after the body. hangs: nothing follows until the server ends. drips: the body follows
  // one byte every 20 ms.
};

class ScriptedHttp {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;  // on the server's threads
  explicit ScriptedHttp(Handler handler);
  ~ScriptedHttp();
  ScriptedHttp(const ScriptedHttp&) = delete;
  ScriptedHttp& operator=(const ScriptedHttp&) = delete;

  [[nodiscard]] std::string url() const;  // http://127.0.0.1:PORT
  // Returns all requests received so far.
  std::vector<HttpRequest> requests();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvbm::test
