#include "manager/node/node_transport.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cluster/mesh/mesh.h"
#include "support/temp_dir.h"

namespace kvbm::manager::node_transport_test {
namespace {

void add_port(const std::string& folder, const std::string& device, int port, const std::string& state) {
  const std::string at = folder + "/" + device + "/ports/" + std::to_string(port);
  std::filesystem::create_directories(at);
  std::ofstream(at + "/state") << state << "\n";
}

TEST(NodeTransport, only_active_ports_count_as_rdma) {
  const test::TempDir folder;
  EXPECT_EQ(active_rdma(folder.path()), "");
  EXPECT_EQ(active_rdma(folder.path() + "/nothing"), "");
  add_port(folder.path(), "mlx5_1", 1, "1: DOWN");
  EXPECT_EQ(active_rdma(folder.path()), "");
  add_port(folder.path(), "mlx5_1", 2, "4: ACTIVE");
  add_port(folder.path(), "mlx5_0", 1, "4: ACTIVE");
  EXPECT_EQ(active_rdma(folder.path()), "mlx5_0:1,mlx5_1:2");
}

TEST(NodeTransport, ucx_goes_beyond_this_machine_by_named_devices_alone) {
  NodeOptions options;
  options.transport = "ucx";
  options.ucx_module = "/nonexistent";
  options.listen = "10.0.0.1:7000";
  EXPECT_EQ(choose_transport(options).status().code(), Code::bad_config);
  options.listen = "127.0.0.1:7000";
  options.peers = {"127.0.0.1:7001", "[2001:db8::1]:7000"};
  const Status refused = choose_transport(options).status();
  EXPECT_EQ(refused.code(), Code::bad_config);
  EXPECT_NE(refused.message().find("node.ucx_devices"), std::string::npos) << refused.message();
  options.ucx_devices = "mlx5_0:1";
  options.key_file = "/a/key";
  const Status missing = choose_transport(options).status();
  EXPECT_NE(missing.message().find("/nonexistent"), std::string::npos) << missing.message();
}

// UCX has no connection for which the kernel could name the peer's user.
TEST(NodeTransport, ucx_is_for_nodes_with_a_key) {
  NodeOptions options;
  options.transport = "ucx";
  options.ucx_module = "/nonexistent";
  options.listen = "127.0.0.1:7000";
  const Status refused = choose_transport(options).status();
  EXPECT_EQ(refused.code(), Code::bad_config);
  EXPECT_NE(refused.message().find("node.key_file"), std::string::npos) << refused.message();
  options.key_file = "/a/key";
  const Status missing = choose_transport(options).status();
  EXPECT_NE(missing.message().find("/nonexistent"), std::string::npos) << missing.message();
}

TEST(NodeTransport, without_a_key_sockets_are_for_this_users_processes_alone) {
  NodeOptions options;
  options.transport = "tcp";
  EXPECT_TRUE(choose_transport(options).value().options.own_user_only);
  options.key_file = "/a/key";
  EXPECT_FALSE(choose_transport(options).value().options.own_user_only);
}

TEST(NodeTransport, sockets_are_always_there_and_say_why) {
  NodeOptions options;
  options.transport = "tcp";
  const auto tcp = choose_transport(options);
  ASSERT_TRUE(tcp.ok());
  EXPECT_NE(tcp.value().ops, nullptr);
  EXPECT_EQ(tcp.value().why.rfind("tcp: ", 0), 0U);
  EXPECT_TRUE(tcp.value().protects);
}

copy::Protection settled(const NodeOptions& options, const NodeTransport& transport, bool sealed = false) {
  cluster::MeshOptions mesh;
  const Status s = settle_protection(options, transport, sealed, mesh);
  EXPECT_TRUE(s.ok()) << s.message();
  return mesh.self.protect;
}

TEST(NodeTransport, links_over_sockets_are_authenticated_where_there_is_a_key) {
  using copy::Protection;
  NodeTransport tcp;
  tcp.protects = true;
  NodeOptions options;
  EXPECT_EQ(settled(options, tcp), Protection::off);
  options.key_file = "/key";
  EXPECT_EQ(settled(options, tcp), Protection::authenticate);
  for (const Protection wish : {Protection::off, Protection::authenticate, Protection::encrypt}) {
    options.protect = wish;
    EXPECT_EQ(settled(options, tcp), wish);
  }
  // Sealed records do not protect the other messages on sockets.
  cluster::MeshOptions mesh;
  ASSERT_TRUE(settle_protection(options, tcp, true, mesh).ok());
  EXPECT_FALSE(mesh.unprotected_beyond);
  options.trusted_network = true;
  ASSERT_TRUE(settle_protection(options, tcp, false, mesh).ok());
  EXPECT_TRUE(mesh.unprotected_beyond);
}

TEST(NodeTransport, ucx_goes_beyond_this_machine_sealed_or_over_a_trusted_network_alone) {
  using copy::Protection;
  const NodeTransport ucx;
  NodeOptions options;
  options.key_file = "/key";
  EXPECT_EQ(settled(options, ucx), Protection::off);  // loopback alone
  options.ucx_devices = "mlx5_0:1";
  cluster::MeshOptions mesh;
  const Status refused = settle_protection(options, ucx, false, mesh);
  EXPECT_EQ(refused.code(), Code::bad_config);
  for (const char* remedy : {"node.transport=tcp", "seal.key_file", "node.trusted_network=on"}) {
    EXPECT_NE(refused.message().find(remedy), std::string::npos) << refused.message();
  }
  ASSERT_TRUE(settle_protection(options, ucx, true, mesh).ok());
  EXPECT_TRUE(mesh.unprotected_beyond);
  options.trusted_network = true;
  EXPECT_EQ(settled(options, ucx), Protection::off);
  for (const Protection wish : {Protection::authenticate, Protection::encrypt}) {
    options.protect = wish;
    EXPECT_EQ(settle_protection(options, ucx, true, mesh).code(), Code::bad_config);
  }
}

}  // namespace
}  // namespace kvbm::manager::node_transport_test
