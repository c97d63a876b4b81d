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

struct StubRequest {
  std::string method;
  std::string target;                          // path and query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct StubAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  long declared_bytes = -1;  // Content-Length, where it is not the body's
  enum class End { keeps, closes, hangs, drips } end = End::keeps;
  // closes: the connection ends after the body. hangs: nothing follows until the stub ends. drips: the body follows one
  // byte every 20 ms.
};

class HttpStub {
 public:
  using Handler = std::function<StubAnswer(const StubRequest&)>;  // on the stub's threads
  explicit HttpStub(Handler handler);
  ~HttpStub();
  HttpStub(const HttpStub&) = delete;
  HttpStub& operator=(const HttpStub&) = delete;

  [[nodiscard]] std::string url() const;  // http://127.0.0.1:PORT
  // Returns all requests received so far.
  std::vector<StubRequest> requests();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvbm::test
