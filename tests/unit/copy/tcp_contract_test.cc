#include "copy/tcp/tcp_transport.h"
#include "support/transport_contract.h"

namespace kvbm::test::tcp_contract_test {

KVBM_TRANSPORT_CONTRACT(Tcp, [] { return std::make_unique<SocketWorld>(copy::tcp::ops()); });

}  // namespace kvbm::test::tcp_contract_test
