#include "plugin/store_runner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "terminal/safe_text.h"

namespace kvbm::plugin {

namespace {

constexpr uint8_t kGuardByte = 0xA5;
constexpr size_t kFactsGuard = 64;
constexpr uint32_t kMostWorkers = 64;
constexpr int kBusyAttempts = 40;
constexpr auto kBusyPause = std::chrono::milliseconds(50);

const char* kind_name(uint32_t kind) {
  constexpr const char* kNames[] = {"?", "put", "get", "remove", "list"};
  return kNames[kind <= KVBM_STORE_LIST ? kind : 0];
}

// Returns the text up to the first zero or control character.
std::string text_of(const char* text, size_t room) { return terminal::safe_text({text, ::strnlen(text, room)}, room); }

bool is_status(kvbm_status_t status) {
  switch (status) {
    case KVBM_OK:
    case KVBM_ERR_MISS:
    case KVBM_ERR_AGAIN:
    case KVBM_ERR_IO:
    case KVBM_ERR_DEADLINE:
    case KVBM_ERR_DISK_FULL:
    case KVBM_ERR_PERMISSION:
    case KVBM_ERR_CONFIG:
      return true;
    default:
      return false;
  }
}

std::string status_text(kvbm_status_t status) { return code_name(static_cast<Code>(status)); }

}  // namespace

void Misdeeds::note(std::string Misdeeds::*which, const std::string& seen) {
  const std::lock_guard<std::mutex> lock(mutex);
  if ((this->*which).empty()) this->*which = seen;
}

std::string Misdeeds::first(std::string Misdeeds::*which) {
  const std::lock_guard<std::mutex> lock(mutex);
  return this->*which;
}

// Shared with the workers and with a store that never finishes.
struct RunnerState {
  const kvbm_store_table_t* table = nullptr;
  RunnerLimits limits;
  std::shared_ptr<Misdeeds> misdeeds;
  capi::StoreOptions options;
  kvbm_store_config_t config{};
  kvbm_store_facts_t facts{};
  void* store = nullptr;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Operation>> all;
  std::map<kvbm_store_op_t*, Operation*> known;
  Clock::time_point last_step = Clock::now();  // last begin or end of an operation
  std::deque<Operation*> queue;                // for the workers
  bool closing = false;
  bool stuck = false;

