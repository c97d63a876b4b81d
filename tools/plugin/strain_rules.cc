// Rules of many operations at once, of operations that are given up, and of what remains when a store is closed.
#include <dirent.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "plugin/store_bench.h"

namespace kvbm::plugin {

namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr size_t kMostInFlight = 256;
constexpr uint64_t kMostBytes = 64ULL << 20;  // in one rule's operations at a time

// Returns a version of one object. Versions differ in content and length, so a read of a mixture or a part matches
// none. The version's number is in the first 8 bytes.
Data version_of(uint64_t number) {
  Data data = content_of(number, 64 + (number * 7919) % 200'000);
  std::memcpy(data.data(), &number, sizeof number);
  return data;
}

std::string version_fault(const uint8_t* data, uint64_t bytes) {
  uint64_t number = 0;
  if (bytes < sizeof number)
    return "a get of an object that is replaced all the time gave " + std::to_string(bytes) + " bytes";
  std::memcpy(&number, data, sizeof number);
  const Data wanted = number < 1'000'000 ? version_of(number) : Data();
  if (wanted.size() == bytes && std::equal(wanted.begin(), wanted.end(), data)) return {};
  return "a get of an object that is replaced all the time gave bytes of no version that was put";
}

class FirstFault {
 public:
  void note(const std::string& fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fault_.empty()) fault_ = fault;
  }
  [[nodiscard]] std::string get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return fault_;
  }

 private:
  std::mutex mutex_;
  std::string fault_;
};

