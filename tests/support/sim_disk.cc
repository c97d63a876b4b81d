#include "support/sim_disk.h"

#include <cstdlib>
#include <new>

#include "base/bytes.h"
#include "support/sim_disk_state.h"

namespace kvbm::test {

namespace {

Status closed() { return Status(Code::closed, "the simulated process was killed"); }

Status check_name(std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name == "lock" || name.find('/') != std::string_view::npos) {
    return Status(Code::invalid_argument, "not a plain file name", std::string(name));
  }
  return {};
}

bool is_aligned(uint64_t offset, std::span<const IoRun> runs) {
  uint64_t all = offset;
  for (const IoRun& run : runs) all |= reinterpret_cast<uintptr_t>(run.data) | run.bytes;
  return all % kIoAlign == 0;
}

}  // namespace

class SimFile final : public File {
 public:
  SimFile(std::shared_ptr<SimDisk::State> state, std::shared_ptr<SimInode> inode, bool writable, bool direct)
      : state_(std::move(state)),
        inode_(std::move(inode)),
        generation_(state_->generation),
        writable_(writable),
        direct_(direct) {}

  void read(uint64_t offset, std::span<const IoRun> runs, IoDone done) override {
    if (Status s = check(false, offset, runs); !s.ok()) return refuse(std::move(s), std::move(done));
    SimPending p;
    p.op = SimDisk::Op::read;
    p.runs.assign(runs.begin(), runs.end());
    begin(std::move(p), offset, std::move(done));
  }
  void write(uint64_t offset, std::span<const IoRun> runs, IoDone done) override {
    if (Status s = check(true, offset, runs); !s.ok()) return refuse(std::move(s), std::move(done));
    SimPending p;
    p.op = SimDisk::Op::write;
    for (const IoRun& run : runs) p.data.insert(p.data.end(), run.data, run.data + run.bytes);
    begin(std::move(p), offset, std::move(done));
  }
  void sync(UniqueFunction<void(Status)> done) override {
    SimPending p;
    p.op = SimDisk::Op::sync;
    p.inode = inode_;
    p.snapshot = take_snapshot(*inode_);
    p.synced = std::move(done);
    if (generation_ == state_->generation) return state_->start(std::move(p));
    state_->sim.post([done = std::move(p.synced)]() mutable { done(closed()); });
  }

  Result<size_t> read_now(uint64_t offset, std::span<std::byte> out) override {
    if (generation_ != state_->generation) return closed();
    const IoRun run{out.data(), out.size()};
    return state_->read(*inode_, offset, {&run, 1});
  }
  Status write_now(uint64_t offset, std::span<const std::byte> bytes) override {
    if (Status s = check(true, offset, {}); !s.ok()) return s;
    if (direct_ && bytes.size() % kIoAlign != 0) return Status(Code::invalid_argument, "not aligned");
    std::vector<std::byte> data(bytes.begin(), bytes.end());
    return state_->write(*inode_, offset, data);
  }
  Status sync_now() override {
    if (generation_ != state_->generation) return closed();
    return state_->sync(*inode_, take_snapshot(*inode_));
  }
  Result<uint64_t> size() override {
    if (generation_ != state_->generation) return closed();
    return inode_->size;
  }
  Status allocate(uint64_t bytes) override {
    if (Status s = check(true, 0, {}); !s.ok()) return s;
    if (Status s = state_->enter(SimDisk::Op::allocate); !s.ok()) return s;
    if (Status s = state_->room(*inode_, bytes, bytes); !s.ok()) return s;
    inode_->allocated = std::max(inode_->allocated, bytes);
    inode_->size = std::max(inode_->size, bytes);
    return {};
  }
  Status truncate(uint64_t bytes) override {
    if (Status s = check(true, 0, {}); !s.ok()) return s;
    if (Status s = state_->room(*inode_, bytes, 0); !s.ok()) return s;
    inode_->resize(bytes);
    return {};
  }
  [[nodiscard]] bool direct() const noexcept override { return direct_; }

