/* kvbm_context_*, kvbm_config_reference: where settings come from and what is refused. */
#include <sys/wait.h>

#include "check.h"

static kvbm_error_t err;

static kvbm_status_t create(const char *file, const char *key, const char *value, kvbm_context_t **out) {
  kvbm_setting_t setting;
  kvbm_context_options_t options;
  setting.key = key;
  setting.value = value;
  kvbm_context_options_init(&options, sizeof options);
  options.config_file = file;
  options.settings = key ? &setting : NULL;
  options.n_settings = key ? 1 : 0;
  memset(&err, 0, sizeof err);
  *out = NULL;
  return kvbm_context_create(&options, out, &err);
}
static const char *write_file(char path[256], const char *text) {
  FILE *f;
  snprintf(path, 256, "/tmp/kvbm-api-config-%ld.toml", (long)getpid());
  f = fopen(path, "w");
  if (f == NULL) return NULL;
  fputs(text, f);
  fclose(f);
  return path;
}
static char *config_of(const kvbm_context_t *context) {
  size_t needed = 0;
  char *text;
  CHECK_STATUS(kvbm_context_config(context, NULL, 0, &needed), KVBM_OK);
  text = malloc(needed + 1);
  CHECK_STATUS(kvbm_context_config(context, text, needed + 1, &needed), KVBM_OK);
  CHECK_U64(strlen(text), needed);
  return text;
}
/* Returns whether the line of `text` with `what` also has the origin. */
static int line_has(const char *text, const char *what, const char *origin) {
  const char *at = strstr(text, what);
  const char *end = at ? strchr(at, '\n') : NULL;
  const char *found = at ? strstr(at, origin) : NULL;
  return at && end && found && found < end;
}

static void defaults_work_without_any_options(void) {
  kvbm_context_t *context = NULL;
  CHECK_STATUS(kvbm_context_create(NULL, &context, &err), KVBM_OK);
  CHECK(context != NULL);
  kvbm_context_release(context);
  kvbm_context_release(NULL);
}

static void unknown_keys_name_key_and_origin(void) {
  kvbm_context_t *context;
  char path[256];
  CHECK_STATUS(create(NULL, "host.capasity", "1GiB", &context), KVBM_ERR_CONFIG);
  CHECK(context == NULL);
  CHECK(strstr(err.message, "host.capasity") != NULL);
  CHECK_STATUS(err.status, KVBM_ERR_CONFIG);

  CHECK_STATUS(create(write_file(path, "[host]\ncolour = \"blue\"\n"), NULL, NULL, &context), KVBM_ERR_CONFIG);
  CHECK(strstr(err.message, "colour") != NULL && strstr(err.message, path) != NULL);
  unlink(path);

  setenv("KVBM_HOST_COLOUR", "blue", 1);
  CHECK_STATUS(create(NULL, NULL, NULL, &context), KVBM_ERR_CONFIG);
  CHECK(strstr(err.message, "KVBM_HOST_COLOUR") != NULL);
  unsetenv("KVBM_HOST_COLOUR");
}

static void impossible_values_name_value_and_key(void) {
  static const char *const bad[][2] = {{"host.capacity", "12 parsecs"}, {"host.capacity", "-1"},
                                       {"host.capacity", "0"},          {"host.capacity", "99999999999TiB"},
                                       {"threads", "0"},                {"threads", "many"},
                                       {"host.policy", "clairvoyant"},  {"host.huge_pages", "perhaps"}};
  size_t i;
  for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    kvbm_context_t *context;
    CHECK_STATUS(create(NULL, bad[i][0], bad[i][1], &context), KVBM_ERR_CONFIG);
    CHECK(strstr(err.message, bad[i][0]) != NULL);
    CHECK(strstr(err.message, bad[i][1]) != NULL);
    if (strstr(err.message, bad[i][1]) == NULL) printf("  %s\n", err.message);
    kvbm_context_release(context);
  }
}

