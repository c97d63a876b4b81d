#include "benchmark/object_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/crypto/random.h"
#include "base/thread/thread_executor.h"
#include "benchmark/beside_store.h"
#include "benchmark/disk_store.h"
#include "benchmark/statistics.h"
#include "capi/plugin/store.h"
#include "capi/plugin/store_module.h"
#include "capi/plugin/store_url.h"
#include "capi/plugin/table_store.h"
#include "terminal/progress.h"
#include "tier/store/store_index.h"
#include "tier/store/store_tier.h"

namespace kvbm::benchmark {

namespace {

using tier::store::ObjectRequest;
using tier::store::ObjectStore;
using tier::store::Verb;
using SteadyClock = std::chrono::steady_clock;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kRoundBytes = 128 * kMiB;
constexpr uint64_t kObject = 4 * kMiB;
constexpr uint64_t kTimeoutNs = 30'000'000'000;
constexpr uint64_t kIndexRecords = 10'000'000;
constexpr uint64_t kPerPack = 64;

struct BlockSize {
  uint64_t bytes;
  const char* name;
};
constexpr BlockSize kBlockSizes[] = {{64 * 1024, "64KiB"}, {kMiB, "1MiB"}, {kObject, "4MiB"}};

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// The store's own requests, as many in flight as its facts recommend.
class RawStore {
 public:
  static Result<std::unique_ptr<RawStore>> open(const std::string& text) {
    auto url = capi::parse_store_url(text);
    if (!url.ok()) return url.status();
    const auto table = capi::load_store_module(url.value());
    if (!table.ok()) return table.status();
    const auto options = capi::split_store_options(url.value(), *table.value(), capi::store_option_names());
    if (!options.ok()) return options.status();
    capi::StoreUrl place = url.value();
    place.options.clear();
    for (const kvbm_store_option_t& option : options.value().of_store)
      place.options.push_back({option.name, option.value});
    auto store = capi::TableStore::open(*table.value(), place, nullptr, kTimeoutNs);
    if (!store.ok()) return store.status();
    auto out = std::make_unique<RawStore>();
    out->store_ = std::move(store).value();
    return out;
  }
  ~RawStore() {
    if (store_ != nullptr) store_->close();
  }

