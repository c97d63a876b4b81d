// Refuses every allocation of a whole life of the library once. A context with a host and a disk tier is made, used,
// closed and opened again in a child process, in which allocation number N fails. For every N, no call may crash or
// hang, and a call that fails reports refused memory. Loads never return wrong bytes, nothing leaks, and once memory is
// available again the old objects, or new ones on the same directory, work.
//
// Only allocations of the library are counted: those inside calls, or those of its threads, which wait for memory
// instead. A slice of the sites is tried, of one size on every machine; KVBMTEST_LONG=1 tries all,
// KVBMTEST_FAULT_SITE=N one, with its stack.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kvbm.h"
#include "support/counts.h"
#include "support/refusing_allocator.h"
#include "support/temp_dir.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace kvbm::test::allocation_test {
namespace {

constexpr size_t kBytes = 4096;
constexpr size_t kEngine = 32;
constexpr size_t kChain = 8;
constexpr size_t kHostBlocks = 24;
// Deadline of calls that end by themselves, also on a busy machine.
constexpr uint64_t kPatienceNs = 60'000'000'000;

// Exit status of a child.
enum Verdict { kRecovered = 0, kWrongStatus = 10, kWrongBytes = 11, kNotRecovered = 12, kLeak = 13, kNoFault = 20 };

[[noreturn]] void fail(Verdict why, const char* what, kvbm_status_t status = 0) {
  std::fprintf(stderr, "  site %llu: %s (%s)\n", static_cast<unsigned long long>(fault.at.load()), what,
               kvbm_status_name(status));
  std::_Exit(why);
}

// Makes a call into the library; its allocations count.
template <class Fn>
auto inside(Fn&& call) {
  memory_place = Place::caller;
  auto result = call();
  memory_place = Place::nowhere;
  return result;
}
template <class Fn>
void ending(Fn&& call) {
  memory_place = Place::caller;
  call();
  memory_place = Place::nowhere;
}

// Returns whether a call succeeded; any other outcome than refused memory is a failure.
bool good(kvbm_status_t status, const char* what) {
  if (status == KVBM_OK) return true;
  if (!fault.fired) fail(kWrongStatus, what, status);
  if (status != KVBM_ERR_NO_MEMORY && status != KVBM_PARTIAL) fail(kWrongStatus, what, status);
  return false;
}
#define GOOD(call) good(inside([&] { return call; }), #call)

// Host memory alone; with a disk that is opened and searched; with one that is written too.
enum class Kind : uint8_t { host, disk_found, disk };

class Life {
 public:
  Life(std::string path, Kind kind) : path_(std::move(path)), kind_(kind), disk_(kind != Kind::host) {}

  // Uses everything of the interface once; returns false if memory was refused on the way.
  bool live() {
    if (!open()) return false;
    if (kind_ == Kind::disk_found) return load(0) && look();
    bool all = store(0) && load(0);
    all = care() && all;
    all = look() && all;
    all = pool() && all;
    all = queued() && all;
    if (kind_ == Kind::host) all = coded() && all;
    return GOOD(kvbm_manager_flush(manager_, kPatienceNs)) && all;
  }

  bool open() {
    kvbm_context_options_t options;
    kvbm_context_options_init(&options, sizeof options);
    kvbm_setting_t settings[] = {{"io.engine", "pread"}, {"host.huge_pages", "off"}};
    options.settings = settings, options.n_settings = 2;
    options.threads = 1;
    if (!GOOD(kvbm_context_create(&options, &context_, &error_))) return false;
    kvbm_tier_t tier{};
    tier.path = path_.c_str(), tier.capacity_bytes = 64 << 20;
    kvbm_manager_options_t how;
    kvbm_manager_options_init(&how, sizeof how);
    how.block_bytes = kBytes, how.host_capacity_bytes = 4096 + kHostBlocks * (kBytes + 384);
    how.tiers = &tier, how.n_tiers = disk_ ? 1 : 0;
    if (!GOOD(kvbm_manager_create(context_, &how, &manager_, &error_))) return false;
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "a model whose name is longer than a short string";
    if (!GOOD(kvbm_namespace_open(manager_, &who, &ns_, &error_))) return false;
    if (!GOOD(kvbm_queue_create(context_, 8, &queue_, &error_))) return false;
    if (!GOOD(kvbm_manager_subscribe(manager_, queue_))) return false;
    kvbm_tensor_t tensor{memory_.data(), memory_.size(), 0, kBytes};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE, part.tensors = &tensor, part.n_tensors = 1;
    kvbm_cache_options_t layout;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = kEngine, layout.parts = &part, layout.n_parts = 1;
    return GOOD(kvbm_cache_attach(manager_, ns_, &layout, &cache_, &error_));
  }