  static void finished(void* context, kvbm_store_op_t* op, kvbm_status_t status);
  static void log(void*, int32_t, const char*) {}
  void work();
};

Operation::Operation(Request request) : request_(std::move(request)) {
  const bool puts = request_.kind == KVBM_STORE_PUT;
  const size_t bytes = puts ? request_.data.size() : request_.bytes;
  storage_.assign(bytes + 2 * kGuard, kGuardByte);
  if (puts) std::copy(request_.data.begin(), request_.data.end(), storage_.begin() + kGuard);
  if (puts) Data().swap(request_.data);
  op_.kind = request_.kind;
  op_.flags = request_.flags;
  op_.name = request_.name.c_str();
  op_.after = request_.kind == KVBM_STORE_LIST ? request_.after.c_str() : nullptr;
  op_.data = request_.kind == KVBM_STORE_REMOVE ? nullptr : storage_.data() + kGuard;
  op_.bytes = request_.kind == KVBM_STORE_REMOVE ? 0 : bytes;
  op_.offset = request_.offset;
  op_.timeout_ns = request_.timeout_ns;
  op_.expire_s = request_.expire_s;
  op_.library_private = this;
  given_ = op_;
}

std::string Operation::answer() const {
  if (!finished_) return "it was never finished";
  const std::string said = text_of(op_.message, sizeof op_.message);
  return status_text(status_) + (status_ == KVBM_OK || said.empty() ? "" : " (" + said + ")");
}

void Operation::forget_data() {
  if (finished_ && storage_.size() > 65536) {
    Data(2 * kGuard, kGuardByte).swap(storage_);
    op_.data = nullptr;
  }
}

bool Operation::guards_are_whole() const {
  const auto whole = [](const uint8_t* at) {
    return std::all_of(at, at + kGuard, [](uint8_t b) { return b == kGuardByte; });
  };
  return whole(storage_.data()) && whole(storage_.data() + storage_.size() - kGuard);
}

std::string Operation::fault(kvbm_status_t status) const {
  if (!is_status(status) && !cancelled_)
    return "finished with status " + std::to_string(status) + ", which none of its answers is";
  if (status == KVBM_ERR_MISS && op_.kind != KVBM_STORE_GET)
    return "finished with KVBM_ERR_MISS, which only a get may be";
  const bool reads = op_.kind == KVBM_STORE_GET || op_.kind == KVBM_STORE_LIST;
  if (status == KVBM_OK && reads && op_.done > op_.bytes) {
    return "gave done = " + std::to_string(op_.done) + " of " + std::to_string(op_.bytes) + " bytes";
  }
  if (status == KVBM_OK && op_.kind == KVBM_STORE_LIST && op_.more > 1)
    return "gave more = " + std::to_string(op_.more);
  if (status != KVBM_OK && std::memchr(op_.message, 0, sizeof op_.message) == nullptr)
    return "gave a message without an end";
  return {};
}

void RunnerState::finished(void* context, kvbm_store_op_t* op, kvbm_status_t status) {
  auto& state = *static_cast<RunnerState*>(context);
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto known = state.known.find(op);
  if (known == state.known.end()) {
    state.misdeeds->note(&Misdeeds::finished, "an operation was finished that the store was not given");
    return;
  }
  Operation& one = *known->second;
  const std::string what = std::string("a ") + kind_name(one.given_.kind) + " of " + one.request_.name;
  if (one.finished_) {
    state.misdeeds->note(&Misdeeds::finished, what + " was finished twice");
    return;
  }
  const kvbm_store_op_t& was = one.given_;
  const bool same = op->kind == was.kind && op->flags == was.flags && op->name == was.name && op->after == was.after &&
                    op->data == was.data && op->bytes == was.bytes && op->offset == was.offset &&
                    op->timeout_ns == was.timeout_ns && op->expire_s == was.expire_s && op->reserved == 0 &&
                    op->library_private == was.library_private;
  if (!same) state.misdeeds->note(&Misdeeds::untouched, what + " had a field changed that is the library's");
  if (!one.guards_are_whole())
    state.misdeeds->note(&Misdeeds::untouched, what + " wrote beside the memory that it was given");
  const std::string fault = one.fault(status);
  if (!fault.empty()) state.misdeeds->note(&Misdeeds::answers, what + " " + fault);
  one.finished_ = true;
  one.status_ = status;
  one.ended_ = Clock::now();
  state.last_step = one.ended_;
  state.changed.notify_all();
}

// Runs the operations of a store that blocks: one operation at a time per thread.
void RunnerState::work() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closing || !queue.empty(); });
    if (queue.empty()) return;
    Operation* one = queue.front();
    queue.pop_front();
    one->begun_ = true;
    one->started_ = last_step = Clock::now();
    lock.unlock();
    kvbm_store_op_t* op = &one->op_;
    table->start(store, &op, 1);
    lock.lock();
    if (!one->finished_) {
      misdeeds->note(&Misdeeds::finished, std::string("start() of a store that blocks returned before its ") +
                                              kind_name(one->given_.kind) + " was finished");
    }
  }
}

StoreRunner::StoreRunner(std::shared_ptr<RunnerState> state) : state_(std::move(state)) {
  if ((state_->facts.features & KVBM_STORE_BLOCKS) == 0) return;
  const uint32_t n = std::min(concurrency(), kMostWorkers);
  for (uint32_t i = 0; i < n; ++i) workers_.emplace_back([kept = state_] { kept->work(); });
}

StoreRunner::Opened StoreRunner::open(const kvbm_store_table_t& table, const capi::StoreUrl& url,
                                      const capi::StoreOptions& options, const RunnerLimits& limits,
                                      std::shared_ptr<Misdeeds> misdeeds) {
  auto state = std::make_shared<RunnerState>();
  state->table = &table;
  state->limits = limits;
  state->misdeeds = std::move(misdeeds);
  state->options = options;
  state->config = {sizeof(kvbm_store_config_t),
                   0,
                   url.scheme.c_str(),
                   url.authority.c_str(),
                   url.user.c_str(),
                   url.password.c_str(),
                   url.path.c_str(),
                   state->options.of_store.data(),
                   state->options.of_store.size(),
                   state.get(),
                   RunnerState::finished,
                   RunnerState::log};
  // Facts with more behind them, as from a library that is newer than the store.
  alignas(kvbm_store_facts_t) std::array<uint8_t, sizeof(kvbm_store_facts_t) + kFactsGuard> room{};
  auto& facts = *reinterpret_cast<kvbm_store_facts_t*>(room.data());
  facts.struct_size = sizeof facts;
  std::memset(room.data() + sizeof facts, kGuardByte, kFactsGuard);
  std::array<char, 256 + kFactsGuard> message;
  message.fill(static_cast<char>(kGuardByte));
  message[0] = '\0';
  Opened out;
  out.status = table.open(&state->config, limits.timeout_ns, &facts, &state->store, message.data());
  out.message = text_of(message.data(), 256);
  const auto is_guard = [](auto byte) { return static_cast<uint8_t>(byte) == kGuardByte; };
  if (!std::all_of(room.begin() + sizeof facts, room.end(), is_guard) ||
      !std::all_of(message.begin() + 256, message.end(), is_guard)) {
    out.fault = "open() wrote beside the facts or the message";
  } else if (out.status != KVBM_OK && std::memchr(message.data(), 0, 256) == nullptr) {
    out.fault = "open() gave a message without an end";
  }
  if (out.status != KVBM_OK) return out;
  state->facts = facts;
  out.runner.reset(new StoreRunner(std::move(state)));
  return out;
}

