#include "copy/tcp/tcp_transport.h"
#include "support/transport_contract.h"

namespace kvbm::test::tcp_contract_test {

namespace {

// Opens the transport as nodes without a key do: for processes of this user only.
const kvbm_transport_ops_t& own_user_ops() {
  static const kvbm_transport_ops_t table = [] {
    kvbm_transport_ops_t out = copy::tcp::ops();
    out.open = [](const kvbm_transport_options_t* options, const kvbm_transport_host_t* host, kvbm_transport_t** to,
                  char* error, size_t size) {
      kvbm_transport_options_t own = *options;
      own.flags |= KVBM_TRANSPORT_OWN_USER_ONLY;
      return copy::tcp::ops().open(&own, host, to, error, size);
    };
    return out;
  }();
  return table;
}

}  // namespace

KVBM_TRANSPORT_CONTRACT(Tcp, [] { return std::make_unique<SocketWorld>(copy::tcp::ops()); });
KVBM_TRANSPORT_CONTRACT(TcpOfThisUser, [] { return std::make_unique<SocketWorld>(own_user_ops()); });

}  // namespace kvbm::test::tcp_contract_test
