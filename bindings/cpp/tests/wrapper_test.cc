// Additions of kvbm.hpp to kvbm.h: errors, ownership, checked sizes, memory that outlives its submission. Also compares
// constants.json with the header.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <kvbm.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlock = 8192, kSecond = 1000000000;

kvbm::Manager manager_of(const kvbm::Context& context, uint64_t blocks = 32, const kvbm_tier_t* tier = nullptr) {
  auto options = kvbm::manager_options();
  options.block_bytes = kBlock;
  options.host_capacity_bytes = 4096 + blocks * (kBlock + 384);
  options.tiers = tier;
  options.n_tiers = tier != nullptr;
  return kvbm::Manager(context, options);
}

kvbm::Namespace namespace_of(kvbm::Manager& manager) {
  auto options = kvbm::namespace_options();
  options.model = "test model";
  return manager.open(options);
}

kvbm::Keys keys_of(const kvbm::Namespace& ns, uint32_t first, std::size_t n) {
  std::vector<uint32_t> tokens(n * 4);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = first + i;
  return ns.chain(tokens, 4);
}

struct World {
  explicit World(uint64_t blocks = 32, const kvbm_tier_t* tier = nullptr)
      : manager(manager_of(context, blocks, tier)), ns(namespace_of(manager)) {}
  kvbm::Context context;
  kvbm::Manager manager;
  kvbm::Namespace ns;
};

kvbm::Cache attach(World& world, std::vector<uint8_t>& memory) {
  const kvbm_tensor_t tensor = {memory.data(), memory.size(), 0, kBlock};
  const kvbm_cache_part_t part = {{}, KVBM_FORM_OPAQUE, 0, &tensor, 1, {}};
  auto layout = kvbm::cache_options();
  layout.n_blocks = static_cast<uint32_t>(memory.size() / kBlock), layout.parts = &part, layout.n_parts = 1;
  return kvbm::Cache(world.manager, world.ns, layout);
}

// Returns the status that a call throws; KVBM_OK if it throws none.
template <class Call>
kvbm_status_t thrown(Call&& call) {
  try {
    call();
  } catch (const kvbm::Error& error) {
    return error.status();
  }
  return KVBM_OK;
}

