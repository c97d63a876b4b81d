/* kvbm_queue_*: depth, readiness, exactly one completion for everything accepted. */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "check.h"

static unsigned char engine[64][WORLD_BLOCK];

static kvbm_cache_t *attach(world_t *w) {
  kvbm_tensor_t tensor = {engine, sizeof engine, 0, WORLD_BLOCK};
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  kvbm_cache_t *cache = NULL;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = 64;
  options.parts = &part;
  options.n_parts = 1;
  CHECK_STATUS(kvbm_cache_attach(w->manager, w->ns, &options, &cache, &w->err), KVBM_OK);
  return cache;
}
static int readable(kvbm_queue_t *queue, int timeout_ms) {
  struct pollfd fd;
  fd.fd = kvbm_queue_fd(queue);
  fd.events = POLLIN;
  fd.revents = 0;
  return poll(&fd, 1, timeout_ms) == 1;
}

static void depth_is_1_to_65536(void) {
  world_t w;
  kvbm_queue_t *queue = NULL;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  CHECK_STATUS(kvbm_queue_create(w.context, 0, &queue, &w.err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_queue_create(w.context, 65537, &queue, &w.err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_queue_create(NULL, 1, &queue, &w.err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_queue_create(w.context, 1, NULL, &w.err), KVBM_ERR_INVALID);
  CHECK(queue == NULL);
  CHECK_STATUS(kvbm_queue_create(w.context, 65536, &queue, &w.err), KVBM_OK);
  kvbm_queue_release(queue);
  kvbm_queue_release(NULL);
  CHECK(kvbm_queue_fd(NULL) < 0);
  world_close(&w);
}

static void the_fd_is_readable_exactly_while_something_waits(void) {
  world_t w;
  kvbm_queue_t *queue = NULL;
  kvbm_completion_t done;
  kvbm_key_t key;
  uint32_t id = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  CHECK_STATUS(kvbm_queue_create(w.context, 4, &queue, NULL), KVBM_OK);
  CHECK(!readable(queue, 0));
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(kvbm_cache_store(cache, &key, &id, 1, NULL, queue, 42), KVBM_OK);
  CHECK(readable(queue, 60000));
  CHECK(readable(queue, 0));
  CHECK_U64(kvbm_queue_poll(queue, &done, 0), 0);
  CHECK_U64(kvbm_queue_poll(queue, &done, 1), 1);
  CHECK(!readable(queue, 0));
  CHECK_U64(done.user_data, 42);
  CHECK_U64(done.items, 1);
  CHECK_U64(done.items_done, 1);
  CHECK_U64(done.bytes, WORLD_BLOCK);
  CHECK(done.op == KVBM_OP_STORE && done.status == KVBM_OK && done.operation != 0);
  CHECK_U64(kvbm_queue_poll(queue, &done, 1), 0);
  CHECK_U64(kvbm_queue_wait(queue, &done, 1, 0), 0);
  CHECK_U64(kvbm_queue_wait(queue, &done, 1, 1000000), 0);
  kvbm_cache_release(cache);
  kvbm_queue_release(queue);
  world_close(&w);
}

static int told_of_an_edge(int epoll, int timeout_ms) {
  struct epoll_event told;
  return epoll_wait(epoll, &told, 1, timeout_ms) == 1;
}

/* Otherwise an edge-triggered reader of completions would sleep for ever on one that came while events waited. */
static void a_completion_is_an_edge_also_while_events_wait(void) {
  world_t w;
  kvbm_queue_t *queue = NULL;
  kvbm_completion_t done;
  kvbm_event_t events[4];
  kvbm_key_t keys[3];
  uint32_t ids[3] = {0, 1, 2};
  struct epoll_event wanted = {EPOLLIN | EPOLLET, {0}};
  const int epoll = epoll_create1(0);
  uint64_t turn;
  CHECK(epoll >= 0 && world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  CHECK_STATUS(kvbm_queue_create(w.context, 4, &queue, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_subscribe(w.manager, queue), KVBM_OK);
  CHECK_U64(epoll_ctl(epoll, EPOLL_CTL_ADD, kvbm_queue_fd(queue), &wanted), 0);
  world_keys(w.ns, 4, keys, 3);
  for (turn = 0; turn < 3; ++turn) {
    CHECK_STATUS(kvbm_cache_store(cache, &keys[turn], &ids[turn], 1, NULL, queue, turn), KVBM_OK);
    CHECK_U64(kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER), 1);
    CHECK_U64(done.user_data, turn);
    CHECK(readable(queue, 60000)); /* by the event of the first store, which stays */
    CHECK(told_of_an_edge(epoll, 0));
    CHECK(!told_of_an_edge(epoll, 0));
  }
  CHECK_U64(kvbm_queue_poll_events(queue, events, 4), 3);
  CHECK(!readable(queue, 0));
  CHECK_STATUS(kvbm_manager_subscribe(w.manager, NULL), KVBM_OK);
  close(epoll);
  kvbm_cache_release(cache);
  kvbm_queue_release(queue);
  world_close(&w);
}

static void a_full_queue_refuses_and_gives_nothing_for_it(void) {
  world_t w;
  kvbm_queue_t *queue = NULL;
  kvbm_completion_t done[4];
  kvbm_key_t keys[3];
  uint32_t ids[3] = {0, 1, 2};
  size_t i, got = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  CHECK_STATUS(kvbm_queue_create(w.context, 2, &queue, NULL), KVBM_OK);
  world_keys(w.ns, 2, keys, 3);
  for (i = 0; i < 2; ++i) CHECK_STATUS(kvbm_cache_store(cache, &keys[i], &ids[i], 1, NULL, queue, i), KVBM_OK);
  /* A completion that waits to be polled still has its place. */
  CHECK_STATUS(kvbm_cache_store(cache, &keys[2], &ids[2], 1, NULL, queue, 9), KVBM_ERR_AGAIN);
  while (got < 2) {
    const size_t n = kvbm_queue_wait(queue, done + got, 4 - got, 60000000000u);
    CHECK(n != 0);
    if (n == 0) break;
    got += n;
  }
  CHECK_U64(done[0].user_data + done[1].user_data, 1);
  CHECK_STATUS(kvbm_cache_store(cache, &keys[2], &ids[2], 1, NULL, queue, 9), KVBM_OK);
  CHECK_U64(kvbm_queue_wait(queue, done, 4, KVBM_FOREVER), 1);
  CHECK_U64(done[0].user_data, 9);
  kvbm_cache_release(cache);
  kvbm_queue_release(queue);
  world_close(&w);
}

static void a_finished_operation_cannot_be_cancelled(void) {
  world_t w;
  kvbm_queue_t *queue = NULL;
  kvbm_store_options_t options;
  kvbm_completion_t done;
  kvbm_key_t key;
  uint64_t operation = 0;
  uint32_t id = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  kvbm_queue_create(w.context, 1, &queue, NULL);
  world_keys(w.ns, 3, &key, 1);
  kvbm_store_options_init(&options, sizeof options);
  options.out_operation = &operation;
  CHECK_STATUS(kvbm_cache_store(cache, &key, &id, 1, &options, queue, 0), KVBM_OK);
  CHECK_U64(kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER), 1);
  CHECK_U64(done.operation, operation);
  CHECK_STATUS(kvbm_queue_cancel(queue, operation), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_queue_cancel(queue, 123456), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_queue_cancel(NULL, 1), KVBM_ERR_INVALID);
  kvbm_cache_release(cache);
  kvbm_queue_release(queue);
  world_close(&w);
}

static void cancelled_operations_complete_once_each(void) {
  enum { kRounds = 200, kKeys = 32 };
  world_t w;
  kvbm_queue_t *queue = NULL;
  kvbm_key_t keys[kKeys];
  uint32_t ids[kKeys];
  unsigned char seen[kRounds];
  size_t i, submitted = 0, completed = 0, twice = 0, odd = 0;
  CHECK(world_open(&w, 4 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  kvbm_queue_create(w.context, 16, &queue, NULL);
  for (i = 0; i < kKeys; ++i) ids[i] = (uint32_t)i;
  memset(seen, 0, sizeof seen);
  while (completed < kRounds) {
    kvbm_completion_t done[8];
    size_t n;
    if (submitted < kRounds) {
      kvbm_store_options_t options;
      uint64_t operation = 0;
      kvbm_store_options_init(&options, sizeof options);
      options.out_operation = &operation;
      world_keys(w.ns, 100 + (uint32_t)submitted, keys, kKeys);
      const kvbm_status_t status = kvbm_cache_store(cache, keys, ids, kKeys, &options, queue, submitted);
      if (status == KVBM_OK) {
        ++submitted;
        if (submitted % 2) kvbm_queue_cancel(queue, operation);
      }
    }
    n = kvbm_queue_wait(queue, done, 8, submitted < kRounds ? 0 : 60000000000u);
    if (n == 0 && submitted == kRounds) break;
    for (i = 0; i < n; ++i) {
      twice += seen[done[i].user_data]++ != 0;
      odd += !(done[i].status == KVBM_OK || done[i].status == KVBM_PARTIAL || done[i].status == KVBM_ERR_CANCELLED);
      ++completed;
    }
  }
  CHECK_U64(completed, kRounds);
  CHECK_U64(twice, 0);
  CHECK_U64(odd, 0);
  kvbm_cache_release(cache);
  kvbm_queue_release(queue);
  world_close(&w);
}

static void a_released_queue_drops_what_is_in_flight(void) {
  world_t w;
  kvbm_queue_t *queue = NULL;
  kvbm_key_t keys[32];
  uint32_t ids[32], i;
  size_t hits = 0;
  kvbm_match_t *match = NULL;
  for (i = 0; i < 32; ++i) ids[i] = i;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  kvbm_queue_create(w.context, 1, &queue, NULL);
  world_keys(w.ns, 5, keys, 32);
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 32, NULL, queue, 0), KVBM_OK);
  kvbm_queue_release(queue);
  kvbm_cache_release(cache); /* waits for it */
  CHECK_STATUS(kvbm_manager_lookup(w.manager, w.ns, keys, 32, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 32);
  kvbm_match_release(match);
  world_close(&w);
}

typedef struct worker {
  world_t *w;
  kvbm_cache_t *cache;
  kvbm_queue_t *queue;
  uint32_t number;
  size_t accepted;
} worker_t;
static void *submit_many(void *argument) {
  worker_t *me = argument;
  uint32_t i;
  for (i = 0; i < 100; ++i) {
    kvbm_key_t key;
    const uint32_t id = me->number * 16 + i % 16;
    world_keys(me->w->ns, 1000 + me->number * 100 + i, &key, 1);
    while (kvbm_cache_store(me->cache, &key, &id, 1, NULL, me->queue, me->number) == KVBM_ERR_AGAIN) {
    }
    ++me->accepted;
  }
  return NULL;
}
static void threads_share_a_queue(void) {
  world_t w;
  worker_t workers[4];
  pthread_t threads[4];
  kvbm_queue_t *queue = NULL;
  kvbm_completion_t done[8];
  size_t i, completed = 0, wrong = 0;
  CHECK(world_open(&w, 8 << 20, NULL, 0));
  kvbm_cache_t *cache = attach(&w);
  kvbm_queue_create(w.context, 8, &queue, NULL);
  for (i = 0; i < 4; ++i) {
    workers[i].w = &w;
    workers[i].cache = cache;
    workers[i].queue = queue;
    workers[i].number = (uint32_t)i;
    workers[i].accepted = 0;
    pthread_create(&threads[i], NULL, submit_many, &workers[i]);
  }
  while (completed < 400) {
    const size_t n = kvbm_queue_wait(queue, done, 8, 60000000000u);
    if (n == 0) break;
    for (i = 0; i < n; ++i) wrong += done[i].status != KVBM_OK;
    completed += n;
  }
  for (i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  CHECK_U64(completed, 400);
  CHECK_U64(wrong, 0);
  kvbm_cache_release(cache);
  kvbm_queue_release(queue);
  world_close(&w);
}

int main(void) {
  RUN(depth_is_1_to_65536);
  RUN(the_fd_is_readable_exactly_while_something_waits);
  RUN(a_completion_is_an_edge_also_while_events_wait);
  RUN(a_full_queue_refuses_and_gives_nothing_for_it);
  RUN(a_finished_operation_cannot_be_cancelled);
  RUN(cancelled_operations_complete_once_each);
  RUN(a_released_queue_drops_what_is_in_flight);
  RUN(threads_share_a_queue);
  FINISH();
}