static void broken_and_missing_files_are_refused(void) {
  kvbm_context_t *context;
  char path[256];
  CHECK_STATUS(create("/nonexistent/kvbm.toml", NULL, NULL, &context), KVBM_ERR_CONFIG);
  CHECK(strstr(err.message, "/nonexistent/kvbm.toml") != NULL);
  CHECK_STATUS(create(write_file(path, "[host\ncapacity"), NULL, NULL, &context), KVBM_ERR_CONFIG);
  CHECK(strstr(err.message, path) != NULL);
  unlink(path);
}

static void later_sources_win_and_say_so(void) {
  kvbm_context_t *context;
  char path[256];
  char *text;
  write_file(path, "threads = 3\n[host]\ncapacity = \"8MiB\"\nblock_bytes = \"4KiB\"\npolicy = \"lru\"\n");
  setenv("KVBM_HOST_BLOCK_BYTES", "16KiB", 1);
  CHECK_STATUS(create(path, "host.policy", "lfu", &context), KVBM_OK);
  unsetenv("KVBM_HOST_BLOCK_BYTES");
  unlink(path);
  if (context == NULL) return;
  text = config_of(context);
  CHECK(line_has(text, "threads", path));
  CHECK(line_has(text, "capacity", path));
  CHECK(line_has(text, "block_bytes", "KVBM_HOST_BLOCK_BYTES"));
  CHECK(line_has(text, "policy", "lfu"));
  CHECK(line_has(text, "engine", "default"));
  if (check_case_failed) printf("%s\n", text);
  free(text);
  kvbm_context_release(context);
}

static void the_environment_names_a_file(void) {
  kvbm_context_t *context;
  char path[256];
  char *text;
  setenv("KVBM_CONFIG", write_file(path, "threads = 7\n"), 1);
  CHECK_STATUS(create(NULL, NULL, NULL, &context), KVBM_OK);
  unsetenv("KVBM_CONFIG");
  unlink(path);
  text = config_of(context);
  CHECK(line_has(text, "threads = 7", path));
  free(text);
  kvbm_context_release(context);
}

static void text_is_cut_and_terminated(void) {
  char small[9];
  size_t needed = 0;
  CHECK_STATUS(kvbm_config_reference(NULL, 0, &needed), KVBM_OK);
  CHECK(needed > sizeof small);
  memset(small, 'x', sizeof small);
  CHECK(kvbm_config_reference(small, sizeof small, &needed) >= 0);
  CHECK_U64(strlen(small), sizeof small - 1);
}

static void the_reference_lists_every_printed_option(void) {
  size_t needed = 0;
  char *text;
  kvbm_config_reference(NULL, 0, &needed);
  text = malloc(needed + 1);
  CHECK_STATUS(kvbm_config_reference(text, needed + 1, &needed), KVBM_OK);
  CHECK(strstr(text, "host.capacity") && strstr(text, "threads") && strstr(text, "io.engine") &&
        strstr(text, "host.policy") && strstr(text, "admission"));
  free(text);
}

static void nulls_and_unknown_fields_are_refused(void) {
  kvbm_context_options_t options;
  kvbm_context_t *context = NULL;
  CHECK_STATUS(kvbm_context_create(NULL, NULL, &err), KVBM_ERR_INVALID);
  kvbm_context_options_init(&options, sizeof options);
  options.n_settings = 1;
  CHECK_STATUS(kvbm_context_create(&options, &context, &err), KVBM_ERR_INVALID);
  memset(&options, 0, sizeof options);
  CHECK(kvbm_context_create(&options, &context, NULL) < 0);
  kvbm_context_options_init(&options, sizeof options);
  options.reserved = 1;
  CHECK_STATUS(kvbm_context_create(&options, &context, &err), KVBM_ERR_UNSUPPORTED);
  CHECK(context == NULL);
  kvbm_context_release(context);
  CHECK_STATUS(kvbm_context_options_init(NULL, sizeof options), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_context_config(NULL, NULL, 0, NULL), KVBM_ERR_INVALID);
}