  // Returns the GB/s of `n` objects of kObject bytes. Each round has new names, because replacing an object is less
  // work than a new one. A server in memory writes the new bytes into the pages of the old object.
  Result<double> transfer(Verb verb, size_t n, int round) {
    const auto start = SteadyClock::now();
    if (Status s = all(verb, n, round); !s.ok()) return s;
    return static_cast<double>(n * kObject) / seconds_since(start) / 1e9;
  }
  // Returns the names with this prefix.
  Result<std::vector<std::string>> names(std::string_view prefix) {
    std::vector<std::string> out;
    for (bool more = true; more;) {
      auto list = request(Verb::list, std::string(prefix), 256 << 10);
      list->after = out.empty() ? "" : out.back();
      const auto back = store_->run(std::move(list), {});
      if (back == nullptr || back->code != Code::ok) return failed_request(back.get());
      std::string_view left(reinterpret_cast<const char*>(back->data.bytes.get()), back->done);
      for (size_t end = left.find('\0'); end != std::string_view::npos; end = left.find('\0')) {
        out.emplace_back(left.substr(0, end));
        left.remove_prefix(end + 1);
      }
      more = back->more && back->done != 0;
    }
    return out;
  }
  // Removes all objects that index objects name, and the index objects themselves.
  Status wipe() {
    for (const std::string_view prefix :
         {tier::store::kIndexPrefix, tier::store::kEpochPrefix, tier::store::kWriterPrefix}) {
      const auto listed = names(prefix);
      if (!listed.ok()) return listed.status();
      for (const std::string& name : listed.value()) {
        if (prefix == tier::store::kIndexPrefix) {
          if (Status s = remove_packs_of(name); !s.ok()) return s;
        }
        if (Status s = remove(name, true); !s.ok()) return s;
      }
    }
    return {};
  }
  Status all(Verb verb, size_t n, int round) {
    for (size_t i = 0; i < n; ++i) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return in_flight_ < store_->facts().concurrency; });
        ++in_flight_;
      }
      start(verb, "v0/bench/" + std::to_string(round) + "/" + std::to_string(i));
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return in_flight_ == 0; });
    return first_;
  }

 private:
  static std::unique_ptr<ObjectRequest> request(Verb verb, std::string name, size_t room) {
    auto out = std::make_unique<ObjectRequest>();
    out->verb = verb;
    out->name = std::move(name);
    out->timeout_ns = kTimeoutNs;
    if (room != 0) out->data = tier::store::Buffer::of(room);
    out->bytes = room;
    return out;
  }
  static Status failed_request(const ObjectRequest* back) {
    return back == nullptr ? Status(Code::deadline, "a store's request had no answer")
                           : Status(back->code, "a store's request failed", back->message);
  }
  Status remove(const std::string& name, bool listed) {
    auto gone = request(Verb::remove, name, 0);
    gone->listed = listed;
    const auto back = store_->run(std::move(gone), {});
    return back != nullptr && back->code == Code::ok ? Status{} : failed_request(back.get());
  }
  Status remove_packs_of(const std::string& index_name) {
    const auto back = store_->run(request(Verb::get, index_name, tier::store::kMaxIndexBytes), {});
    if (back == nullptr || back->code != Code::ok) return failed_request(back.get());
    const auto index = tier::store::decode_index(ConstBytes(back->data.span()).first(back->done));
    if (!index.ok()) return index.status();
    for (const auto& pack : index.value().packs) {
      if (Status s = remove(tier::store::stamped_name(tier::store::kPackPrefix, pack.stamp), false); !s.ok()) return s;
    }
    return {};
  }
  void start(Verb verb, std::string name) {
    auto request = std::make_unique<ObjectRequest>();
    request->verb = verb;
    request->name = std::move(name);
    request->timeout_ns = kTimeoutNs;
    if (verb != Verb::remove) {
      const std::lock_guard lock(mutex_);
      if (!buffers_.empty()) {
        request->data = std::move(buffers_.back());
        buffers_.pop_back();
      }
    }
    if (verb != Verb::remove && request->data.size == 0) {
      request->data = tier::store::Buffer::of(kObject);
      std::memset(request->data.bytes.get(), 7, kObject);
    }
    request->bytes = request->data.size;
    request->finished = [this](std::unique_ptr<ObjectRequest> back) {
      const std::lock_guard lock(mutex_);
      if (back->code != Code::ok && first_.ok()) first_ = Status(back->code, "a store's request failed", back->message);
      if (back->data.size != 0) buffers_.push_back(std::move(back->data));
      --in_flight_;
      changed_.notify_all();
    };
    store_->start(std::move(request));
  }

  std::unique_ptr<capi::TableStore> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t in_flight_ = 0;
  Status first_;
  std::vector<tier::store::Buffer> buffers_;
};

struct Speeds {
  std::vector<double> write, read;
};

Status measure_blocks(const std::string& url, BlockSize size, Speeds& out) {
  const auto blocks = static_cast<uint32_t>(kRoundBytes / size.bytes);
  auto store = DiskStore::open(url, 0, size.bytes, blocks);
  if (!store.ok()) return store.status();
  if (Status s = store.value()->fill(); !s.ok()) return s;
  const auto written = store.value()->offload();
  if (!written.ok()) return written.status();
  out.write.push_back(static_cast<double>(kRoundBytes) / written.value() / 1e9);
  if (Status s = store.value()->empty_host(); !s.ok()) return s;
  const auto read = store.value()->load(0, blocks);
  if (!read.ok()) return read.status();
  out.read.push_back(static_cast<double>(kRoundBytes) / read.value() / 1e9);
  return {};
}

// Answers every request with an error.
class DownStore final : public ObjectStore {
 public:
  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return facts_; }
  void start(std::unique_ptr<ObjectRequest> request) override {
    request->code = Code::io_error;
    auto finished = std::move(request->finished);
    finished(std::move(request));
  }
  void cancel(uint64_t /*id*/) noexcept override {}
  std::unique_ptr<ObjectRequest> run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> /*late*/) override {
    request->code = Code::ok;  // only opening succeeds; later the store is down
    return request;
  }
  void close() noexcept override {}
  void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override {}

 private:
  tier::store::StoreFacts facts_;
};

