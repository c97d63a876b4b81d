// A process of a shared tier set, for tests: a child that executes its parent's commands from a socket, one at a time,
// and reports the results. The parent never uses the library, so each member starts like an engine's process. The
// parent may stop, kill and continue members at any moment, and send one command to several at once.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kvbm.h"
#include "support/child_signal.h"
#include "support/opaque_store.h"

namespace kvbm::test {

inline uint64_t now_ns() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

struct ShareCommand {
  enum What : uint32_t { open, store, flush, look, role, invalidate, drop, in_child, fill, empty, leave };
  uint32_t what = role;
  uint32_t host_only = 0;
  uint64_t first = 0;     // blocks by number
  uint64_t n = 0;         // flush: so many at once; fill: leaves room for so many
  uint64_t bytes = 8192;  // of a block
  uint64_t disk_bytes = 256ULL << 20;
  uint64_t write_bytes_per_s = 0;  // of the disk; 0: as it can
  uint64_t timeout_ns = KVBM_FOREVER;
  uint32_t keep_below = 0;  // look: what comes is not kept in this process's host
  char directory[200] = {};
};

struct ShareReply {
  int32_t status = 0;
  uint32_t role = 0;
  uint64_t pid = 0;    // of the owner
  uint64_t done = 0;   // store: ok; look: found and loaded; flush: said KVBM_PARTIAL; fill: blocks
  uint64_t gone = 0;   // store: items without an owner
  uint64_t wrong = 0;  // look: loaded with other bytes than were stored
  uint64_t took_ns = 0;
  uint64_t clients = 0;
  uint64_t takeovers = 0;
  uint64_t in_place_bytes = 0;  // read out of owners' memory so far
  uint64_t not_kept = 0;        // blocks that flushes did not find where they are to be
  char message[512] = {};
};

// The child's side.
class ShareWorker {
 public:
  [[noreturn]] static void run(int socket) {
    ShareWorker worker;
    ShareCommand command;
    while (read(socket, &command, sizeof command) == static_cast<ssize_t>(sizeof command)) {
      ShareReply reply;
      const uint64_t began = now_ns();
      worker.follow(command, reply);
      reply.took_ns = now_ns() - began;
      if (write(socket, &reply, sizeof reply) != static_cast<ssize_t>(sizeof reply)) break;
      if (command.what == ShareCommand::leave) break;
    }
    _exit(0);
  }

 private:
  static constexpr uint64_t kMost = 64;  // blocks of one store

  void follow(const ShareCommand& command, ShareReply& reply) {
    switch (command.what) {
      case ShareCommand::open:
        return open(command, reply);
      case ShareCommand::store:
        return store(command, reply);
      case ShareCommand::flush:
        return flush(command, reply);
      case ShareCommand::look:
        return look(command, reply);
      case ShareCommand::invalidate:
        return invalidate(reply);
      case ShareCommand::drop:
        return drop(command, reply);
      case ShareCommand::in_child:
        return in_child(reply);
      case ShareCommand::fill:
        return fill(command, reply);
      case ShareCommand::empty:
        return empty();
      case ShareCommand::leave:
        return store_.close();
      default:
        return role(reply);
    }
  }

  void open(const ShareCommand& command, ShareReply& reply) {
    kvbm_tier_t disk{};
    disk.path = command.directory;
    disk.capacity_bytes = command.disk_bytes;
    disk.write_bytes_per_s = command.write_bytes_per_s;
    const kvbm_setting_t settings[] = {{"share", "on"}, {"share_ask", "200ms"}, {"share_directory", command.directory}};
    kvbm_context_options_t context;
    kvbm_context_options_init(&context, sizeof context);
    context.settings = settings;
    context.n_settings = command.host_only != 0 ? 3 : 2;
    if (std::getenv("KVBMTEST_LOG") != nullptr) {
      context.log = [](void*, int32_t, const char* component, const char* text) {
        std::fprintf(stderr, "%d %s: %s\n", getpid(), component, text);
      };
      context.log_level = KVBM_LOG_INFO;
    }
    kvbm_manager_options_t options;
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = command.bytes;
    options.host_capacity_bytes = 8ULL << 20;
    if (command.host_only == 0) {
      options.tiers = &disk;
      options.n_tiers = 1;
    }
    reply.status = store_.open(options, "share test", kMost, &context);
    std::snprintf(reply.message, sizeof reply.message, "%s", store_.error());
    if (store_.manager() != nullptr) role(reply);
  }

  void role(ShareReply& reply) {
    kvbm_share_t share{};
    share.struct_size = sizeof share;
    kvbm_manager_share(store_.manager(), &share);
    reply.role = share.role;
    reply.pid = share.owner_pid;
    reply.clients = share.clients;
    reply.takeovers = share.takeovers;
    reply.in_place_bytes = metric("kvbm_share_in_place_bytes_total ");
    reply.not_kept = metric("kvbm_share_not_kept_total ");
  }