Outcome check_whole(StoreBench& bench) {
  const std::string name = bench.name("whole");
  if (std::string wrong = bench.put(name, version_of(0)); !wrong.empty()) return failed(wrong);
  FirstFault fault;
  std::atomic<uint64_t> next{1};
  std::atomic<uint64_t> read{0};
  std::atomic<bool> enough{false};
  const auto end = Clock::now() + std::chrono::nanoseconds(bench.limits().strain_ns);
  const auto over = [&] { return enough || (Clock::now() > end && read >= 20) || bench.store().is_stuck(); };
  const auto write = [&] {
    while (!over()) {
      const std::string wrong = bench.put(name, version_of(next.fetch_add(1)));
      if (!wrong.empty()) fault.note(wrong);
      if (!wrong.empty()) enough = true;
    }
  };
  const auto look = [&] {
    while (!over()) {
      Operation& get = bench.store().run({.kind = KVBM_STORE_GET, .name = name, .bytes = 300'000});
      const std::string wrong = get.ok() ? version_fault(get.data(), get.done()) : "a get: " + get.answer();
      if (!wrong.empty()) fault.note(wrong);
      if (!wrong.empty()) enough = true;
      get.forget_data();
      read.fetch_add(1);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(write);
  for (int i = 0; i < 2; ++i) threads.emplace_back(look);
  for (std::thread& thread : threads) thread.join();
  if (!fault.get().empty()) return failed(fault.get());
  return passed(std::to_string(read) + " reads of " + std::to_string(next) + " versions");
}

// Runs four threads, each with a batch of puts, then gets, then removes of its own.
Outcome check_in_flight(StoreBench& bench) {
  const size_t each = std::min<size_t>(kMostInFlight, 4ULL * bench.store().concurrency()) / 4 + 1;
  FirstFault fault;
  const auto run = [&](size_t thread) {
    const auto name_of = [&](size_t i) {
      return bench.prefix() + "/many/" + std::to_string(thread) + "-" + std::to_string(i);
    };
    for (const uint32_t kind : {KVBM_STORE_PUT, KVBM_STORE_GET, KVBM_STORE_REMOVE}) {
      std::vector<Request> requests;
      for (size_t i = 0; i < each; ++i) {
        Request request{.kind = kind, .name = name_of(i)};
        if (kind == KVBM_STORE_PUT) request.data = content_of(thread * each + i, 10'000);
        if (kind == KVBM_STORE_GET) request.bytes = 10'000;
        requests.push_back(std::move(request));
      }
      const std::vector<Operation*> started = bench.store().start(std::move(requests));
      for (size_t i = 0; i < each; ++i) {
        Operation* one = started[i];
        (void)bench.store().wait(*one);
        if (one->is_finished() && one->status() == KVBM_ERR_AGAIN) {
          Request again{.kind = kind, .name = name_of(i)};
          if (kind == KVBM_STORE_PUT) again.data = content_of(thread * each + i, 10'000);
          if (kind == KVBM_STORE_GET) again.bytes = 10'000;
          one = &bench.store().run(again);
        }
        if (!one->ok()) return fault.note("one of many operations at once: " + one->answer());
        const bool good =
            kind != KVBM_STORE_GET || (one->done() == 10'000 && is_content_of(thread * each + i, one->data(), 10'000));
        if (!good) return fault.note("one of many gets at once gave other bytes than were put");
      }
    }
  };
  for (size_t thread = 0; thread < 4; ++thread) {
    for (size_t i = 0; i < each; ++i) (void)bench.name("many/" + std::to_string(thread) + "-" + std::to_string(i));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
  return fault.get().empty() ? passed(std::to_string(4 * each) + " at a time") : failed(fault.get());
}

size_t large_bytes(StoreBench& bench) {
  const auto& facts = bench.store().facts();
  const uint64_t most = facts.max_object_bytes == 0 ? UINT64_MAX : facts.max_object_bytes;
  return std::min({bench.store().object_bytes(), most, kMostBytes / 4});
}

// Checks the result of a put that was given up: the complete object, or nothing.
std::string expect_all_or_nothing(StoreBench& bench, const std::string& name, const Data& data) {
  Operation& get = bench.store().run({.kind = KVBM_STORE_GET, .name = name, .bytes = data.size() + 100});
  if (get.is_finished() && get.status() == KVBM_ERR_MISS) return {};
  const bool whole = get.ok() && get.done() == data.size() && std::equal(data.begin(), data.end(), get.data());
  get.forget_data();
  return whole ? ""
               : "a put that timed out or was cancelled left a part of an object: " + get.answer() + ", " +
                     std::to_string(get.done()) + " bytes";
}

Outcome check_short_times(StoreBench& bench) {
  const std::string name = bench.name("short");
  const Data data = content_of(5, large_bytes(bench));
  std::vector<Request> requests;
  requests.push_back({.kind = KVBM_STORE_PUT, .name = name, .data = data, .timeout_ns = kMillisecond});
  requests.push_back({.kind = KVBM_STORE_GET, .name = name, .bytes = data.size(), .timeout_ns = kMillisecond});
  requests.push_back(
      {.kind = KVBM_STORE_LIST, .name = bench.prefix(), .bytes = KVBM_STORE_LIST_BYTES, .timeout_ns = kMillisecond});
  requests.push_back({.kind = KVBM_STORE_REMOVE, .name = name + "-", .timeout_ns = 1});
  double slowest = 0;
  for (Operation* one : bench.store().start(std::move(requests))) {
    (void)bench.store().wait(*one);
    if (!one->is_finished()) return failed("an operation with 1 ms was not finished within the grace");
    slowest = std::max(slowest, one->seconds());
    one->forget_data();
  }
  const double most = 0.001 + static_cast<double>(bench.limits().operations.grace_ns) / 1e9;
  if (slowest > most) return failed("an operation with 1 ms was finished after " + std::to_string(slowest) + " s");
  if (std::string wrong = expect_all_or_nothing(bench, name, data); !wrong.empty()) return failed(wrong);
  return passed("the slowest took " + std::to_string(static_cast<int>(slowest * 1000)) + " ms");
}

Outcome check_cancel(StoreBench& bench) {
  if (!bench.store().can_cancel()) return skipped("it has no cancel");
  const Data data = content_of(6, large_bytes(bench));
  double slowest = 0;
  size_t given_up = 0;
  for (int round = 0; round < 8; ++round) {
    const std::string name = bench.name("cancelled-" + std::to_string(round));
    std::vector<Request> requests;
    requests.push_back({.kind = KVBM_STORE_PUT, .name = name, .data = data});
    requests.push_back({.kind = KVBM_STORE_GET, .name = name, .bytes = data.size()});
    requests.push_back({.kind = KVBM_STORE_LIST, .name = bench.prefix(), .bytes = KVBM_STORE_LIST_BYTES});
    const auto started = bench.store().start(std::move(requests));
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    const auto asked = Clock::now();
    for (Operation* one : started) bench.store().cancel(*one);
    for (Operation* one : started) {
      (void)bench.store().wait(*one);
      if (!one->is_finished()) return failed("an operation that was cancelled was never finished");
      slowest = std::max(slowest, std::chrono::duration<double>(one->ended() - asked).count());
      given_up += one->ok() ? 0 : 1;
      one->forget_data();
    }
    bench.store().cancel(*started.front());  // the operation has already finished
    if (std::string wrong = expect_all_or_nothing(bench, name, data); !wrong.empty()) return failed(wrong);
    if (std::string wrong = bench.remove(name); !wrong.empty()) return failed(wrong);
  }
  if (slowest > static_cast<double>(bench.limits().operations.grace_ns) / 1e9) {
    return failed("an operation was finished " + std::to_string(slowest) + " s after it was cancelled");
  }
  return passed(std::to_string(given_up) + " of 24 did not complete, the slowest ended after " +
                std::to_string(static_cast<int>(slowest * 1000)) + " ms");
}

Outcome check_expires(StoreBench& bench) {
  if ((bench.store().facts().features & KVBM_STORE_EXPIRES) == 0)
    return skipped("its facts do not promise that it removes objects");
  const std::string soon = bench.name("expires");
  const std::string late = bench.name("stays");
  for (const auto& [name, seconds] : {std::pair{soon, 1U}, std::pair{late, 3600U}}) {
    const Operation& put =
        bench.store().run({.kind = KVBM_STORE_PUT, .name = name, .data = content_of(2, 100), .expire_s = seconds});
    if (!put.ok()) return failed("a put that expires: " + put.answer());
  }
  const auto end = Clock::now() + 15 * std::chrono::nanoseconds(bench.limits().operations.grace_ns);
  while (!bench.expect_missing(soon).empty()) {
    if (Clock::now() > end) return failed("an object that expires after 1 s is still there long after");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const std::string wrong = bench.expect_data(late, content_of(2, 100));
  return wrong.empty() ? passed() : failed(wrong);
}

std::set<std::string> entries_of(const char* path) {
  struct Close {
    void operator()(DIR* open) const noexcept { ::closedir(open); }
  };
  std::set<std::string> out;
  const std::unique_ptr<DIR, Close> open(::opendir(path));
  const std::string own = open != nullptr ? std::to_string(::dirfd(open.get())) : "";
  while (const dirent* entry = open != nullptr ? ::readdir(open.get()) : nullptr) {
    if (entry->d_name[0] != '.' && entry->d_name != own) out.insert(entry->d_name);
  }
  return out;
}

Outcome check_close(StoreBench& bench) {
  bench.close();
  // The first round is not counted: what a library makes once and retains is not a leak.
  for (int i = 0; i < 2; ++i) {
    const size_t threads = entries_of("/proc/self/task").size();
    const size_t descriptors = entries_of("/proc/self/fd").size();
    for (int n = 0; n < 3; ++n) {
      if (std::string wrong = bench.open(); !wrong.empty()) return failed(wrong);
      if (std::string wrong = bench.put(bench.name("close"), content_of(1, 1000)); !wrong.empty()) return failed(wrong);
      if (std::string wrong = bench.expect_data(bench.prefix() + "/close", content_of(1, 1000)); !wrong.empty())
        return failed(wrong);
      bench.close();
    }
    if (i == 0) continue;
    // A thread that was joined may be in /proc for a moment.
    const auto end = Clock::now() + std::chrono::nanoseconds(bench.limits().operations.grace_ns);
    for (;;) {
      const size_t more_threads = entries_of("/proc/self/task").size();
      const size_t more_descriptors = entries_of("/proc/self/fd").size();
      if (more_threads <= threads && more_descriptors <= descriptors) break;
      if (Clock::now() > end) {
        return failed("after three stores were closed there are " + std::to_string(more_threads) + " threads and " +
                      std::to_string(more_descriptors) + " descriptors, before " + std::to_string(threads) + " and " +
                      std::to_string(descriptors));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const std::string wrong = bench.open();
  return wrong.empty() ? passed() : failed(wrong);
}

constexpr Rule kStrainRules[] = {
    {"whole", "a get sees a put that runs beside it whole or not at all", check_whole},
    {"in_flight", "many operations of several threads at once are all done", check_in_flight},
    {"short_times", "an operation is ended when its time is over, and a put is whole or not there then",
     check_short_times},
    {"cancel", "an operation that is cancelled is finished soon, and a put is whole or not there then", check_cancel},
    {"expires", "with KVBM_STORE_EXPIRES an object goes when expire_s is over", check_expires},
    {"close", "close() gives threads and descriptors back", check_close},
};

}  // namespace

std::span<const Rule> strain_rules() { return kStrainRules; }

}  // namespace kvbm::plugin
