// Measures blocks loaded from another node over protected links, through the public interface.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct NodeProtectOptions {
  int rounds = 15;
  bool quiet = false;
};

// Three pairs of nodes with one key load 64 MiB of blocks of a size over loopback TCP, in turns with each other and
// with sockets. node.protect is off, authenticate and encrypt. Rows, each against a measurement in the same turns:
//   node.tcp.<mode>.<size>              blocking sockets, unprotected and unverified
//   node.tcp.<mode>_to_off.<size>       the pair that is off
//   node.tcp.<mode>_to_openssl.<size>   blocking sockets with OpenSSL's GMAC or AES-256-GCM in their two threads
// node.openssl.gmac and .aes_256_gcm are OpenSSL alone on one thread, in pieces of 128 KiB.
Result<std::vector<Row>> bench_node_protect(const NodeProtectOptions& options);

}  // namespace kvbm::benchmark
