/* A tier as a shared library that breaks a rule of tiers. The string of its user pointer selects the rule, else
 * KVBMTEST_HOSTILE_TIER:
 *   wrong   returns every record with one bit changed, and ignores erase
 *   resize  reports that it wrote more than the capacity
 *   hangs   never returns from get or put
 *   late    returns from get when kvbm_plugin_let_go is called
 *   twice   answers, and answers every call again during the next one: other bytes, other sizes, OK
 *   fails   refuses every get and put
 * All kinds except "hangs" and "fails" store records; these two report that they have every record. */
#include "memory_tier.h"

#include <stdio.h>

static memory_tier_t tier = {PTHREAD_MUTEX_INITIALIZER, {NULL}, 0, 0};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int let_go;
static unsigned returned; /* calls of get that came back */

/* The items of the call before, which "twice" answers again. */
static kvbm_tier_item_t *last_items;
static kvbm_status_t *last_status;
static void *last_payload;
static size_t last_n;

static int is(void *user, const char *kind) {
  const char *chosen = user != NULL ? (const char *)user : getenv("KVBMTEST_HOSTILE_TIER");
  return chosen != NULL && strcmp(chosen, kind) == 0;
}

static void wait_forever(void) {
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&changed, &mutex);
}

static void wait_until_let_go(void) {
  pthread_mutex_lock(&mutex);
  while (!let_go) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

/* Ends the wait of "late". */
KVBM_API void kvbm_plugin_let_go(void);
void kvbm_plugin_let_go(void) {
  pthread_mutex_lock(&mutex);
  let_go = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

/* Returns how many calls of get have returned so far. */
KVBM_API unsigned kvbm_plugin_returned(void);
unsigned kvbm_plugin_returned(void) { return __atomic_load_n(&returned, __ATOMIC_ACQUIRE); }

static void find(void *user, const uint8_t (*names)[32], size_t n, uint8_t *present, uint32_t *heads, uint64_t *payloads) {
  size_t i;
  memory_tier_find(&tier, names, n, present, heads, payloads);
  if (!is(user, "hangs") && !is(user, "fails")) return;
  for (i = 0; i < n; ++i) present[i] = 1, heads[i] = 160 + 32, payloads[i] = 8192;
}

static void answer_again(void) {
  size_t i;
  for (i = 0; i < last_n; ++i) __atomic_store_n(&last_status[i], KVBM_OK, __ATOMIC_RELAXED);
  if (last_n == 0 || last_items == NULL) return;
  __atomic_store_n(&last_items[0].payload_bytes, UINT64_MAX, __ATOMIC_RELAXED);
  memset(last_payload, 0x5A, 64);
}

static void put(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
  size_t i;
  (void)timeout_ns;
  if (is(user, "hangs")) wait_forever();
  if (is(user, "twice")) answer_again();
  for (i = 0; i < n; ++i) status[i] = is(user, "fails") ? KVBM_ERR_IO : memory_tier_put_one(&tier, &items[i]);
  if (is(user, "twice")) last_items = NULL, last_status = status, last_n = n;
}

static void get(void *user, kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
  size_t i;
  (void)timeout_ns;
  if (is(user, "hangs")) wait_forever();
  if (is(user, "late")) wait_until_let_go();
  if (is(user, "twice")) answer_again();
  for (i = 0; i < n; ++i) {
    status[i] = is(user, "fails") ? KVBM_ERR_IO : memory_tier_get_one(&tier, &items[i]);
    if (is(user, "wrong") && status[i] == KVBM_OK) ((unsigned char *)items[i].payload)[77] ^= 1;
    if (is(user, "resize") && status[i] == KVBM_OK) items[i].payload_bytes += 4096;
  }
  if (is(user, "twice")) last_items = items, last_status = status, last_n = n, last_payload = n ? items[0].payload : NULL;
  __atomic_add_fetch(&returned, 1, __ATOMIC_RELEASE);
}

static void erase(void *user, const uint8_t (*names)[32], size_t n) {
  if (!is(user, "wrong")) memory_tier_erase(&tier, names, n);
}

static void stats(void *user, uint64_t *capacity, uint64_t *used, uint64_t *records) {
  (void)user;
  memory_tier_stats(&tier, capacity, used, records);
}

/* One call at a time: "twice" answers one while the next is under way. */
KVBM_API extern const kvbm_tier_table_t kvbm_plugin_table;
const kvbm_tier_table_t kvbm_plugin_table = {sizeof(kvbm_tier_table_t), 1, "hostile", find, put, get, erase, stats};