// Returns the time of a lookup of 1,024 blocks on a store in back-off.
Result<double> lookup_in_back_off() {
  auto executor = ThreadExecutor::create("bench", 1);
  if (!executor.ok()) return executor.status();
  FamilyTable families;
  const auto family = families.intern(Family{});
  if (!family.ok()) return family.status();
  SystemRandom random;
  tier::store::StoreTierOptions options;
  options.poll_ns = 1'000'000;
  auto tier = tier::store::StoreTier::open(std::make_unique<DownStore>(), options, *executor.value(), families, random,
                                           nullptr, 1, nullptr);
  if (!tier.ok()) return tier.status();
  while (tier.value()->stats().store.backs_off == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::vector<Identity> ids(tier::kFoundAtOnce);
  for (Identity& id : ids) {
    id.family = family.value();
    random.fill(std::as_writable_bytes(std::span(id.key.bytes)));
  }
  std::vector<tier::Found> found(ids.size());
  std::vector<double> times;
  for (int i = 0; i < 1001; ++i) {
    const auto start = SteadyClock::now();
    tier.value()->find(ids, found, true);
    times.push_back(seconds_since(start));
  }
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  tier.value()->shutdown([&] {
    const std::lock_guard lock(mutex);
    over = true;
    ended.notify_all();
  });
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return over; });
  return median(times) * 1e6;
}

double index_bytes() {
  tier::store::StoreIndex index(uint64_t{4} << 30, 1);
  SeededRandom random(1);
  for (uint64_t n = 0; n < kIndexRecords; n += kPerPack) {
    tier::store::PackRow row;
    row.stamp = {n + 1, 1, 0};
    for (uint64_t i = 0; i < kPerPack; ++i) {
      tier::store::PackedRecord record;
      random.fill(std::as_writable_bytes(std::span(record.name.bytes)));
      record.payload_bytes = 65536;
      record.head_bytes = 184;
      record.offset = static_cast<uint32_t>(row.bytes);
      row.bytes += record.bytes();
      row.records.push_back(record);
    }
    (void)index.add(row);
  }
  return static_cast<double>(index.memory_bytes()) / static_cast<double>(index.records());
}

}  // namespace

Result<std::vector<Row>> bench_object_store(const ObjectStoreOptions& options) {
  auto raw = RawStore::open(options.url);
  if (!raw.ok()) return raw.status();
  const auto there = raw.value()->names("v1/");
  if (!there.ok()) return there.status();
  if (!there.value().empty()) {
    return Status(Code::exists, "the store is not empty",
                  "give a URL of a place that nothing uses: what is there is removed at the end");
  }
  const size_t objects = kRoundBytes / kObject;
  Speeds of_raw;
  Speeds ours[std::size(kBlockSizes)];
  terminal::Progress progress("bench store", static_cast<uint64_t>(options.rounds) * (std::size(kBlockSizes) + 1),
                              terminal::Unit::items, options.quiet);
  for (int round = 0; round < options.rounds; ++round) {
    const auto written = raw.value()->transfer(Verb::put, objects, round);
    if (!written.ok()) return written.status();
    of_raw.write.push_back(written.value());
    const auto read = raw.value()->transfer(Verb::get, objects, round);
    if (!read.ok()) return read.status();
    of_raw.read.push_back(read.value());
    if (Status s = raw.value()->all(Verb::remove, objects, round); !s.ok()) return s;
    progress.advance(1);
    for (size_t i = 0; i < std::size(kBlockSizes); ++i) {
      if (Status s = measure_blocks(options.url, kBlockSizes[i], ours[i]); !s.ok()) return s;
      if (Status s = raw.value()->wipe(); !s.ok()) return s;
      progress.advance(1);
    }
  }
  std::vector<Row> out;
  for (size_t i = 0; i < std::size(kBlockSizes); ++i) {
    const std::string name = kBlockSizes[i].name;
    out.push_back(more_is_better("store.write." + name, median(ours[i].write), "GB/s", median(of_raw.write),
                                 "the store's own puts of 4 MiB"));
    out.push_back(more_is_better("store.read." + name, median(ours[i].read), "GB/s", median(of_raw.read),
                                 "the store's own gets of 4 MiB"));
  }
  const auto down = lookup_in_back_off();
  if (!down.ok()) return down.status();
  out.push_back(less_is_better("store.lookup_in_back_off", down.value(), "us", 1000, "1 ms for 1,024 blocks"));
  if (Status s = measure_beside_store(options.rounds, out); !s.ok()) return s;
  out.push_back(less_is_better("store.index_bytes", index_bytes(), "bytes", 48, "48 a record, of 10,000,000"));
  return out;
}

}  // namespace kvbm::benchmark
