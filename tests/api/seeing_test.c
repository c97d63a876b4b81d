/* Seeing it work: events, scans, metrics, statistics, and a policy of the caller's. */
#include "engine.h"

static void events_tell_every_change_without_gaps(void) {
  engine_t e;
  kvbm_queue_t *queue = NULL;
  kvbm_event_t events[64];
  kvbm_key_t keys[8];
  kvbm_block_t all[8];
  size_t n, i, stored = 0, removed = 0;
  uint64_t sequence = 0;
  OK(engine_open(&e, 8, NULL, 0));
  OK(kvbm_queue_create(e.context, 8, &queue, &check_error));
  OK(kvbm_manager_subscribe(e.manager, queue));
  OK(engine_store(&e, 1, 8));
  engine_keys(&e, 1, 8, keys);
  OK(kvbm_manager_allocate(e.manager, e.ns, 3, all, NULL, 0, NULL));
  n = kvbm_queue_poll_events(queue, events, 64);
  for (i = 0; i < n; ++i) {
    CHECK(events[i].sequence == ++sequence);
    CHECK(events[i].tier == 0);
    if (events[i].kind == KVBM_EVENT_STORED) {
      CHECK(memcmp(&events[i].key, &keys[stored], sizeof keys[0]) == 0);
      if (stored != 0) CHECK(memcmp(&events[i].parent, &keys[stored - 1], sizeof keys[0]) == 0);
      ++stored;
    }
    removed += events[i].kind == KVBM_EVENT_REMOVED;
  }
  CHECK(stored == 8 && removed >= 3);
  CHECK(kvbm_queue_poll_events(queue, events, 64) == 0);
  OK(kvbm_manager_subscribe(e.manager, NULL));
  OK(kvbm_manager_reset(e.manager, &check_error));
  CHECK(kvbm_queue_poll_events(queue, events, 64) == 0);
  OK(kvbm_block_release(e.manager, all, 3));
  kvbm_queue_release(queue);
  engine_close(&e);
}

static void a_scan_sees_each_block_once(void) {
  engine_t e;
  kvbm_scan_row_t rows[5];
  kvbm_key_t keys[20];
  uint64_t cursor = 0;
  size_t n, i, j, seen[20] = {0}, pages = 0;
  OK(engine_open(&e, 24, NULL, 0));
  OK(engine_store(&e, 1, 20));
  engine_keys(&e, 1, 20, keys);
  do {
    OK(kvbm_manager_scan(e.manager, &cursor, rows, 5, &n));
    for (i = 0; i < n; ++i) {
      CHECK(rows[i].bytes == BLOCK_BYTES && rows[i].tier == 0 && rows[i].holds == 0);
      for (j = 0; j < 20; ++j) seen[j] += memcmp(&rows[i].key, &keys[j], sizeof keys[j]) == 0;
    }
  } while (cursor != 0 && ++pages < 100);
  for (j = 0; j < 20; ++j) CHECK(seen[j] == 1);
  CHECK_STATUS(kvbm_manager_scan(e.manager, NULL, rows, 5, &n), KVBM_ERR_INVALID);
  engine_close(&e);
}

static void metrics_and_statistics_agree(void) {
  engine_t e;
  char *text;
  size_t needed = 0;
  kvbm_manager_stats_t stats;
  OK(engine_open(&e, 24, NULL, 0));
  OK(engine_store(&e, 1, 10));
  CHECK(engine_load(&e, 1, 12) == 10);
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.lookups == 1 && stats.keys_looked_up == 12 && stats.keys_hit == 10);
  CHECK(stats.tiers[0].hits == 10 && stats.tiers[0].misses == 2 && stats.tiers[0].stores == 10 && stats.tiers[0].loads == 10);
  CHECK(stats.tiers[0].load_bytes == 10 * BLOCK_BYTES && stats.tiers[0].used_bytes <= stats.tiers[0].capacity_bytes);
  CHECK(stats.matches == 0 && stats.holds == 0 && stats.operations_in_flight == 0);
  OK(kvbm_manager_metrics(e.manager, NULL, 0, &needed));
  text = (char *)malloc(needed + 1);
  OK(kvbm_manager_metrics(e.manager, text, needed + 1, &needed));
  CHECK(strstr(text, "kvbm_lookup_hits_total 10\n") != NULL);
  CHECK(strstr(text, "kvbm_tier_hits_total{tier=\"0\"} 10\n") != NULL);
  CHECK(strstr(text, "# TYPE kvbm_operation_service_seconds histogram") != NULL);
  free(text);
  engine_close(&e);
}