  [[nodiscard]] uint64_t metric(const char* name) const {
    std::string text(1 << 16, '\0');
    size_t n = 0;
    if (kvbm_manager_metrics(store_.manager(), text.data(), text.size(), &n) != KVBM_OK) return 0;
    const size_t at = text.find("\n" + std::string(name));
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 1 + std::strlen(name), nullptr, 10);
  }

  void store(const ShareCommand& command, ShareReply& reply) {
    std::vector<kvbm_key_t> keys;
    std::vector<uint32_t> ids;
    std::vector<kvbm_status_t> status(command.n);
    for (uint64_t i = 0; i < command.n; ++i) {
      store_.fill(command.first + i, store_.block(i));
      keys.push_back(store_.key(command.first + i));
      ids.push_back(static_cast<uint32_t>(i));
    }
    kvbm_store_options_t options;
    kvbm_store_options_init(&options, sizeof options);
    options.unchained = 1;
    options.timeout_ns = command.timeout_ns;
    options.item_status = status.data();
    reply.status = kvbm_cache_store(store_.cache(), keys.data(), ids.data(), keys.size(), &options, nullptr, 0);
    for (const kvbm_status_t s : status) {
      reply.done += s == KVBM_OK ? 1 : 0;
      reply.gone += s == KVBM_ERR_OWNER_GONE ? 1 : 0;
    }
  }

  void flush(const ShareCommand& command, ShareReply& reply) {
    std::vector<kvbm_status_t> status(std::max<uint64_t>(command.n, 1));
    std::vector<std::thread> threads;
    for (kvbm_status_t& one : status) {
      threads.emplace_back([&] { one = kvbm_manager_flush(store_.manager(), command.timeout_ns); });
    }
    for (std::thread& thread : threads) thread.join();
    reply.status = status.front();
    reply.done = static_cast<uint64_t>(std::count(status.begin(), status.end(), KVBM_PARTIAL));
  }

  // Fills the host except for n slots, so that no more than n offered blocks fit. empty() ends that.
  void fill(const ShareCommand& command, ShareReply& reply) {
    for (kvbm_block_t one = 0;
         kvbm_manager_allocate(store_.manager(), store_.ns(), 1, &one, nullptr, 0, nullptr) == KVBM_OK;) {
      filled_.push_back(one);
    }
    const size_t left = std::min<size_t>(command.n, filled_.size());
    kvbm_block_release(store_.manager(), filled_.data() + filled_.size() - left, left);
    filled_.resize(filled_.size() - left);
    reply.done = filled_.size();
  }
  void empty() {
    kvbm_block_release(store_.manager(), filled_.data(), filled_.size());
    filled_.clear();
  }

  void look(const ShareCommand& command, ShareReply& reply) {
    for (uint64_t at = 0; at < command.n; at += kMost) look_some(command, at, reply);
  }

  void look_some(const ShareCommand& command, uint64_t from, ShareReply& reply) {
    const uint64_t n = std::min(kMost, command.n - from);
    std::vector<kvbm_key_t> keys;
    std::vector<uint32_t> ids;
    for (uint64_t i = 0; i < n; ++i) keys.push_back(store_.key(command.first + from + i));
    kvbm_lookup_options_t lookup;
    kvbm_lookup_options_init(&lookup, sizeof lookup);
    lookup.mode = KVBM_LOOKUP_EACH;
    kvbm_match_t* match = nullptr;
    size_t hits = 0;
    const kvbm_status_t found = kvbm_cache_lookup(store_.cache(), keys.data(), n, &lookup, &match, &hits);
    if (found != KVBM_OK) reply.status = found;
    if (match == nullptr) return;
    std::vector<kvbm_match_item_t> items(n);
    kvbm_match_items(match, 0, n, items.data());
    for (uint64_t i = 0; i < n; ++i)
      ids.push_back(items[i].tier == KVBM_NO_TIER ? KVBM_NO_BLOCK : static_cast<uint32_t>(i));
    std::memset(store_.memory().data(), 0xEE, store_.memory().size() * 8);
    std::vector<kvbm_status_t> status(n, KVBM_ERR_MISS);
    kvbm_load_options_t load;
    kvbm_load_options_init(&load, sizeof load);
    load.item_status = status.data();
    load.timeout_ns = command.timeout_ns;
    load.keep_below = command.keep_below;
    kvbm_cache_load(store_.cache(), match, ids.data(), n, &load, nullptr, 0);
    kvbm_match_release(match);
    for (uint64_t i = 0; i < n; ++i) {
      if (status[i] != KVBM_OK || ids[i] == KVBM_NO_BLOCK) continue;
      ++reply.done;
      reply.wrong += store_.is(command.first + from + i, store_.block(i)) ? 0 : 1;
    }
  }

  void invalidate(ShareReply& reply) {
    kvbm_error_t error{};
    reply.status = kvbm_namespace_invalidate(store_.ns(), &error);
    std::snprintf(reply.message, sizeof reply.message, "%s", error.message);
  }

  void drop(const ShareCommand& command, ShareReply& reply) {
    std::vector<kvbm_key_t> keys;
    for (uint64_t i = 0; i < command.n; ++i) keys.push_back(store_.key(command.first + i));
    reply.status = kvbm_manager_drop(store_.manager(), store_.ns(), nullptr, keys.data(), keys.size(), nullptr);
  }