StoreRunner::~StoreRunner() {
  bool stuck = false;
  {
    std::unique_lock<std::mutex> lock(state_->mutex);
    for (const auto& one : state_->all) {
      if (!one->finished_) state_->stuck = true;
    }
    stuck = state_->stuck;
    state_->closing = true;
    state_->changed.notify_all();
  }
  for (std::thread& worker : workers_) stuck ? worker.detach() : worker.join();
  if (stuck) {
    // The store may still write into the memory of its operations.
    static auto* left_behind = new std::vector<std::shared_ptr<RunnerState>>;
    left_behind->push_back(state_);
    return;
  }
  state_->table->close(state_->store);
  for (const auto& one : state_->all) {
    if (!one->guards_are_whole())
      state_->misdeeds->note(&Misdeeds::untouched, "memory was written to after its operation was finished");
  }
}

const kvbm_store_facts_t& StoreRunner::facts() const { return state_->facts; }

uint64_t StoreRunner::object_bytes() const { return facts().object_bytes == 0 ? 4ULL << 20 : facts().object_bytes; }

uint32_t StoreRunner::concurrency() const {
  return facts().concurrency == 0 ? 16 : std::min(facts().concurrency, 1024U);
}

bool StoreRunner::can_cancel() const { return state_->table->cancel != nullptr; }

bool StoreRunner::is_stuck() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->stuck;
}

std::vector<Operation*> StoreRunner::start(std::vector<Request> requests) {
  const bool blocks = (facts().features & KVBM_STORE_BLOCKS) != 0;
  std::vector<Operation*> started;
  std::vector<kvbm_store_op_t*> ops;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    for (Request& request : requests) {
      if (request.timeout_ns == 0) request.timeout_ns = state_->limits.timeout_ns;
      auto one = std::make_unique<Operation>(std::move(request));
      one->started_ = Clock::now();
      ops.push_back(&one->op_);
      started.push_back(one.get());
      state_->known.emplace(&one->op_, one.get());
      one->begun_ = !blocks;
      if (blocks) state_->queue.push_back(one.get());
      state_->all.push_back(std::move(one));
    }
    state_->changed.notify_all();
  }
  if (blocks || ops.empty()) return started;
  const auto before = Clock::now();
  state_->table->start(state_->store, ops.data(), ops.size());
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - before);
  if (static_cast<uint64_t>(took.count()) * 1'000'000 > state_->limits.grace_ns) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->misdeeds->note(&Misdeeds::blocked, "start() of " + std::to_string(ops.size()) + " operations took " +
                                                   std::to_string(took.count()) +
                                                   " ms; a store that blocks has to say KVBM_STORE_BLOCKS");
  }
  return started;
}

void StoreRunner::cancel(Operation& operation) {
  if (!can_cancel()) return;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    operation.cancelled_ = true;
    // A worker does not begin a cancelled operation.
    const auto waiting = std::find(state_->queue.begin(), state_->queue.end(), &operation);
    if (waiting != state_->queue.end()) {
      state_->queue.erase(waiting);
      operation.finished_ = true;
      operation.status_ = KVBM_ERR_CANCELLED;
      operation.ended_ = Clock::now();
      return;
    }
  }
  state_->table->cancel(state_->store, &operation.op_);
}

const Operation& StoreRunner::wait(Operation& operation) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto patience = std::chrono::nanoseconds(operation.op_.timeout_ns + state_->limits.grace_ns);
  // An operation without a thread waits as long as others make progress.
  const auto until = [&] { return (operation.begun_ ? operation.started_ : state_->last_step) + patience; };
  while (!operation.finished_ && Clock::now() < until()) state_->changed.wait_until(lock, until());
  if (operation.finished_) return operation;
  state_->misdeeds->note(&Misdeeds::finished, std::string("a ") + kind_name(operation.given_.kind) + " of " +
                                                  operation.request_.name +
                                                  " was not finished, long after its time was over");
  state_->stuck = true;
  return operation;
}

Operation& StoreRunner::run(const Request& request) {
  for (int i = 0;; ++i) {
    Operation& one = *start({request}).front();
    (void)wait(one);
    if (!one.is_finished() || one.status() != KVBM_ERR_AGAIN || i == kBusyAttempts) return one;
    std::this_thread::sleep_for(kBusyPause);
  }
}

}  // namespace kvbm::plugin
