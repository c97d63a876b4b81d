#include "support/member_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/crypto/random.h"
#include "support/child_signal.h"

namespace kvbm::test {

namespace {

constexpr const char* kAsked = "--pool-member";
constexpr auto kStartWithin = std::chrono::seconds(60);

void say(const std::string& text) {
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(4);
}

[[noreturn]] void rest() {
  for (;;) pause();
}

void read_for_ever(PoolMember& member, uint64_t salt, Random& random) {
  const auto second = std::chrono::seconds(1);
  for (;;) {
    std::vector<kvbm_key_t> keys;
    for (size_t i = 0; i < 16; ++i) keys.push_back(PoolMember::key_of(salt, random.below(member.setup().host_blocks)));
    const Loaded one = member.load(keys, second, second);
    if (one.wrong != 0) say("w");
    if (one.right != 0) say("r");
    if (one.right == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void offer_for_ever(PoolMember& member, uint64_t salt) {
  const size_t n = member.slots() / 4;
  for (uint64_t first = 0;; first += n) {
    if (member.put(salt, first, n) != KVBM_OK) continue;
    say(member.offer(salt, first, n) == KVBM_OK ? "o" : "-");
  }
}

// Holds a block in every slot for as long as the process lives.
bool hold_all(PoolMember& member, uint64_t salt) {
  if (member.put(salt, 0, member.slots()) != KVBM_OK) return false;
  const std::vector<kvbm_key_t> keys = PoolMember::keys_of(salt, 0, member.slots());
  kvbm_lookup_options_t options;
  kvbm_lookup_options_init(&options, sizeof options);
  options.mode = KVBM_LOOKUP_EACH;
  options.host_only = 1;
  kvbm_match_t* match = nullptr;
  size_t hits = 0;
  return kvbm_manager_lookup(member.manager(), member.ns(), keys.data(), keys.size(), &options, &match, &hits) ==
             KVBM_OK &&
         hits == keys.size();
}

}  // namespace

std::optional<int> run_member_if_asked(int argc, char** argv) {
  if (argc < 9 || std::strcmp(argv[1], kAsked) != 0) return {};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == 1) return 5;
  const auto role = static_cast<MemberRole>(std::atoi(argv[2]));
  const uint64_t salt = std::strtoull(argv[3], nullptr, 10);
  MemberSetup setup;
  setup.listen = argv[4];
  setup.peers = argv[5];
  setup.name = argv[6];
  setup.block_bytes = std::strtoull(argv[7], nullptr, 10);
  setup.host_blocks = std::strtoull(argv[8], nullptr, 10);
  if (argc > 9) setup.key_file = argv[9];
  std::unique_ptr<PoolMember> member;
  std::string error;
  // Another process may have the port for a moment.
  wait_until([&] { return (member = PoolMember::open(setup, &error)) != nullptr; }, std::chrono::seconds(30));
  if (member == nullptr) {
    std::fprintf(stderr, "member process: %s\n", error.c_str());
    return 6;
  }
  if (role == MemberRole::serve && member->put(salt, 0, setup.host_blocks) != KVBM_OK) return 7;
  if (role == MemberRole::full && !hold_all(*member, salt)) return 8;
  say(member->address() + "\n");
  if (role == MemberRole::serve || role == MemberRole::take || role == MemberRole::full) rest();
  wait_until([&] { return member->ready() != 0; });
  SystemRandom random;
  if (role == MemberRole::read) read_for_ever(*member, salt, random);
  offer_for_ever(*member, salt);
  return 0;
}

bool MemberProcess::start(MemberRole role, const MemberSetup& setup, uint64_t salt) {
  kill_it();
  address_.clear();
  said_.clear();
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return false;
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  std::vector<std::string> arguments = {"/proc/self/exe",
                                        kAsked,
                                        std::to_string(static_cast<int>(role)),
                                        std::to_string(salt),
                                        setup.listen,
                                        setup.peers,
                                        setup.name,
                                        std::to_string(setup.block_bytes),
                                        std::to_string(setup.host_blocks),
                                        setup.key_file};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
  const int failed = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(fds[1]);
  pipe_ = fds[0];
  if (failed != 0) {
    pid_ = -1;
    return false;
  }
  const bool up = wait_until(
      [&] {
        read_more();
        const size_t end = said_.find('\n');
        if (end == std::string::npos) return false;
        address_ = said_.substr(0, end);
        said_.erase(0, end + 1);
        return true;
      },
      kStartWithin);
  return up;
}

void MemberProcess::read_more() {
  std::array<char, 4096> some{};
  for (ssize_t n = 0; pipe_ >= 0 && (n = read(pipe_, some.data(), some.size())) > 0;) {
    said_.append(some.data(), static_cast<size_t>(n));
  }
}

size_t MemberProcess::count(char letter) {
  read_more();
  return static_cast<size_t>(std::count(said_.begin(), said_.end(), letter));
}

void MemberProcess::signal(int number) const { signal_child(pid_, number); }

void MemberProcess::kill_it() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  read_more();
  if (pipe_ >= 0) close(pipe_);
  pipe_ = -1;
}

}  // namespace kvbm::test
