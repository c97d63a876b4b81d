// Checks whether nodes of this machine can read each other's host memory in place.
#include <sys/socket.h>

#include "base/memory/shared_memory.h"
#include "copy/local/peer_process.h"
#include "doctor/finding.h"
#include "manager/node/local_node.h"

namespace kvbm::doctor {

namespace {

constexpr size_t kTried = size_t{2} << 20;

Status try_sharing() {
  auto memory = make_shared_memory(kTried, false);
  if (!memory.ok()) return memory.status();
  return seal_shared_memory(memory.value().get(), kTried);
}

Status try_watching() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return {Code::no_memory, "no descriptors left"};
  const Fd one(ends[0]);
  const Fd two(ends[1]);
  return copy::local::peer_process(one.get()).status();
}

}  // namespace

void probe_same_host(Findings& out) {
  const std::string advice = "nodes of this machine use TCP between them";
  const std::pair<const char*, Status> tried[] = {{"shared memory", try_sharing()},
                                                  {"watching a process", try_watching()},
                                                  {"sockets' directory", manager::local_directory("").status()}};
  for (const auto& [name, status] : tried) {
    out.push_back({"same host", name, status.ok() ? State::ok : State::limited,
                   status.ok() ? "works" : status.message(), status.ok() ? "" : advice});
  }
}

}  // namespace kvbm::doctor
