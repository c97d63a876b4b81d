// The contract of all transports, tested on the local link.
#include "support/temp_dir.h"
#include "support/transport_contract.h"

#include "copy/local/unix_transport.h"

namespace kvbm::test::contract_test {

namespace {

// A world in which addresses are paths in a directory instead of ports.
class PathWorld final : public TransportWorld {
 public:
  const kvbm_transport_ops_t& ops(int) override { return *copy::local::unix_transport_ops(); }
  std::string listen_address(int side) override { return temp_.path() + "/sock" + std::to_string(side); }
  std::string deserted_address() override { return temp_.path() + "/nobody"; }
  bool wait(const std::vector<copy::Transport*>& transports, bool brief) override {
    return sockets_.wait(transports, brief);
  }

 private:
  TempDir temp_;
  SocketWorld sockets_{*copy::local::unix_transport_ops()};
};

}  // namespace

KVBM_TRANSPORT_CONTRACT(Local, [] { return std::make_unique<PathWorld>(); });

}  // namespace kvbm::test::contract_test