struct Directory {
  Directory() {
    std::string name = (fs::temp_directory_path() / "kvbm-cpp-XXXXXX").string();
    path = mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

TEST(Error, has_status_name_band_and_words) {
  const kvbm_setting_t wrong[] = {{"no.such.option", "1"}};
  try {
    kvbm::Context context{kvbm::Span<const kvbm_setting_t>(wrong)};
    FAIL();
  } catch (const kvbm::Error& error) {
    EXPECT_EQ(error.status(), KVBM_ERR_CONFIG);
    EXPECT_STREQ(error.name(), "KVBM_ERR_CONFIG");
    EXPECT_EQ(error.band(), kvbm::Band::caller);
    EXPECT_NE(std::string(error.what()).find("no.such.option"), std::string::npos);
  }
  EXPECT_EQ(kvbm::band_of(KVBM_ERR_QUOTA), kvbm::Band::no_room);
  EXPECT_EQ(kvbm::band_of(KVBM_ERR_CLOSED), kvbm::Band::time_or_peer);
  EXPECT_EQ(kvbm::band_of(KVBM_ERR_DAMAGED), kvbm::Band::miss);
  EXPECT_EQ(kvbm::band_of(KVBM_ERR_VERSION), kvbm::Band::unavailable);
  EXPECT_EQ(kvbm::band_of(KVBM_ERR_TIER_DISABLED), kvbm::Band::internal);
  EXPECT_EQ(kvbm::band_of(KVBM_PARTIAL), kvbm::Band::none);
}

TEST(Handles, refuse_calls_when_closed_and_close_twice) {
  World w;
  std::vector<uint8_t> memory(4 * kBlock);
  kvbm::Queue queue(w.context, 4);
  kvbm::Cache cache = attach(w, memory);
  const kvbm::Keys keys = keys_of(w.ns, 1, 1);
  const std::vector<uint32_t> ids = {0};
  const kvbm::Match nothing = cache.lookup(keys);
  EXPECT_EQ(nothing.hits() + nothing.count() + nothing.units() + nothing.items().size(), 0u);
  EXPECT_EQ(thrown([&] { (void)nothing.blocks(0, 1); }), KVBM_ERR_INVALID);
  for (int twice = 0; twice < 2; ++twice) {
    queue.close(), cache.close(), w.ns.close(), w.manager.close(), w.context.close();
  }
  EXPECT_EQ(thrown([&] { (void)cache.lookup(keys); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { cache.store(keys, ids); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { cache.store(keys, ids, queue, 1); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { cache.load(nothing, ids); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)keys_of(w.ns, 1, 1); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { w.ns.invalidate(); }), KVBM_ERR_INVALID);
  EXPECT_EQ(w.ns.id(), kvbm::Id{});
  EXPECT_EQ(thrown([&] { (void)w.manager.allocate(w.ns, 1); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.manager.stats(); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.manager.metrics(); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { w.manager.flush(0); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)manager_of(w.context); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.context.config(); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)kvbm::Queue(w.context, 1); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { queue.cancel(1); }), KVBM_ERR_INVALID);
  kvbm_completion_t room[1];
  kvbm_event_t events[1];
  EXPECT_EQ(queue.poll(room) + queue.wait(room, 0) + queue.poll_events(events), 0u);
  EXPECT_LT(queue.fd(), 0);
}

TEST(Handles, are_moved_and_what_was_moved_from_is_closed) {
  World w;
  kvbm::Context context = std::move(w.context);
  EXPECT_FALSE(w.context);
  EXPECT_TRUE(context);
  kvbm::Blocks blocks = w.manager.allocate(w.ns, 2);
  const auto ids = blocks.ids();
  kvbm::Blocks other = std::move(blocks);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(other.ids(), ids);
  other = w.manager.allocate(w.ns, 1);  // the two are released
  EXPECT_EQ(w.manager.stats().holds, 1u);
  static_assert(!std::is_copy_constructible_v<kvbm::Context> && !std::is_copy_constructible_v<kvbm::Blocks> &&
                !std::is_copy_constructible_v<kvbm::Manager> && !std::is_copy_constructible_v<kvbm::Queue>);
}

TEST(Arrays, that_do_not_agree_in_length_are_refused) {
  World w;
  std::vector<uint8_t> memory(4 * kBlock);
  kvbm::Cache cache = attach(w, memory);
  kvbm::Blocks blocks = w.manager.allocate(w.ns, 2);
  const kvbm::Keys keys = keys_of(w.ns, 1, 3);
  const std::vector<uint32_t> ids = {0, 1};
  std::vector<kvbm_view_t> views(3);
  const std::vector<uint64_t> bytes = {1, 2, 3};
  kvbm::Queue queue(w.context, 4);
  EXPECT_EQ(thrown([&] { blocks.view(views); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { blocks.complete(bytes); }), KVBM_ERR_INVALID);
  blocks.complete();
  EXPECT_EQ(thrown([&] { blocks.publish(w.ns, keys); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { cache.store(keys, ids); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { cache.store(keys, ids, queue, 1); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.ns.from_hashes(memory, 3); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.ns.from_hashes(memory, 0); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.ns.from_hashes(std::vector<uint8_t>(30), 15); }), KVBM_ERR_INVALID);
  const kvbm_extra_t extras[1] = {{nullptr, 0}};
  EXPECT_EQ(thrown([&] { (void)w.ns.chain(std::vector<uint32_t>(8), 4, nullptr, extras); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { (void)w.ns.chain(std::vector<uint32_t>(8), 0); }), KVBM_ERR_INVALID);
}

TEST(Namespace, takes_a_geometry_beside_the_options_alone) {
  World w;
  kvbm_component_t component{};
  component.element = KVBM_ELEMENT_BF16;
  component.layers = component.heads = component.head_dim = 2;
  kvbm::Geometry geometry(4, 3, {&component, 1});
  auto options = kvbm::namespace_options();
  options.model = "m";
  EXPECT_EQ(w.manager.open(options, &geometry).units(), 3u);
  options.geometry = geometry.get();
  EXPECT_EQ(thrown([&] { (void)w.manager.open(options); }), KVBM_ERR_INVALID);
  options.geometry = nullptr;
  geometry.close();
  EXPECT_EQ(thrown([&] { (void)w.manager.open(options, &geometry); }), KVBM_ERR_INVALID);
}

TEST(Blocks, outlive_the_objects_that_gave_them) {
  kvbm::Blocks blocks;
  {
    World w;
    blocks = w.manager.allocate(w.ns, 2);
  }
  const auto views = blocks.view();
  static_cast<uint8_t*>(views[1].data)[views[1].bytes - 1] = 7;
  EXPECT_EQ(views[0].bytes, kBlock);
  blocks.release();
  EXPECT_TRUE(blocks.empty());
  blocks.release();
}

TEST(Blocks, of_a_refused_call_are_still_held) {
  World w(4);
  kvbm::Blocks blocks = w.manager.allocate(w.ns, 4);
  EXPECT_EQ(thrown([&] { (void)w.manager.allocate(w.ns, 1); }), KVBM_ERR_NO_ROOM);
  EXPECT_EQ(thrown([&] { (void)blocks.clone(); }), KVBM_ERR_STATE);
  EXPECT_EQ(w.manager.stats().holds, 4u);
  const auto ids = blocks.detach();
  EXPECT_EQ(w.manager.stats().holds, 4u);
  kvbm::Blocks(w.manager.share_pointer(), ids).release();
  EXPECT_EQ(thrown([&] { kvbm::Blocks(w.manager.share_pointer(), ids).release(); }), KVBM_ERR_STALE);
}

TEST(Queue, keeps_item_statuses_until_the_completion_was_taken) {
  World w;
  std::vector<uint8_t> memory(8 * kBlock, 3);
  kvbm::Cache cache = attach(w, memory);
  kvbm::Queue queue(w.context, 64);
  const std::vector<uint32_t> ids = {0, 1, 2, 3};
  for (uint32_t i = 0; i < 32; ++i)
    cache.store(keys_of(w.ns, 100 * i, 4), ids, queue, i);  // the Submission is dropped
  std::size_t taken = 0;
  kvbm_completion_t done[8];
  while (taken < 32) {
    const std::size_t n = queue.wait(done, 10 * kSecond);
    ASSERT_NE(n, 0u);
    taken += n;
  }
  kvbm::Submission last = cache.store(keys_of(w.ns, 1, 4), ids, queue, 1);
  EXPECT_EQ(queue.wait(done, 10 * kSecond), 1u);
  EXPECT_EQ(done[0].operation, last.operation);
  EXPECT_EQ(*last.items, std::vector<kvbm_status_t>(4, KVBM_OK));
  EXPECT_EQ(queue.wait(done, 0), 0u);
}

// The disk is so slow that the load is in progress when its queue ends.
TEST(Queue, ends_with_operations_under_way) {
  const Directory directory;
  kvbm_tier_t tier{};
  tier.path = directory.path.c_str();
  tier.capacity_bytes = 64u << 20;
  tier.read_bytes_per_s = 4 * kBlock;
  World w(16, &tier);
  std::vector<uint8_t> memory(8 * kBlock, 3);
  kvbm::Cache cache = attach(w, memory);
  const kvbm::Keys keys = keys_of(w.ns, 1, 4);
  const std::vector<uint32_t> ids = {0, 1, 2, 3};
  cache.store(keys, ids);
  w.manager.flush(10 * kSecond);
  w.manager.allocate(w.ns, 16).release();
  auto options = kvbm::load_options();
  options.keep_below = 1;
  cache.load(cache.lookup(keys), ids, &options);  // uses up what the disk gives for a second
  kvbm::Queue queue(w.context, 4);
  const kvbm::Match match = cache.lookup(keys);
  ASSERT_EQ(match.hits(), 4u);
  const auto items = cache.load(match, ids, queue, 1).items;
  EXPECT_EQ(items.use_count(), 2) << "the queue keeps it";
  queue.close();
  EXPECT_EQ(items.use_count(), 1);
  EXPECT_EQ(std::count(items->begin(), items->end(), KVBM_OK), 0) << "it was ended before the disk gave anything";
}

TEST(Queue, is_used_by_several_threads) {
  World w(64);
  std::vector<uint8_t> memory(64 * kBlock, 3);
  kvbm::Cache cache = attach(w, memory);
  kvbm::Queue queue(w.context, 256);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 40; ++i) {
        const std::vector<uint32_t> ids = {t};
        cache.store(keys_of(w.ns, 1000 * t + i, 1), ids, queue, t);
      }
    });
  }
  std::size_t taken = 0;
  kvbm_completion_t done[4];
  while (taken < 120) {
    const std::size_t n = queue.wait(done, 10 * kSecond);
    ASSERT_NE(n, 0u);
    taken += n;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(queue.poll(done), 0u);
}

// Counts open files or threads of the process; sanitizers find leaked memory.
std::size_t entries(const char* directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(Leaks, there_are_none_of_descriptors_and_threads) {
  const auto once = [] {
    World w;
    std::vector<uint8_t> memory(4 * kBlock);
    kvbm::Cache cache = attach(w, memory);
    kvbm::Queue queue(w.context, 4);
    const kvbm::Keys keys = keys_of(w.ns, 1, 2);
    const std::vector<uint32_t> ids = {0, 1};
    cache.store(keys, ids, queue, 1);
    const kvbm::Match match = w.manager.lookup(w.ns, keys);
    EXPECT_EQ(thrown([&] { (void)w.manager.allocate(w.ns, 1000); }), KVBM_ERR_NO_ROOM);
  };
  once();
  const std::size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int i = 0; i < 30; ++i) once();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

// Returns true if the child exits with this status.
template <class Call>
bool child_sees(kvbm_status_t status, Call&& call) {
  const pid_t child = fork();
  if (child == 0) _exit(thrown(call) == status ? 0 : 1);
  int result = 1;
  return child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

TEST(Fork, gives_the_child_errors_and_nothing_else) {
  World w;
  const kvbm::Keys keys = keys_of(w.ns, 1, 1);
  EXPECT_TRUE(child_sees(KVBM_ERR_FORKED, [&] { (void)w.manager.allocate(w.ns, 1); }));
  EXPECT_TRUE(child_sees(KVBM_ERR_FORKED, [&] { (void)w.manager.lookup(w.ns, keys); }));
  EXPECT_TRUE(child_sees(KVBM_ERR_FORKED, [&] { (void)manager_of(w.context); }));
  EXPECT_EQ(w.manager.lookup(w.ns, keys).hits(), 0u);
}

TEST(Texts, say_what_is_closed_and_give_numbers_that_have_no_name) {
  World w;
  kvbm::Queue queue(w.context, 1);
  EXPECT_EQ(kvbm::to_string(queue), "kvbm::Queue()");
  queue.close();
  w.ns.close();
  EXPECT_EQ(kvbm::to_string(queue), "kvbm::Queue(closed)");
  std::ostringstream out;
  out << w.ns;
  EXPECT_EQ(out.str(), "kvbm::Namespace(closed)");
  EXPECT_EQ(kvbm::op_name(99), "operation 99");
  EXPECT_EQ(kvbm::event_name(99), "event 99");
  EXPECT_EQ(kvbm::tier_name(2) + kvbm::tier_name(KVBM_NO_TIER), "tier 2no tier");
  EXPECT_EQ(kvbm::to_string(std::vector<kvbm_status_t>{KVBM_OK, KVBM_ERR_MISS}), "[KVBM_OK, KVBM_ERR_MISS]");
}

TEST(Constants, are_those_of_the_header) {
  std::ifstream json(CONSTANTS);
  std::stringstream text;
  for (const fs::directory_entry& entry : fs::directory_iterator(KVBM_HEADERS)) {
    const std::string name = entry.path().filename().string();
    // Constants of kvbm_plugin.h are for tables of C functions: no language wraps them.
    if (name == "kvbm_plugin.h") continue;
    if (name.rfind("kvbm", 0) == 0 && entry.path().extension() == ".h") text << std::ifstream(entry.path()).rdbuf();
  }
  const std::string all = text.str();
  nlohmann::json expected = {{"KVBM_MANAGER_SHARE", KVBM_MANAGER_SHARE},
                             {"KVBM_NO_TIER", KVBM_NO_TIER},
                             {"KVBM_NO_BLOCK", KVBM_NO_BLOCK},
                             {"KVBM_CODEC_ALLOW_LOSSY", KVBM_CODEC_ALLOW_LOSSY}};
  const std::regex constant("\\b(KVBM_[A-Z0-9_]+) = (-?[0-9]+)");
  for (std::sregex_iterator it(all.begin(), all.end(), constant); it != std::sregex_iterator(); ++it) {
    expected[(*it)[1].str()] = std::stol((*it)[2].str());
  }
  EXPECT_GT(expected.size(), 90u);
  EXPECT_EQ(nlohmann::json::parse(json), expected);
}

}  // namespace