  void close() {
    ending([&] {
      kvbm_cache_release(cache_);
      kvbm_queue_release(queue_);
      kvbm_namespace_release(ns_);
      kvbm_manager_release(manager_);
      kvbm_context_release(context_);
    });
    cache_ = nullptr, queue_ = nullptr, ns_ = nullptr, manager_ = nullptr, context_ = nullptr;
  }

  // Stores a conversation of kChain blocks. The bytes of block i of conversation c are all c * 16 + i.
  bool store(uint32_t conversation) {
    std::array<kvbm_key_t, kChain> keys;
    if (!chain(conversation, keys)) return false;
    // Blocks on their way to the disk keep their slots in the host.
    if (!GOOD(kvbm_manager_flush(manager_, kPatienceNs))) return false;
    std::array<uint32_t, kChain> ids;
    for (uint32_t i = 0; i < kChain; ++i) {
      ids[i] = i;
      std::memset(block(i), static_cast<int>(conversation * 16 + i), kBytes);
    }
    return GOOD(kvbm_cache_store(cache_, keys.data(), ids.data(), kChain, nullptr, nullptr, 0));
  }

  // Loads a conversation and checks the bytes of the blocks found; `whole`: all of it must be there.
  bool load(uint32_t conversation, bool whole = false) {
    std::array<kvbm_key_t, kChain> keys;
    if (!chain(conversation, keys)) return false;
    kvbm_match_t* match = nullptr;
    size_t hits = 0;
    if (!GOOD(kvbm_cache_lookup(cache_, keys.data(), kChain, nullptr, &match, &hits))) return false;
    std::array<uint32_t, kChain> ids;
    std::array<kvbm_status_t, kChain> status;
    for (uint32_t i = 0; i < kChain; ++i) ids[i] = 16 + i;
    std::memset(block(16), 0xEE, kChain * kBytes);
    kvbm_load_options_t options;
    kvbm_load_options_init(&options, sizeof options);
    options.item_status = status.data();
    status.fill(KVBM_ERR_MISS);
    bool all = !whole || hits == kChain;
    if (match != nullptr) all = GOOD(kvbm_cache_load(cache_, match, ids.data(), hits, &options, nullptr, 0)) && all;
    for (uint32_t i = 0; i < hits; ++i) {
      if (status[i] != KVBM_OK) continue;
      const auto want = static_cast<unsigned char>(conversation * 16 + i);
      if (!std::all_of(block(16 + i), block(16 + i) + kBytes, [&](unsigned char b) { return b == want; })) {
        fail(kWrongBytes, "a load gave wrong bytes");
      }
    }
    ending([&] { kvbm_match_release(match); });
    return all;
  }

  // Checks that no failed call has kept a block: then all slots can be allocated at once. Only for a life without a
  // disk, because an offload in progress may hold blocks.
  bool nothing_is_held() {
    if (disk_ || cache_ == nullptr) return true;
    size_t n = 0;
    std::array<kvbm_block_t, kHostBlocks> held;
    if (!GOOD(kvbm_manager_unpin_owner(manager_, 7, &n))) return false;
    if (!GOOD(kvbm_manager_allocate(manager_, ns_, held.size(), held.data(), nullptr, 0, nullptr))) return false;
    return GOOD(kvbm_block_release(manager_, held.data(), held.size()));
  }