 private:
  Status check(bool writes, uint64_t offset, std::span<const IoRun> runs) const {
    if (generation_ != state_->generation) return closed();
    if (writes && !writable_) return Status(Code::io_error, "the file is open for reading only");
    if (direct_ && !is_aligned(offset, runs)) return Status(Code::io_error, "direct I/O that is not aligned");
    return {};
  }
  void refuse(Status status, IoDone done) {
    state_->sim.post([s = std::move(status), d = std::move(done)]() mutable { d(std::move(s)); });
  }
  void begin(SimPending p, uint64_t offset, IoDone done) {
    p.inode = inode_;
    p.offset = offset;
    p.done = std::move(done);
    state_->start(std::move(p));
  }

  std::shared_ptr<SimDisk::State> state_;
  std::shared_ptr<SimInode> inode_;
  uint64_t generation_;
  bool writable_;
  bool direct_;
};

class SimLock {
 public:
  SimLock(std::shared_ptr<SimDisk::State> state, std::string path)
      : state_(std::move(state)), path_(std::move(path)), generation_(state_->generation) {}
  SimLock(const SimLock&) = delete;
  SimLock& operator=(const SimLock&) = delete;
  ~SimLock() {
    if (generation_ == state_->generation) state_->folders[path_].locked = false;
  }

 private:
  std::shared_ptr<SimDisk::State> state_;
  std::string path_;
  uint64_t generation_;
};

class SimDirectory final : public Directory {
 public:
  SimDirectory(std::shared_ptr<SimDisk::State> state, std::string path)
      : state_(std::move(state)), path_(std::move(path)), generation_(state_->generation) {}

  Result<std::unique_ptr<File>> open(std::string_view name, OpenMode mode, bool direct) override {
    if (Status s = enter(SimDisk::Op::open, name); !s.ok()) return s;
    const std::string key(name);
    auto found = folder().entries.find(key);
    if (found == folder().entries.end()) {
      if (mode != OpenMode::create) return Status(Code::miss, "cannot open", path_ + "/" + key);
      change({SimEntryChange::Kind::create, key, "", std::make_shared<SimInode>()});
      found = folder().entries.find(key);
    }
    return std::unique_ptr<File>(std::make_unique<SimFile>(state_, found->second, mode != OpenMode::read_only, direct));
  }
  Result<std::vector<std::string>> list() override {
    if (Status s = enter(SimDisk::Op::list, "x"); !s.ok()) return s;
    std::vector<std::string> names;
    for (const auto& [name, inode] : folder().entries) names.push_back(name);
    if (folder().has_lock_file) names.insert(std::lower_bound(names.begin(), names.end(), "lock"), "lock");
    return names;
  }
  Status remove(std::string_view name) override {
    if (Status s = enter(SimDisk::Op::remove, name); !s.ok()) return s;
    const std::string key(name);
    if (folder().entries.count(key) == 0) return Status(Code::miss, "cannot remove", path_ + "/" + key);
    change({SimEntryChange::Kind::remove, key, "", nullptr});
    return {};
  }
  Status rename(std::string_view from, std::string_view to) override {
    if (Status s = enter(SimDisk::Op::rename, from); !s.ok()) return s;
    if (Status s = check_name(to); !s.ok()) return s;
    const std::string key(from);
    const auto found = folder().entries.find(key);
    if (found == folder().entries.end()) return Status(Code::miss, "cannot rename", path_ + "/" + key);
    if (from != to) change({SimEntryChange::Kind::rename, key, std::string(to), found->second});
    return {};
  }
  Status sync() override {
    if (Status s = enter(SimDisk::Op::directory_sync, "x"); !s.ok()) return s;
    folder().durable = folder().entries;
    folder().since.clear();
    return {};
  }
  Result<DirectoryLock> lock() override {
    if (generation_ != state_->generation) return closed();
    if (folder().locked) return Status(Code::in_use, "the directory is in use", path_);
    folder().locked = folder().has_lock_file = true;
    return DirectoryLock(std::make_shared<SimLock>(state_, path_));
  }
  Result<uint64_t> free_bytes() override {
    if (generation_ != state_->generation) return closed();
    const uint64_t used = state_->used();
    return used < state_->capacity ? state_->capacity - used : 0;
  }

