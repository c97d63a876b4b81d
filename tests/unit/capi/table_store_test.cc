// A store's C table, contained: what it finishes twice, never, or with lengths that cannot be.
#include "capi/plugin/table_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

namespace kvbm::test::table_store_test {
namespace {

using capi::TableStore;
using tier::store::Buffer;
using tier::store::ObjectRequest;
using tier::store::Verb;

// How the store table below treats an operation.
enum class Does { finishes, twice, another, too_much, bad_status, holds, keeps };

struct World {
  std::atomic<Does> does{Does::finishes};
  std::atomic<int> opened{0}, closed{0}, started{0}, cancelled{0};
  const kvbm_store_config_t* config = nullptr;
  std::mutex mutex;
  std::vector<kvbm_store_op_t*> held;
  kvbm_status_t opens = KVBM_OK;
  uint32_t features = 0;
};
World* world = nullptr;

kvbm_status_t open_store(const kvbm_store_config_t* config, uint64_t, kvbm_store_facts_t* facts, void** out,
                         char message[256]) {
  ++world->opened;
  world->config = config;
  facts->features = world->features;
  facts->concurrency = 3;
  std::snprintf(facts->description, sizeof facts->description, "%s://%s%s\n", config->scheme, config->authority,
                config->path);
  if (world->opens != KVBM_OK) std::snprintf(message, 256, "the bucket is not there; make it");
  *out = world;
  return world->opens;
}

void start_ops(void* store, kvbm_store_op_t* const* ops, size_t n) {
  auto* const w = static_cast<World*>(store);
  const auto finish = [w](kvbm_store_op_t* op, kvbm_status_t status) {
    w->config->finished(w->config->context, op, status);
  };
  for (size_t i = 0; i < n; ++i) {
    ++w->started;
    kvbm_store_op_t* const op = ops[i];
    if (op->kind == KVBM_STORE_GET) std::memset(op->data, 7, op->bytes);
    op->done = op->bytes;
    switch (w->does.load()) {
      case Does::finishes:
        finish(op, KVBM_OK);
        break;
      case Does::twice: {
        finish(op, KVBM_OK);
        finish(op, KVBM_OK);
        break;
      }
      case Does::another: {
        kvbm_store_op_t other = *op;
        finish(&other, KVBM_OK);
        finish(op, KVBM_OK);
        break;
      }
      case Does::too_much:
        op->done = op->bytes + 1;
        finish(op, KVBM_OK);
        break;
      case Does::bad_status:
        std::memset(op->message, 'x', sizeof op->message);  // without an end
        finish(op, 12345);
        break;
      case Does::keeps:  // a cancel does not end it
      case Does::holds: {
        const std::lock_guard lock(w->mutex);
        w->held.push_back(op);
        break;
      }
    }
  }
}

void cancel_op(void* store, kvbm_store_op_t* op) {
  auto* const w = static_cast<World*>(store);
  ++w->cancelled;
  if (w->does == Does::keeps) return;
  {
    const std::lock_guard lock(w->mutex);
    if (std::erase(w->held, op) == 0) return;
  }
  w->config->finished(w->config->context, op, KVBM_ERR_CANCELLED);
}

void close_store(void* store) { ++static_cast<World*>(store)->closed; }

const kvbm_store_table_t kTable{sizeof kTable, KVBM_STORE_ABI, "test",    nullptr,    0,
                                open_store,    start_ops,      cancel_op, close_store};

class TableStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { world = &world_; }
  std::unique_ptr<TableStore> open() {
    auto opened =
        TableStore::open(kTable, {"test", "bucket", "", "", "/prefix", {{"region", "here"}}}, nullptr, 1'000'000'000);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  static std::unique_ptr<ObjectRequest> get(size_t bytes) {
    auto request = std::make_unique<ObjectRequest>();
    request->verb = Verb::get;
    request->name = "v1/x";
    request->data = Buffer::of(bytes);
    request->bytes = bytes;
    request->timeout_ns = 50'000'000;
    return request;
  }
  World world_;
};

TEST_F(TableStoreTest, gives_the_table_what_it_is_opened_with_and_says_where_it_is) {
  const auto store = open();
  EXPECT_STREQ(world_.config->authority, "bucket");
  ASSERT_EQ(world_.config->n_options, 1U);
  EXPECT_STREQ(world_.config->options[0].value, "here");
  EXPECT_EQ(store->facts().concurrency, 3U);
  EXPECT_EQ(store->facts().description, "test://bucket/prefix ");
  store->close();
  EXPECT_EQ(world_.closed, 1);
}

TEST_F(TableStoreTest, an_open_that_fails_says_the_stores_own_sentence) {
  world_.opens = KVBM_ERR_CONFIG;
  const auto refused = TableStore::open(kTable, {}, nullptr, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::bad_config);
  EXPECT_NE(refused.status().message().find("the bucket is not there; make it"), std::string::npos);
  world_.opens = 77;  // no status of a failure
  EXPECT_EQ(TableStore::open(kTable, {}, nullptr, 1).status().code(), Code::bad_config);
  EXPECT_EQ(world_.closed, 0);
}

TEST_F(TableStoreTest, an_operation_ends_once_whatever_the_store_says) {
  const auto store = open();
  for (const Does does : {Does::finishes, Does::twice, Does::another}) {
    world_.does = does;
    int ended = 0;
    auto request = get(100);
    request->finished = [&](std::unique_ptr<ObjectRequest> back) {
      ++ended;
      EXPECT_EQ(back->code, Code::ok);
      EXPECT_EQ(back->done, 100U);
      EXPECT_EQ(back->data.bytes[99], std::byte{7});
    };
    store->start(std::move(request));
    EXPECT_EQ(ended, 1);
  }
}

TEST_F(TableStoreTest, lengths_and_texts_that_cannot_be_are_errors) {
  const auto store = open();
  world_.does = Does::too_much;
  auto back = store->run(get(100), {});
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->code, Code::io_error);
  EXPECT_EQ(back->done, 0U);
  world_.does = Does::bad_status;
  back = store->run(get(100), {});
  ASSERT_NE(back, nullptr);
  EXPECT_NE(back->code, Code::ok);
  EXPECT_EQ(back->message.size(), 128U);
}

TEST_F(TableStoreTest, a_wait_ends_though_the_store_never_answers_and_its_memory_stays) {
  auto store = open();
  world_.does = Does::keeps;
  int late = 0;
  EXPECT_EQ(store->run(get(100), [&] { ++late; }), nullptr);
  ASSERT_EQ(world_.held.size(), 1U);
  EXPECT_EQ(world_.cancelled, 1);
  EXPECT_EQ(late, 0);
  std::memset(world_.held[0]->data, 9, 100);  // late, and into memory that is still there
  world_.config->finished(world_.config->context, world_.held[0], KVBM_OK);
  EXPECT_EQ(late, 1);
}

TEST_F(TableStoreTest, a_wait_that_is_given_up_cancels_its_operation) {
  auto store = open();
  world_.does = Does::holds;
  int late = 0;
  EXPECT_EQ(store->run(get(100), [&] { ++late; }), nullptr);
  EXPECT_EQ(world_.cancelled, 1);
  EXPECT_TRUE(world_.held.empty());
  EXPECT_EQ(late, 1) << "the store has nothing of it any more";
}

TEST_F(TableStoreTest, cancelling_reaches_the_operation_and_nothing_else) {
  const auto store = open();
  world_.does = Does::holds;
  int ended = 0;
  for (const uint64_t id : {uint64_t{5}, uint64_t{6}}) {
    auto request = get(10);
    request->id = id;
    request->finished = [&, id](std::unique_ptr<ObjectRequest> back) {
      ++ended;
      EXPECT_EQ(id, 6U);
      EXPECT_NE(back->code, Code::ok);
    };
    store->start(std::move(request));
  }
  store->cancel(7);
  EXPECT_EQ(world_.cancelled, 0);
  store->cancel(6);
  EXPECT_EQ(ended, 1);
  store->cancel(6);
  EXPECT_EQ(world_.cancelled, 1);
  ASSERT_EQ(world_.held.size(), 1U);
}

// A store that is left keeps its threads. The log is the context's, and ends with it.
TEST_F(TableStoreTest, a_store_that_was_left_writes_no_line_any_more) {
  struct Lines {
    std::latch writing{1}, may_end{1};
    std::atomic<int> begun{0}, ended{0};
  } lines;
  Log log;
  log.set_sink(
      [](void* user, const LogMessage&) {
        auto* const to = static_cast<Lines*>(user);
        if (++to->begun == 2) {
          to->writing.count_down();
          to->may_end.wait();
        }
        ++to->ended;
      },
      &lines, LogLevel::debug);
  auto opened = TableStore::open(kTable, {"test", "bucket", "", "", "/prefix", {}}, &log, 1'000'000'000);
  ASSERT_TRUE(opened.ok());
  auto store = std::move(opened).value();
  const std::unique_ptr<TableStore> lives(store.get());  // freed here, so that it is not reported as a leak
  const kvbm_store_config_t config = *world_.config;
  config.log(config.context, 1, "one");
  EXPECT_EQ(lines.ended, 1);
  // A line that is being written is waited for.
  std::thread late([&] { config.log(config.context, 1, "two"); });
  lines.writing.wait();
  std::atomic<bool> left{false};
  std::thread leaves([&] {
    TableStore& it = *store;
    it.leave(std::move(store));
    EXPECT_EQ(lines.ended, 2);
    left = true;
  });
  EXPECT_FALSE(left);
  lines.may_end.count_down();
  late.join();
  leaves.join();
  config.log(config.context, 0, "three");
  EXPECT_EQ(lines.begun, 2);
}

// Its threads are the library's: start() may block in each of them.
TEST_F(TableStoreTest, a_store_that_blocks_has_threads_of_its_own) {
  world_.features = KVBM_STORE_BLOCKS;
  const auto store = open();
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  for (int i = 0; i < 20; ++i) {
    auto request = get(10);
    request->finished = [&](std::unique_ptr<ObjectRequest> back) {
      EXPECT_EQ(back->code, Code::ok);
      EXPECT_NE(std::this_thread::get_id(), caller);
      const std::lock_guard lock(mutex);
      ++ended;
      changed.notify_all();
    };
    store->start(std::move(request));
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == 20; });
  EXPECT_EQ(world_.started, 20);
}

}  // namespace
}  // namespace kvbm::test::table_store_test