  // Makes calls in a forked child and returns their results. The child stays for a while with the objects that it
  // inherited.
  void in_child(ShareReply& reply) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const pid_t child = fork();
    if (child == 0) {
      kvbm_match_t* match = nullptr;
      size_t n = 0;
      const kvbm_key_t name{};
      const kvbm_status_t status = kvbm_cache_lookup(store_.cache(), &name, 1, nullptr, &match, &n);
      if (write(ends[1], &status, sizeof status) != sizeof status) _exit(1);
      for (int fd = 3; fd < 256; ++fd) {
        if (fd == ends[1] || is_parents(fd)) ::close(fd);
      }
      sleep(60);
      _exit(0);
    }
    ::close(ends[1]);
    if (read(ends[0], &reply.status, sizeof reply.status) != sizeof reply.status) reply.status = -1;
    ::close(ends[0]);
    reply.pid = static_cast<uint64_t>(child);
  }
  // Returns whether the socket is the parent's. A child that outlives this process must not keep it open.
  static bool is_parents(int fd) { return fd == parents; }

 public:
  static inline int parents = -1;

 private:
  OpaqueStore store_;
  std::vector<kvbm_block_t> filled_;
};

// The parent's side.
class ShareMember {
 public:
  ShareMember() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      ShareWorker::parents = ends[1];
      ShareWorker::run(ends[1]);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~ShareMember() { kill(SIGKILL); }
  ShareMember(const ShareMember&) = delete;
  ShareMember& operator=(const ShareMember&) = delete;

  static constexpr uint64_t kMost = 64;  // blocks of one store
  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(const ShareCommand& command) const {
    if (write(socket_, &command, sizeof command) < 0) std::perror("command");
  }
  // Waits for a reply. Returns false if the child died, or a minute passed.
  [[nodiscard]] bool receive(ShareReply& reply) const {
    pollfd ready{socket_, POLLIN, 0};
    return poll(&ready, 1, 60'000) == 1 && read(socket_, &reply, sizeof reply) == static_cast<ssize_t>(sizeof reply);
  }
  // status -1: it did not answer.
  ShareReply ask(const ShareCommand& command) const {
    ShareReply reply;
    send(command);
    if (!receive(reply)) reply.status = -1;
    return reply;
  }
  ShareReply open(const std::string& directory, bool host_only = false, uint64_t bytes = 8192) const {
    ShareCommand command;
    command.what = ShareCommand::open;
    command.host_only = host_only ? 1 : 0;
    command.bytes = bytes;
    std::snprintf(command.directory, sizeof command.directory, "%s", directory.c_str());
    return ask(command);
  }
  // Opens the set with a disk of another size than the others have.
  ShareReply open_disk(const std::string& directory, uint64_t disk_bytes, uint64_t write_bytes_per_s = 0) const {
    ShareCommand command;
    command.what = ShareCommand::open;
    command.disk_bytes = disk_bytes;
    command.write_bytes_per_s = write_bytes_per_s;
    std::snprintf(command.directory, sizeof command.directory, "%s", directory.c_str());
    return ask(command);
  }
  // Stores blocks `first` and following, in calls of as many as one store takes.
  uint64_t store_many(uint64_t first, uint64_t n) const {
    uint64_t done = 0;
    for (uint64_t at = 0; at < n; at += kMost) done += store(first + at, std::min(kMost, n - at)).done;
    return done;
  }
  static ShareCommand of(ShareCommand::What what, uint64_t first = 0, uint64_t n = 0,
                         uint64_t timeout_ns = 30'000'000'000) {
    ShareCommand command;
    command.what = what;
    command.first = first;
    command.n = n;
    command.timeout_ns = timeout_ns;
    return command;
  }
  ShareReply store(uint64_t first, uint64_t n) const { return ask(of(ShareCommand::store, first, n)); }
  ShareReply look(uint64_t first, uint64_t n) const { return ask(of(ShareCommand::look, first, n)); }
  // Loads like the function above without caching in that process's host: blocks of the owner are read there.
  ShareReply look_in_place(uint64_t first, uint64_t n) const { return ask(look_in_place_command(first, n)); }
  static ShareCommand look_in_place_command(uint64_t first, uint64_t n) {
    ShareCommand command = of(ShareCommand::look, first, n);
    command.keep_below = 1;
    return command;
  }
  ShareReply flush() const { return ask(of(ShareCommand::flush)); }
  ShareReply role() const { return ask(of(ShareCommand::role)); }

  void signal(int number) const { signal_child(pid_, number); }
  void freeze() const { signal(SIGSTOP); }
  void kill(int number) {
    if (pid_ <= 0) return;
    ::kill(pid_, number);
    reap();
  }
  int reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    ::close(socket_);
    return status;
  }
  // Ends the child in order. Returns its exit status.
  int leave() {
    (void)ask(of(ShareCommand::leave));
    return reap();
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace kvbm::test