 private:
  unsigned char* block(uint32_t id) { return memory_.data() + id * kBytes; }

  bool chain(uint32_t conversation, std::array<kvbm_key_t, kChain>& keys) {
    std::array<uint32_t, kChain * 4> tokens;
    for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = conversation * 1000 + i;
    size_t n = 0;
    return GOOD(kvbm_key_chain(ns_, nullptr, tokens.data(), tokens.size(), 4, nullptr, keys.data(), kChain, &n));
  }

  bool care() {
    std::array<kvbm_key_t, kChain> keys;
    if (!chain(0, keys)) return false;
    bool all = GOOD(kvbm_manager_flush(manager_, kPatienceNs));
    for (uint32_t c = 1; c < 4; ++c) {  // evicts the first one from the host
      all = store(c) && all;
      all = GOOD(kvbm_manager_flush(manager_, kPatienceNs)) && all;
    }
    all = GOOD(kvbm_manager_prefetch(manager_, ns_, nullptr, keys.data(), kChain, nullptr, 0)) && all;
    all = load(0) && load(1) && all;
    all = GOOD(kvbm_manager_hint(manager_, ns_, nullptr, keys.data(), kChain, KVBM_PRIORITY_KEEP)) && all;
    kvbm_pin_t pin = 0;
    size_t n = 0;
    if (!GOOD(kvbm_manager_pin(manager_, ns_, nullptr, keys.data(), kChain, 7, KVBM_FOREVER, &pin, &n))) return false;
    if (pin != 0) all = GOOD(kvbm_manager_unpin(manager_, pin)) && all;
    return GOOD(kvbm_manager_unpin_owner(manager_, 7, &n)) && all;
  }

  bool look() {
    kvbm_event_t events[16];
    while (inside([&] { return kvbm_queue_poll_events(queue_, events, 16); }) != 0) {
    }
    kvbm_scan_row_t rows[8];
    uint64_t cursor = 0;
    size_t n = 0;
    do {
      if (!GOOD(kvbm_manager_scan(manager_, &cursor, rows, 8, &n))) return false;
    } while (cursor != 0);
    kvbm_manager_stats_t stats;
    stats.struct_size = sizeof stats;
    if (!GOOD(kvbm_manager_stats(manager_, &stats))) return false;
    char text[256];
    size_t needed = 0;
    return GOOD(kvbm_manager_metrics(manager_, text, sizeof text, &needed)) &&
           GOOD(kvbm_context_config(context_, text, sizeof text, &needed)) &&
           GOOD(kvbm_config_reference(text, sizeof text, &needed));
  }

  bool pool() {
    kvbm_block_t held[2];
    kvbm_key_t evicted[2];
    size_t n = 0;
    if (!GOOD(kvbm_manager_allocate(manager_, ns_, 2, held, evicted, 2, &n))) return false;
    const bool all = fill_and_use(held);
    if (inside([&] { return kvbm_block_release(manager_, held, 2); }) != KVBM_OK)
      fail(kWrongStatus, "a release failed");
    return all;
  }

  bool fill_and_use(kvbm_block_t* held) {
    kvbm_view_t views[2];
    if (!GOOD(kvbm_block_view(manager_, held, 2, views))) return false;
    std::array<kvbm_key_t, kChain> keys;
    if (!chain(9, keys)) return false;
    for (uint32_t i = 0; i < 2; ++i) std::memset(views[i].data, static_cast<int>(9 * 16 + i), kBytes);
    if (!GOOD(kvbm_manager_complete(manager_, held, 2, nullptr))) return false;
    if (!GOOD(kvbm_manager_register(manager_, ns_, held, keys.data(), 2, nullptr))) return false;
    kvbm_block_t more[2];
    if (!GOOD(kvbm_block_clone(manager_, held, 2, more))) return false;
    kvbm_block_t weak[2];
    const bool all = GOOD(kvbm_block_downgrade(manager_, held, 2, weak));
    if (inside([&] { return kvbm_block_release(manager_, more, 2); }) != KVBM_OK)
      fail(kWrongStatus, "a release failed");
    if (!all) return false;
    if (GOOD(kvbm_block_upgrade(manager_, weak, 2, more))) ending([&] { kvbm_block_release(manager_, more, 2); });
    ending([&] { kvbm_block_release(manager_, weak, 2); });
    return load(9);
  }

