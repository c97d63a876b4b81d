// A pool of Mooncake's on the loopback: mooncake_master, and mooncake_client, which lends memory. Both end with the
// test.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "support/faulty_proxy.h"
#include "support/temp_dir.h"

namespace kvbm::test {

class MooncakePool {
 public:
  // The Python that has the package, or "": of the environment that KVBMTEST_MOONCAKE names, or of tools/setup
  // --all-stores.
  static std::string python();

  MooncakePool() = default;
  ~MooncakePool() { stop(); }
  MooncakePool(const MooncakePool&) = delete;
  MooncakePool& operator=(const MooncakePool&) = delete;

  // Starts master and client. `lent`: memory of the client, "512 MB". Returns false if they do not answer within a
  // minute.
  bool start(const std::string& lent = "512 MB");
  void stop();
  void kill_master();
  void freeze_master();
  void thaw_master();
  bool start_master();  // empty, as it always begins
  void kill_lender();
  bool start_lender();
  // Returns the master's address, which is the same after a restart.
  [[nodiscard]] std::string address() const { return proxy_ ? proxy_->address() : ""; }
  // Names of all objects, as the master tells them.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::string log() const;

 private:
  pid_t launch(const std::string& program, const std::vector<std::string>& options) const;
  [[nodiscard]] std::string ask(const std::string& path) const;

  TempDir directory_;
  std::string lent_;
  std::unique_ptr<FaultyProxy> proxy_;
  int admin_port_ = 0;
  pid_t master_ = -1;
  pid_t lender_ = -1;
};

}  // namespace kvbm::test
