#include "capi/plugin/table_store.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "base/thread/awaited.h"

namespace kvbm::capi {

namespace {

using tier::store::ObjectRequest;
using tier::store::StoreFacts;
using tier::store::Verb;

constexpr uint32_t kMostConcurrency = 1024;
constexpr uint32_t kMostThreads = 64;

// Returns a text that the store's code wrote into a field of fixed size.
template <size_t n>
std::string text_of(const char (&field)[n]) {
  std::string out(field, strnlen(field, n));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

}  // namespace

TableStore::TableStore(const kvbm_store_table_t& table, StoreUrl place, Log* log)
    : table_(table), place_(std::move(place)), log_(log) {
  for (const auto& [name, text] : place_.options) options_.push_back({name.c_str(), text.c_str()});
}

Result<std::unique_ptr<TableStore>> TableStore::open(const kvbm_store_table_t& table, StoreUrl place, Log* log,
                                                     uint64_t timeout_ns) {
  std::unique_ptr<TableStore> out(new TableStore(table, std::move(place), log));
  kvbm_store_config_t& config = out->config_;
  config.struct_size = sizeof config;
  config.scheme = out->place_.scheme.c_str();
  config.authority = out->place_.authority.c_str();
  config.user = out->place_.user.c_str();
  config.password = out->place_.password.c_str();
  config.path = out->place_.path.c_str();
  config.options = out->options_.data();
  config.n_options = out->options_.size();
  config.context = out.get();
  config.finished = &TableStore::finished;
  config.log = &TableStore::logged;
  kvbm_store_facts_t facts{};
  facts.struct_size = sizeof facts;
  char message[256] = {};
  const kvbm_status_t opened = table.open(&config, timeout_ns, &facts, &out->store_, message);
  if (opened != KVBM_OK) {
    const Code code = opened == KVBM_ERR_PERMISSION || opened == KVBM_ERR_UNSUPPORTED || opened == KVBM_ERR_NO_MEMORY ||
                              opened == KVBM_ERR_VERSION
                          ? static_cast<Code>(opened)
                          : Code::bad_config;
    const std::string said = text_of(message);
    out->store_ = nullptr;
    return Status(code, "a store cannot be used", said.empty() ? code_text(code) : said);
  }
  StoreFacts& to = out->facts_;
  to.kind = table.name;
  out->blocks_ = (facts.features & KVBM_STORE_BLOCKS) != 0;
  if (facts.concurrency != 0) to.concurrency = std::min(facts.concurrency, kMostConcurrency);
  if (facts.object_bytes != 0) to.object_bytes = std::clamp<uint64_t>(facts.object_bytes, 4096, uint64_t{1} << 30);
  to.max_object_bytes = facts.max_object_bytes;
  to.description = text_of(facts.description);
  if (to.description.empty()) to.description = to.kind;
  if (out->blocks_) {
    to.concurrency = std::min(to.concurrency, kMostThreads);
    auto threads = ThreadExecutor::create("store", to.concurrency);
    if (!threads.ok()) {
      table.close(out->store_);
      out->store_ = nullptr;
      return threads.status();
    }
    out->threads_ = std::move(threads).value();
  }
  return out;
}

TableStore::~TableStore() {
  if (store_ != nullptr) close();
}

void TableStore::start(std::unique_ptr<ObjectRequest> request) { (void)begin(std::move(request)); }

std::shared_ptr<TableStore::Flight> TableStore::begin(std::unique_ptr<ObjectRequest> request) {
  auto flight = std::make_shared<Flight>();
  kvbm_store_op_t& op = flight->op;
  ObjectRequest& r = *request;
  op.kind = r.verb == Verb::put      ? KVBM_STORE_PUT
            : r.verb == Verb::get    ? KVBM_STORE_GET
            : r.verb == Verb::remove ? KVBM_STORE_REMOVE
                                     : KVBM_STORE_LIST;
  op.flags = r.listed ? KVBM_STORE_LISTED : 0;
  op.name = r.name.c_str();
  op.after = r.verb == Verb::list ? r.after.c_str() : nullptr;
  op.data = r.data.bytes.get();
  op.bytes = r.bytes;
  op.offset = r.offset;
  op.timeout_ns = r.timeout_ns;
  op.expire_s = r.expire_s;
  flight->request = std::move(request);
  kvbm_store_op_t* const started = &op;
  {
    MutexLock lock(mutex_);
    flights_.emplace(started, flight);
  }
  if (blocks_) {
    threads_->post([table = &table_, store = store_, started] { table->start(store, &started, 1); });
  } else {
    table_.start(store_, &started, 1);
  }
  return flight;
}

void TableStore::finished(void* context, kvbm_store_op_t* op, kvbm_status_t status) {
  auto* const self = static_cast<TableStore*>(context);
  std::shared_ptr<Flight> flight;
  std::unique_ptr<ObjectRequest> request;
  {
    MutexLock lock(self->mutex_);
    const auto at = self->flights_.find(op);
    if (at == self->flights_.end()) {
      ++self->unknown_;
      return;
    }
    flight = std::move(at->second);
    request = std::move(flight->request);
    self->flights_.erase(at);
  }
  request->code = static_cast<Code>(status);
  request->done = op->done;
  request->more = op->more != 0;
  if (status != KVBM_OK) request->message = text_of(op->message);
  if (status == KVBM_OK && request->done > request->bytes) {
    request->code = Code::io_error;
    request->done = 0;
    request->message = "it says that it filled more than there was room for";
  }
  flight.reset();
  auto done = std::move(request->finished);
  done(std::move(request));
}

void TableStore::logged(void* context, int32_t level, const char* text) {
  auto* const self = static_cast<TableStore*>(context);
  if (text == nullptr) return;
  const Log* log = nullptr;
  {
    MutexLock lock(self->mutex_);
    if (self->log_ == nullptr) return;
    log = self->log_;
    ++self->logging_;
  }
  const LogLevel levels[] = {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug};
  log->write(levels[std::clamp(level, 0, 3)], "store", std::string(text, strnlen(text, 1024)));
  MutexLock lock(self->mutex_);
  if (--self->logging_ == 0) self->logged_.notify_all();
}

void TableStore::cancel(uint64_t id) noexcept {
  if (table_.cancel == nullptr) return;
  std::shared_ptr<Flight> found;  // keeps the operation alive if it finishes meanwhile
  {
    MutexLock lock(mutex_);
    for (const auto& [op, flight] : flights_) {
      if (flight->request->id == id) found = flight;
    }
  }
  if (found != nullptr) table_.cancel(store_, &found->op);
}

std::unique_ptr<ObjectRequest> TableStore::run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> late) {
  enum class State : uint8_t { runs, ended, given_up };
  struct Wait {
    Awaited<std::unique_ptr<ObjectRequest>> ended;
    std::atomic<State> state{State::runs};
    UniqueFunction<void()> late;
  };
  const auto wait = std::make_shared<Wait>();
  wait->late = std::move(late);
  const SystemClock clock;
  const uint64_t until = deadline_after(clock, request->timeout_ns + request->timeout_ns / 8 + 1'000'000);
  request->finished = [wait](std::unique_ptr<ObjectRequest> back) {
    wait->ended.give(std::move(back));
    if (wait->state.exchange(State::ended) == State::given_up && wait->late) wait->late();
  };
  const auto flight = begin(std::move(request));  // keeps the operation alive if it finishes during cancel
  if (wait->ended.wait_until(clock, until) || wait->state.exchange(State::given_up) == State::ended) {
    return wait->ended.wait();
  }
  if (table_.cancel != nullptr) table_.cancel(store_, &flight->op);
  return nullptr;
}

// The store lives on, and so does this object, but not the log: it belongs to the context.
void TableStore::leave(std::unique_ptr<ObjectStore> self) noexcept {
  [[maybe_unused]] auto* lives = self.release();
  MutexLock lock(mutex_);
  log_ = nullptr;
  while (logging_ > 0) {
    std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
    logged_.wait(native);
    native.release();
  }
}

void TableStore::close() noexcept {
  threads_.reset();
  table_.close(store_);
  store_ = nullptr;
}

}  // namespace kvbm::capi