  bool queued() {
    std::array<kvbm_key_t, kChain> keys;
    if (!chain(5, keys)) return false;
    std::array<uint32_t, kChain> ids;
    for (uint32_t i = 0; i < kChain; ++i) ids[i] = i, std::memset(block(i), static_cast<int>(5 * 16 + i), kBytes);
    bool all = GOOD(kvbm_cache_store(cache_, keys.data(), ids.data(), kChain, nullptr, queue_, 1)) && completed();
    all = load(5) && all;
    if (!GOOD(kvbm_namespace_reset(ns_, &error_))) return false;
    return store(0) && all;
  }
  // Codes blocks into a buffer of the caller's and decodes them into other blocks, without a tier.
  // fault/coding_calls_test refuses every allocation of these calls, also on a device.
  bool coded() {
    constexpr std::array<uint32_t, 3> from{0, 5, 2}, to{20, 18, 25};
    kvbm_cache_code_options_t form;
    kvbm_cache_code_options_init(&form, sizeof form);
    form.element = KVBM_ELEMENT_BF16, form.row_elements = 64, form.rows = 32;
    uint64_t room = 0;
    if (!GOOD(kvbm_cache_code_room(cache_, from.size(), &form, &room, &error_))) return false;
    std::vector<unsigned char> buffer(room), plain(from.size() * kBytes);
    for (const uint32_t id : from) std::memset(block(id), static_cast<int>(16 + id), kBytes);
    bool all = true;
    for (const uint32_t mode : {KVBM_CODEC_DEFAULT, KVBM_CODEC_INT8}) {
      size_t bytes = 0;
      form.flags = 0;
      if (!GOOD(
              kvbm_cache_encode(cache_, from.data(), from.size(), mode, &form, buffer.data(), room, &bytes, &error_))) {
        all = false;
        continue;
      }
      form.flags = KVBM_CODEC_ALLOW_LOSSY;
      if (!GOOD(kvbm_cache_decode(cache_, buffer.data(), bytes, to.data(), to.size(), &form, &error_))) {
        all = false;
        continue;
      }
      size_t decoded = 0;
      if (kvbm_codec_decode(buffer.data(), bytes, form.flags, plain.data(), plain.size(), &decoded, &error_) !=
          KVBM_OK) {
        fail(kWrongBytes, "what was coded does not decode");
      }
      for (size_t i = 0; i < to.size(); ++i) {
        const bool exact = mode == KVBM_CODEC_DEFAULT;
        const unsigned char* const want = exact ? block(from[i]) : plain.data() + i * kBytes;
        if (std::memcmp(block(to[i]), want, kBytes) != 0) fail(kWrongBytes, "a coded block came back wrong");
      }
    }
    return all;
  }

  bool completed() {
    kvbm_completion_t c{};
    if (inside([&] { return kvbm_queue_wait(queue_, &c, 1, kPatienceNs); }) != 1) fail(kWrongStatus, "no completion");
    return good(c.status, "a completion");
  }