/* A policy that evicts the newest block, which no built-in policy does. */
typedef struct stack_policy {
  uint32_t slots[64];
  size_t n;
} stack_policy_t;

static void *stack_create(void *user, uint32_t n_slots) {
  (void)user;
  (void)n_slots;
  return calloc(1, sizeof(stack_policy_t));
}
static void stack_destroy(void *policy) { free(policy); }
static void stack_inserted(void *policy, const uint32_t *slots, const uint64_t *names, size_t n, uint32_t tick) {
  stack_policy_t *p = (stack_policy_t *)policy;
  size_t i;
  (void)names;
  (void)tick;
  for (i = 0; i < n && p->n < 64; ++i) p->slots[p->n++] = slots[i];
}
static void stack_used(void *policy, const uint32_t *slots, size_t n, uint32_t tick) {
  (void)policy;
  (void)slots;
  (void)n;
  (void)tick;
}
static void stack_erased(void *policy, uint32_t slot) {
  stack_policy_t *p = (stack_policy_t *)policy;
  size_t i;
  for (i = 0; i < p->n; ++i) {
    if (p->slots[i] == slot) {
      memmove(&p->slots[i], &p->slots[i + 1], (p->n - i - 1) * sizeof p->slots[0]);
      --p->n;
      return;
    }
  }
}
static uint32_t stack_evict(void *policy, int (*may_evict)(const void *, uint32_t), const void *asker, uint32_t tick) {
  stack_policy_t *p = (stack_policy_t *)policy;
  size_t i = p->n;
  (void)tick;
  while (i-- != 0) {
    const uint32_t slot = p->slots[i];
    if (!may_evict(asker, slot)) continue;
    stack_erased(policy, slot);
    return slot;
  }
  return UINT32_MAX;
}
static uint32_t nonsense_evict(void *policy, int (*may_evict)(const void *, uint32_t), const void *asker, uint32_t tick) {
  (void)policy;
  (void)may_evict;
  (void)asker;
  return tick * 7919u; /* mostly no slot at all */
}

static void run_policy(kvbm_policy_table_t *table, int last_goes_first) {
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  kvbm_namespace_t *ns = NULL;
  kvbm_manager_options_t options;
  kvbm_namespace_options_t who;
  kvbm_register_options_t registering;
  kvbm_block_t block;
  kvbm_key_t keys[20], evicted[4];
  uint32_t tokens[80];
  size_t n, i;
  OK(kvbm_context_create(NULL, &context, &check_error));
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = BLOCK_BYTES;
  options.host_capacity_bytes = 4096 + 8 * (BLOCK_BYTES + 384);
  options.policy_table = table;
  OK(kvbm_manager_create(context, &options, &manager, &check_error));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "policy";
  OK(kvbm_namespace_open(manager, &who, &ns, &check_error));
  for (i = 0; i < 80; ++i) tokens[i] = (uint32_t)i;
  OK(kvbm_key_chain(ns, NULL, tokens, 80, 4, NULL, keys, 20, &n));
  kvbm_register_options_init(&registering, sizeof registering);
  registering.unchained = 1;
  for (i = 0; i < 20; ++i) {
    size_t gone = 0;
    OK(kvbm_manager_allocate(manager, ns, 1, &block, evicted, 4, &gone));
    if (last_goes_first && gone == 1) CHECK(memcmp(&evicted[0], &keys[i - 1], sizeof keys[0]) == 0);
    OK(kvbm_manager_complete(manager, &block, 1, NULL));
    OK(kvbm_manager_register(manager, ns, &block, &keys[i], 1, &registering));
    OK(kvbm_block_release(manager, &block, 1));
  }
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
  kvbm_context_release(context);
}

static void a_policy_of_the_callers_decides_and_a_broken_one_is_helped(void) {
  kvbm_policy_table_t table = {sizeof(kvbm_policy_table_t), 0, "stack", stack_create, stack_destroy,
                               stack_inserted, stack_used, stack_evict, stack_erased};
  run_policy(&table, 1);
  table.evict = nonsense_evict;
  run_policy(&table, 0);
}

int main(void) {
  RUN(events_tell_every_change_without_gaps);
  RUN(a_scan_sees_each_block_once);
  RUN(metrics_and_statistics_agree);
  RUN(a_policy_of_the_callers_decides_and_a_broken_one_is_helped);
  FINISH();
}
