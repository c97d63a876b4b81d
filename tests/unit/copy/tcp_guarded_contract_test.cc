// The contract of all transports where everything has a tag, and where it is enciphered as well.
#include "copy/tcp/tcp_transport.h"
#include "support/transport_contract.h"

namespace kvbm::test::tcp_guarded_contract_test {

KVBM_TRANSPORT_CONTRACT(TcpAuthenticated,
                        [] { return std::make_unique<SocketWorld>(copy::tcp::ops(), copy::Protection::authenticate); });
KVBM_TRANSPORT_CONTRACT(TcpEncrypted,
                        [] { return std::make_unique<SocketWorld>(copy::tcp::ops(), copy::Protection::encrypt); });

}  // namespace kvbm::test::tcp_guarded_contract_test
