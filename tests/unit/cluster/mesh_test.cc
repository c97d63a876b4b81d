#include "cluster/mesh.h"

#include <gtest/gtest.h>

namespace kvbm::cluster {
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
  EXPECT_TRUE(check_mesh_options(options).ok());
  options.peers = {"no address"};
  EXPECT_NE(check_mesh_options(options).message().find("no address"), std::string::npos);
}

}  // namespace
}  // namespace kvbm::cluster