  const std::string path_;
  const Kind kind_;
  const bool disk_;
  std::vector<unsigned char> memory_ = std::vector<unsigned char>(kEngine * kBytes);
  kvbm_error_t error_{};
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  kvbm_queue_t* queue_ = nullptr;
  kvbm_cache_t* cache_ = nullptr;
};

// Runs the child: one life with the fault, then calls that must work again.
[[noreturn]] void child(const std::string& path, Kind kind, uint64_t site) {
  alarm(180);  // a call that never returns
  {
    Life life(path, kind);
    fault.at = site;
    fault.counting = true;
    bool whole = life.live();
    if (whole) {
      life.close();
      whole = life.open() && life.load(0);
    }
    fault.counting = false;
    const bool fired = fault.fired;
    fault.fired = false;
    if (whole && (!life.store(6) || !life.load(6, true))) fail(kNotRecovered, "the same objects do not work");
    if (!life.nothing_is_held()) fail(kNotRecovered, "a failed call kept blocks");
    life.close();
    if (!life.open() || !life.store(7) || !life.load(7, true)) fail(kNotRecovered, "new objects do not work");
    life.close();
    fault.fired = fired;
  }
#if defined(__SANITIZE_ADDRESS__)
  if (__lsan_do_recoverable_leak_check() != 0) std::_Exit(kLeak);
#endif
  std::_Exit(fault.fired ? kRecovered : kNoFault);
}

// Runs a child and returns its end: a Verdict, or 100 + the signal.
int run(const std::string& path, Kind kind, uint64_t site) {
  const pid_t pid = fork();
  if (pid == 0) child(path, kind, site);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
  return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Lives of the slice, and the fewest sites that a kind must have.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kLives = 24;
#else
constexpr uint64_t kLives = 128;
#endif
constexpr uint64_t kLeast = 16;

void refuse_each(Kind kind, Place whose) {
  memory_place = Place::nowhere;
  fault.where = whose;
  TempDir folder;
  // Writes records for a life with a disk to find; the directory is reused, as after any failed start.
  ASSERT_EQ(run(folder.path(), kind, 0), kNoFault) << "the life without a fault";
  if (const char* one = std::getenv("KVBMTEST_FAULT_SITE")) {
    fault.print = true;
    EXPECT_EQ(run(folder.path(), kind, std::strtoull(one, nullptr, 10)), kRecovered);
    return;
  }
  const bool all = std::getenv("KVBMTEST_LONG") != nullptr;
  uint64_t sites = 64;
  while (run(folder.path(), kind, sites) != kNoFault && sites < (1 << 20)) sites *= 2;
  uint64_t tried = 0;
  std::map<int, std::vector<uint64_t>> ended;
  for (uint64_t i = 0; i < sites; ++i) {
    const uint64_t site = 1 + (i * (all ? 1 : 7919)) % sites;  // prime: a slice is spread over all of the life
    const int verdict = run(folder.path(), kind, site);
    if (verdict == kNoFault) continue;
    ++tried;
    ended[verdict].push_back(site);
    if (!all && tried == kLives) break;
  }
  kvbm::test::counted(tried, "faults at sites of allocations");
  std::printf("%llu allocations refused, one a life, of fewer than %llu\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(sites));
  EXPECT_GE(tried, kLeast);
  for (const auto& [verdict, where] : ended) {
    if (verdict == kRecovered) continue;
    std::string list;
    for (const uint64_t site : where) list.append(" ").append(std::to_string(site));
    ADD_FAILURE() << "verdict " << verdict << " (100 + n: signal n) at " << where.size() << " sites:" << list;
  }
}

TEST(AllocationFaults, a_refused_allocation_is_an_error_and_nothing_worse_with_host_memory_alone) {
  refuse_each(Kind::host, Place::caller);
}

TEST(AllocationFaults, a_refused_allocation_is_an_error_and_nothing_worse_when_a_disk_tier_is_opened_and_searched) {
  refuse_each(Kind::disk_found, Place::caller);
}

TEST(AllocationFaults, a_refused_allocation_is_an_error_and_nothing_worse_when_a_disk_tier_is_written) {
  refuse_each(Kind::disk, Place::caller);
}

TEST(AllocationFaults, a_thread_of_the_library_waits_for_memory) { refuse_each(Kind::disk, Place::library); }

}  // namespace
}  // namespace kvbm::test::allocation_test