 private:
  SimFolder& folder() { return state_->folders[path_]; }
  Status enter(SimDisk::Op op, std::string_view name) {
    if (generation_ != state_->generation) return closed();
    if (Status s = check_name(name); !s.ok()) return s;
    return state_->enter(op);
  }
  void change(SimEntryChange c) {
    apply_change(folder().entries, c);
    folder().since.push_back(std::move(c));
  }

  std::shared_ptr<SimDisk::State> state_;
  std::string path_;
  uint64_t generation_;
};

SimDisk::SimDisk(SimExecutor& sim, uint64_t capacity_bytes)
    : state_(std::make_shared<State>(sim, &faults, &min_latency_ns, &max_latency_ns, capacity_bytes)) {}

SimDisk::~SimDisk() {
  ++state_->generation;
  const auto dropped = std::move(state_->in_flight);
  state_->in_flight.clear();
}

Result<std::unique_ptr<Directory>> SimDisk::open_directory(const std::string& path, bool create) {
  std::string clean = path;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  if (state_->folders.count(clean) == 0) {
    if (!create) return Status(Code::miss, "cannot open the directory", clean);
    state_->folders[clean];
  }
  return std::unique_ptr<Directory>(std::make_unique<SimDirectory>(state_, clean));
}

Result<std::shared_ptr<std::byte[]>> SimDisk::staging(size_t bytes) {
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kIoAlign, static_cast<size_t>(round_up(bytes, kIoAlign))));
  if (data == nullptr) return Status(Code::no_memory, "no staging memory");
  return std::shared_ptr<std::byte[]>(data, [](std::byte* p) { std::free(p); });
}

void SimDisk::fail_nth(Op op, uint64_t n, Code code) { state_->planned[static_cast<size_t>(op)] = {n, code}; }
uint64_t SimDisk::count(Op op) const { return state_->counts[static_cast<size_t>(op)]; }
void SimDisk::set_capacity(uint64_t bytes) { state_->capacity = bytes; }
uint64_t SimDisk::used() const { return state_->used(); }

void SimDisk::crash(bool forget_tasks) {
  state_->sim.note("crash");
  state_->stop_all(forget_tasks);
}

void SimDisk::power_cut(bool forget_tasks) {
  state_->sim.note("power cut");
  state_->stop_all(forget_tasks);
  Random& random = state_->sim.random();
  for (auto& [path, folder] : state_->folders) {
    folder.entries = folder.durable;
    const uint64_t kept = random.below(folder.since.size() + 1);
    for (uint64_t i = 0; i < kept; ++i) apply_change(folder.entries, folder.since[i]);
    folder.durable = folder.entries;
    folder.since.clear();
    for (auto& [name, inode] : folder.entries) inode->power_cut(random);
  }
}

bool SimDisk::flip_bit(const std::string& directory, const std::string& name, uint64_t bit) {
  const auto folder = state_->folders.find(directory);
  if (folder == state_->folders.end()) return false;
  const auto inode = folder->second.entries.find(name);
  if (inode == folder->second.entries.end() || bit / 8 >= inode->second->size) return false;
  const uint64_t page = bit / 8 / kSimPage;
  const auto mask = static_cast<std::byte>(1u << (bit % 8));
  inode->second->pages[page][bit / 8 % kSimPage] ^= mask;
  const auto durable = inode->second->durable.find(page);
  if (durable != inode->second->durable.end()) durable->second[bit / 8 % kSimPage] ^= mask;
  return true;
}

std::optional<std::vector<std::byte>> SimDisk::content(const std::string& directory, const std::string& name) const {
  const auto folder = state_->folders.find(directory);
  if (folder == state_->folders.end()) return std::nullopt;
  const auto inode = folder->second.entries.find(name);
  if (inode == folder->second.entries.end()) return std::nullopt;
  std::vector<std::byte> out(inode->second->size);
  inode->second->read(0, out);
  return out;
}

}  // namespace kvbm::test