static void children_keep_parents_alive(void) {
  world_t w;
  kvbm_key_t keys[2];
  kvbm_block_t blocks[2];
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_context_release(w.context);
  kvbm_manager_t *manager = w.manager;
  world_keys(w.ns, 1, keys, 2);
  CHECK_STATUS(kvbm_manager_allocate(manager, w.ns, 2, blocks, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(manager, blocks, 2), KVBM_OK);
  kvbm_manager_release(manager);
  world_keys(w.ns, 2, keys, 2);
  CHECK_STATUS(kvbm_namespace_reset(w.ns, NULL), KVBM_OK);
  kvbm_namespace_release(w.ns);
}

/* Counts a call of a child on its parent's objects. Returns the number of the first one that is not KVBM_ERR_FORKED. */
#define TOLD(call) do { ++n; if ((call) != KVBM_ERR_FORKED) return n; } while (0)
static int blocks_in_a_child(world_t *w, kvbm_block_t *blocks, kvbm_match_t *match) {
  int n = 0;
  kvbm_block_t block = blocks[0];
  kvbm_view_t view;
  kvbm_match_item_t item;
  kvbm_key_t key;
  uint64_t cost;
  memset(&key, 7, sizeof key);
  TOLD(kvbm_manager_allocate(w->manager, w->ns, 1, &block, NULL, 0, NULL));
  TOLD(kvbm_manager_complete(w->manager, blocks, 1, NULL));
  TOLD(kvbm_manager_register(w->manager, w->ns, blocks, &key, 1, NULL));
  TOLD(kvbm_block_view(w->manager, blocks, 1, &view));
  TOLD(kvbm_block_clone(w->manager, blocks, 1, &block));
  TOLD(kvbm_block_downgrade(w->manager, blocks, 1, &block));
  TOLD(kvbm_block_upgrade(w->manager, blocks, 1, &block));
  TOLD(kvbm_block_release(w->manager, blocks, 1));
  TOLD(kvbm_match_items(match, 0, 1, &item));
  TOLD(kvbm_match_blocks(match, 0, 0, 1, &block));
  TOLD(kvbm_match_cost(match, 0, 1, &cost));
  return 0;
}
/* Calls about keys, and those that make an object. */
static int requests_in_a_child(world_t *w) {
  int n = 50;
  unsigned char memory[4096];
  size_t got = 0;
  kvbm_key_t key;
  kvbm_pin_t pin = 0;
  kvbm_match_t *match = NULL;
  kvbm_cache_t *cache = NULL;
  kvbm_namespace_t *ns = NULL;
  kvbm_namespace_options_t names;
  kvbm_tensor_t tensor = {memory, sizeof memory, 0, sizeof memory};
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  memset(&key, 7, sizeof key);
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE, part.tensors = &tensor, part.n_tensors = 1;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = 1, options.parts = &part, options.n_parts = 1;
  kvbm_namespace_options_init(&names, sizeof names);
  names.model = "other";
  TOLD(kvbm_cache_attach(w->manager, w->ns, &options, &cache, NULL));
  TOLD(kvbm_namespace_open(w->manager, &names, &ns, NULL));
  TOLD(kvbm_manager_lookup(w->manager, w->ns, &key, 1, NULL, &match, &got));
  TOLD(kvbm_manager_pin(w->manager, w->ns, NULL, &key, 1, 1, KVBM_FOREVER, &pin, &got));
  TOLD(kvbm_manager_hint(w->manager, w->ns, NULL, &key, 1, KVBM_PRIORITY_KEEP));
  TOLD(kvbm_manager_drop(w->manager, w->ns, NULL, &key, 1, &got));
  TOLD(kvbm_manager_prefetch(w->manager, w->ns, NULL, &key, 1, NULL, 0));
  TOLD(kvbm_manager_offload(w->manager, w->ns, NULL, &key, 1, 0, NULL, 0));
  TOLD(kvbm_manager_locate(w->manager, w->ns, &key, 1, NULL, NULL, 0, &got));
  TOLD(kvbm_manager_devices(w->manager, NULL, 0, &got));
  TOLD(kvbm_manager_wait_for_peers(w->manager, 1000, NULL));
  return 0;
}
static int calls_in_a_child(world_t *w, kvbm_queue_t *queue) {
  int n = 100;
  uint32_t tokens[4] = {1, 2, 3, 4};
  uint64_t cursor = 0;
  size_t got = 0;
  char text[64];
  kvbm_key_t key;
  kvbm_completion_t completion;
  kvbm_scan_row_t row;
  kvbm_manager_stats_t stats;
  kvbm_share_t share;
  kvbm_queue_t *other = NULL;
  memset(&stats, 0, sizeof stats);
  memset(&share, 0, sizeof share);
  stats.struct_size = sizeof stats;
  share.struct_size = sizeof share;
  TOLD(kvbm_key_chain(w->ns, NULL, tokens, 4, 4, NULL, &key, 1, &got));
  TOLD(kvbm_key_content(w->ns, tokens, 4, 4, NULL, &key, 1, &got));
  TOLD(kvbm_key_from_hashes(w->ns, (const uint8_t *)tokens, 4, 1, &key));
  TOLD(kvbm_context_config(w->context, text, sizeof text, &got));
  TOLD(kvbm_manager_reset(w->manager, NULL));
  TOLD(kvbm_manager_flush(w->manager, 1000));
  TOLD(kvbm_manager_flush_durable(w->manager, 1000));
  TOLD(kvbm_namespace_invalidate(w->ns, NULL));
  TOLD(kvbm_namespace_reset(w->ns, NULL));
  TOLD(kvbm_namespace_set_quota(w->ns, 0, KVBM_QUOTA_EVICT));
  TOLD(kvbm_manager_unpin(w->manager, 1));
  TOLD(kvbm_manager_unpin_owner(w->manager, 1, NULL));
  TOLD(kvbm_manager_stats(w->manager, &stats));
  TOLD(kvbm_manager_metrics(w->manager, text, sizeof text, &got));
  TOLD(kvbm_manager_scan(w->manager, &cursor, &row, 1, &got));
  TOLD(kvbm_manager_subscribe(w->manager, queue));
  TOLD(kvbm_manager_share(w->manager, &share));
  TOLD(kvbm_manager_nodes(w->manager, NULL, 0, &got));
  TOLD(kvbm_manager_node_address(w->manager, text, sizeof text, &got));
  TOLD(kvbm_queue_create(w->context, 1, &other, NULL));
  TOLD(kvbm_queue_cancel(queue, 1));
  if (kvbm_queue_poll(queue, &completion, 1) != 0) return ++n;
  return kvbm_queue_wait(queue, &completion, 1, KVBM_FOREVER) != 0 ? ++n : 0; /* nothing will ever come */
}

static void a_forked_child_is_told(void) {
  world_t w;
  kvbm_block_t block;
  kvbm_queue_t *queue = NULL;
  kvbm_match_t *match = NULL;
  kvbm_key_t key;
  size_t hits = 0;
  pid_t child;
  int how = 0;
  memset(&key, 5, sizeof key);
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  CHECK_STATUS(kvbm_queue_create(w.context, 4, &queue, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &block, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, &block, &key, 1, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_lookup(w.manager, w.ns, &key, 1, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 1);
  fflush(stdout);
  child = fork();
  if (child == 0) {
    int wrong;
    alarm(60); /* a call that waits for a thread of the parent's waits for ever */
    wrong = blocks_in_a_child(&w, &block, match);
    if (wrong == 0) wrong = requests_in_a_child(&w);
    if (wrong == 0) wrong = calls_in_a_child(&w, queue);
    kvbm_match_release(match);
    kvbm_queue_release(queue);
    world_close(&w);
    _exit(wrong);
  }
  CHECK(waitpid(child, &how, 0) == child);
  CHECK(WIFEXITED(how));
  CHECK_U64(WEXITSTATUS(how), 0);
  CHECK_STATUS(kvbm_block_release(w.manager, &block, 1), KVBM_OK); /* the parent's is as it was */
  kvbm_match_release(match);
  kvbm_queue_release(queue);
  world_close(&w);
}

int main(void) {
  RUN(defaults_work_without_any_options);
  RUN(unknown_keys_name_key_and_origin);
  RUN(impossible_values_name_value_and_key);
  RUN(broken_and_missing_files_are_refused);
  RUN(later_sources_win_and_say_so);
  RUN(the_environment_names_a_file);
  RUN(text_is_cut_and_terminated);
  RUN(the_reference_lists_every_printed_option);
  RUN(nulls_and_unknown_fields_are_refused);
  RUN(children_keep_parents_alive);
  RUN(a_forked_child_is_told);
  FINISH();
}
