// The contract of every transport behind copy/transport_abi.h, as one suite of tests:
//
//   KVBM_TRANSPORT_CONTRACT(Tcp, [] { return std::make_unique<SocketWorld>(tcp::ops()); });
//
// inside namespace kvbm::test. Two sides in one process, driven by the test's thread. KVBMTEST_SEED chooses the seed of
// the random tests; it is printed.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/suite_file.h"
#include "support/transport_side.h"

namespace kvbm::test {

// The world in which the two sides live: their transports and addresses.
class TransportWorld {
 public:
  virtual ~TransportWorld() = default;
  // Returns the table that side 0 or 1 opens next.
  virtual const kvbm_transport_ops_t& ops(int side) = 0;
  virtual std::string listen_address(int side) = 0;
  // Returns an address of this world at which no transport listens.
  virtual std::string deserted_address() = 0;
  // Waits until some open transport has work. Returns false if none ever will. brief: it is likely that nothing
  // happens.
  virtual bool wait(const std::vector<copy::Transport*>& transports, bool brief) = 0;
  // Returns how connections are protected once both sides have admitted each other.
  [[nodiscard]] virtual copy::Protection protection() const { return copy::Protection::off; }
};

// Transports that sleep on descriptors; 127.0.0.1.
class SocketWorld final : public TransportWorld {
 public:
  explicit SocketWorld(const kvbm_transport_ops_t& ops, copy::Protection protection = copy::Protection::off)
      : ops_(ops), protection_(protection) {}
  const kvbm_transport_ops_t& ops(int) override { return ops_; }
  std::string listen_address(int) override { return "127.0.0.1:0"; }
  std::string deserted_address() override;
  bool wait(const std::vector<copy::Transport*>& transports, bool brief) override;
  [[nodiscard]] copy::Protection protection() const override { return protection_; }

 private:
  const kvbm_transport_ops_t& ops_;
  const copy::Protection protection_;
};

using WorldFactory = std::function<std::unique_ptr<TransportWorld>()>;

class TransportContract : public testing::TestWithParam<WorldFactory> {
 protected:
  void SetUp() override;
  // Destroys the two sides while the test still runs, because they check the recorded events at their end.
  void TearDown() override;

  void open(const copy::TransportOptions& options = {});
  // Connects side a to side b. Both admit each other unless `admit` is false, and protect the connection as the world
  // says.
  void connect(bool admit = true);
  void protect();
  // Drives both sides until `done`; fails the test when that does not come in time.
  void run_until(const std::function<bool()>& done, const char* what);
  // Runs one round of both sides. Returns true if one of them has more to do.
  bool step();
  bool wait(bool brief);
  // Runs some rounds, in which events that must not happen would show.
  void settle(int rounds = 20);
  // Several posts on one side, pushes of the other, of different sizes.
  void start_traffic(int n, uint64_t most_bytes);
  static uint64_t seed();

  std::unique_ptr<TransportWorld> world_;
  TransportSide a_{"a"}, b_{"b"};
  std::string address_;  // of b
  copy::Peer ab_ = 0;    // b, as a calls it
  copy::Peer ba_ = 0;
};

// Makes the linker include the files with the tests.
bool use_transport_contract();
bool use_transport_contract_bulk();
bool use_transport_contract_ends();

#define KVBM_TRANSPORT_CONTRACT(name, factory)                                                                      \
  const bool used_##name = ::kvbm::test::use_transport_contract() && ::kvbm::test::use_transport_contract_bulk() && \
                           ::kvbm::test::use_transport_contract_ends() &&                                           \
                           ::kvbm::test::belongs_to(#name "/TransportContract", __FILE__);                          \
  INSTANTIATE_TEST_SUITE_P(name, TransportContract, testing::Values(::kvbm::test::WorldFactory(factory)))

}  // namespace kvbm::test
