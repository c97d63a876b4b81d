#include "cluster/mesh/mesh.h"

#include <gtest/gtest.h>

namespace kvbm::cluster::mesh_test {
namespace {

TEST(MeshOptions, without_a_key_nothing_beyond_this_machine) {
  MeshOptions options;
  options.listen = "127.0.0.1:7000";
  options.peers = {"[::1]:7000", "localhost:7001"};
  EXPECT_TRUE(check_mesh_options(options).ok());
  options.listen = "0.0.0.0:7000";
  EXPECT_EQ(check_mesh_options(options).code(), Code::bad_config);
  options.listen = "";
  options.peers = {"10.0.0.1:7000"};
  EXPECT_EQ(check_mesh_options(options).code(), Code::bad_config);
  EXPECT_NE(check_mesh_options(options).message().find("10.0.0.1:7000"), std::string::npos);
  options.key = SharedKey{};
  options.self.protect = copy::Protection::authenticate;
  EXPECT_TRUE(check_mesh_options(options).ok());
  options.peers = {"no address"};
  EXPECT_NE(check_mesh_options(options).message().find("no address"), std::string::npos);
}

TEST(MeshOptions, without_protection_nothing_beyond_this_machine_unless_the_network_is_trusted) {
  MeshOptions options;
  options.key = SharedKey{};
  options.listen = "127.0.0.1:7000";
  options.peers = {"[::1]:7000"};
  EXPECT_TRUE(check_mesh_options(options).ok());
  for (const bool listens : {true, false}) {
    options.listen = listens ? "0.0.0.0:7000" : "127.0.0.1:7000";
    options.peers = {listens ? "127.0.0.1:7001" : "10.0.0.1:7000"};
    options.unprotected_beyond = false;
    const Status refused = check_mesh_options(options);
    EXPECT_EQ(refused.code(), Code::bad_config);
    for (const char* part : {"node.protect", "node.trusted_network=on", listens ? "0.0.0.0:7000" : "10.0.0.1:7000"}) {
      EXPECT_NE(refused.message().find(part), std::string::npos) << part << ": " << refused.message();
    }
    options.unprotected_beyond = true;
    EXPECT_TRUE(check_mesh_options(options).ok());
  }
  options = {};
  options.self.protect = copy::Protection::encrypt;
  EXPECT_NE(check_mesh_options(options).message().find("node.key_file"), std::string::npos);
}

TEST(MeshOptions, an_address_that_is_none_is_named_before_a_key_is_asked_for) {
  const auto expect = [](const MeshOptions& options, const char* named, const char* remedy) {
    const Status refused = check_mesh_options(options);
    EXPECT_EQ(refused.code(), Code::bad_config);
    EXPECT_NE(refused.message().find(named), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find(remedy), std::string::npos) << refused.message();
    EXPECT_EQ(refused.message().find("key_file"), std::string::npos) << refused.message();
  };
  for (const char* address : {"banana", "10.0.0.1:", "127.0.0.1:99999", ":7000", "::1:7000"}) {
    MeshOptions listening;
    listening.listen = address;
    expect(listening, address, "HOST:PORT");
    MeshOptions dialling;
    dialling.peers = {address};
    expect(dialling, address, "HOST:PORT");
  }
  MeshOptions options;
  options.peers = {"nosuchhost.invalid:70"};
  expect(options, "node.peers is \"nosuchhost.invalid:70\"", "give the number");
  options.peers = {"127.0.0.1:0"};
  expect(options, "127.0.0.1:0", "port");
  options.peers = {};
  options.listen = "nosuchhost.invalid:70";
  expect(options, "node.listen is \"nosuchhost.invalid:70\"", "give the number");
  options.listen = "127.0.0.1:0";
  EXPECT_TRUE(check_mesh_options(options).ok());
}

}  // namespace
}  // namespace kvbm::cluster::mesh_test
