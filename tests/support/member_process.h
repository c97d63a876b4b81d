// A PoolMember in a process of its own, to be killed and frozen. The test's program runs itself again as that member:
// its main() calls run_member_if_asked() first. The member writes its address once it listens and a letter for each
// thing that has happened, and dies with its parent.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "support/pool_member.h"

namespace kvbm::test {

enum class MemberRole : uint8_t {
  serve,  // has blocks [0, host_blocks) of `salt` and gives them
  read,   // loads random ones of these from its peer for ever; 'r' for each load with right blocks, 'w' for a wrong one
  offer,  // makes blocks and offers them to its peer for ever; 'o' for each offer that was taken
  take,   // has nothing and takes what it is offered
  full,   // as serve, and holds all of them: it has no room for others
};

// If the program was started as a member, runs it until it is killed and gives its exit status.
std::optional<int> run_member_if_asked(int argc, char** argv);

class MemberProcess {
 public:
  MemberProcess() = default;
  ~MemberProcess() { kill_it(); }
  MemberProcess(const MemberProcess&) = delete;
  MemberProcess& operator=(const MemberProcess&) = delete;

  // Starts the process. Returns false if it does not listen within a minute. If a process that just ended had the port,
  // tries for a while.
  bool start(MemberRole role, const MemberSetup& setup, uint64_t salt);
  void signal(int number) const;
  // Kills the process with SIGKILL and waits for its end.
  void kill_it();
  // Returns how often the process has written that letter so far.
  size_t count(char letter);

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void read_more();

  pid_t pid_ = -1;
  int pipe_ = -1;
  std::string address_;
  std::string said_;  // after the address
};

}  // namespace kvbm::test
