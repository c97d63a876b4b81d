// The UCX module against what every transport has to do, and what is its own: two transports in one process.
#include <gtest/gtest.h>

#ifndef KVBM_UCX_MODULE

#ifndef KVBM_UCX_SKIPPED
#define KVBM_UCX_SKIPPED "UCX was not found when this was configured: no module to test"
#endif

TEST(UcxTransport, is_skipped_here) { GTEST_SKIP() << KVBM_UCX_SKIPPED; }

#else

#include "copy/transport_module.h"
#include "support/transport_contract.h"

namespace kvbm::test::ucx_transport_test {

namespace {

const kvbm_transport_ops_t& ucx() {
  static const auto loaded = copy::load_transport_module(KVBM_UCX_MODULE);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return *Result(loaded).value();
}

}  // namespace

KVBM_TRANSPORT_CONTRACT(Ucx, [] { return std::make_unique<SocketWorld>(ucx()); });

}  // namespace kvbm::test::ucx_transport_test

#endif
