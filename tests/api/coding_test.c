/* Tiers that code and seal: what comes back, what is refused, what the statistics say. */
#include <sys/stat.h>

#include "engine.h"

static char scratch[256];

static const char *in_scratch(const char *name) {
  static char path[2][320];
  static int which;
  which = !which;
  snprintf(path[which], sizeof path[which], "%s/%s", scratch, name);
  return path[which];
}

static kvbm_manager_stats_t stats_of(const engine_t *e) {
  kvbm_manager_stats_t stats;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e->manager, &stats));
  return stats;
}

static void write_keys(const char *path, const char *text, mode_t mode) {
  FILE *file = fopen(path, "w");
  fputs(text, file);
  fclose(file);
  chmod(path, mode);
}

#define KEY_A "1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
#define KEY_B "2 bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"

static void blocks_come_back_whatever_the_tier_codes(void) {
  static const char *const codecs[] = {"off", "auto", "fast", "default", "max", "zstd"};
  size_t i;
  for (i = 0; i < sizeof codecs / sizeof *codecs; ++i) {
    engine_t e;
    const char *path = in_scratch(codecs[i]);
    engine_codec = codecs[i];
    OK(engine_open(&e, 40, path, 64 << 20));
    OK(engine_store(&e, 1, 24));
    OK(kvbm_manager_flush(e.manager, 10000000000ULL));
    engine_close(&e);
    engine_codec = codecs[(i + 1) % 6]; /* what was stored is read on, whatever is configured now */
    OK(engine_open(&e, 40, path, 64 << 20));
    CHECK(engine_load(&e, 1, 24) == 24);
    engine_close(&e);
  }
  engine_codec = NULL;
}

static void sealed_blocks_need_their_key(void) {
  engine_t e;
  char keys[320];
  const char *path = in_scratch("sealed");
  snprintf(keys, sizeof keys, "%s/keys", scratch);
  write_keys(keys, KEY_A, 0600);
  setenv("KVBM_SEAL_KEY_FILE", keys, 1);
  engine_codec = "default";
  OK(engine_open(&e, 40, path, 64 << 20));
  OK(engine_store(&e, 1, 24));
  OK(kvbm_manager_flush(e.manager, 10000000000ULL));
  CHECK_U64(stats_of(&e).codec[1].sealed, 24);
  engine_close(&e);
  write_keys(keys, KEY_B, 0600);
  OK(engine_open(&e, 40, path, 64 << 20));
  CHECK(engine_load(&e, 1, 24) <= 0);
  CHECK(stats_of(&e).codec[1].missing_keys != 0);
  CHECK_U64(stats_of(&e).tiers[1].damaged, 0);
  engine_close(&e);
  write_keys(keys, KEY_B KEY_A, 0600);
  OK(engine_open(&e, 40, path, 64 << 20));
  CHECK(engine_load(&e, 1, 24) == 24);
  engine_close(&e);
  engine_codec = NULL;
  unsetenv("KVBM_SEAL_KEY_FILE");
}

static void a_key_file_that_others_can_read_is_refused(void) {
  engine_t e;
  char keys[320];
  snprintf(keys, sizeof keys, "%s/open", scratch);
  write_keys(keys, KEY_A, 0644);
  setenv("KVBM_SEAL_KEY_FILE", keys, 1);
  CHECK_STATUS(engine_open(&e, 16, NULL, 0), KVBM_ERR_CONFIG);
  CHECK(strstr(check_error.message, "others than its owner") != NULL);
  engine_close(&e);
  write_keys(keys, "1 0123\n", 0600);
  chmod(keys, 0600);
  CHECK_STATUS(engine_open(&e, 16, NULL, 0), KVBM_ERR_CONFIG);
  CHECK(strstr(check_error.message, "holds no keys") != NULL);
  CHECK(strstr(check_error.message, "0123") == NULL);
  engine_close(&e);
  unsetenv("KVBM_SEAL_KEY_FILE");
}

/* Whoever opens a pipe to read waits for a writer, unless told not to. */
static void a_key_file_that_is_a_pipe_is_refused_and_not_waited_for(void) {
  engine_t e;
  const char *path = in_scratch("pipe");
  CHECK(mkfifo(path, 0600) == 0);
  setenv("KVBM_SEAL_KEY_FILE", path, 1);
  CHECK_STATUS(engine_open(&e, 16, NULL, 0), KVBM_ERR_CONFIG);
  CHECK(strstr(check_error.message, "is not a file") != NULL);
  engine_close(&e);
  unsetenv("KVBM_SEAL_KEY_FILE");
}

static void a_tier_has_a_codec_that_loses_nothing(void) {
  engine_t e;
  engine_codec = "int8";
  CHECK_STATUS(engine_open(&e, 16, in_scratch("lossy"), 64 << 20), KVBM_ERR_CONFIG);
  CHECK(strstr(check_error.message, "int8") != NULL);
  engine_close(&e);
  engine_codec = NULL;
}

static void a_namespace_says_how_it_is_coded(void) {
  engine_t e;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  OK(engine_open(&e, 16, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  CHECK(who.codec == NULL && who.allow_lossy == 0);
  who.model = "coded";
  who.codec = "k:0-3=int8,default";
  who.allow_lossy = 1;
  OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
  kvbm_namespace_release(ns);
  ns = NULL;
  who.codec = "k:0-3=int9";
  CHECK_STATUS(kvbm_namespace_open(e.manager, &who, &ns, &check_error), KVBM_ERR_INVALID);
  CHECK(strstr(check_error.message, "int9") != NULL);
  who.codec = NULL;
  who.allow_lossy = 2;
  CHECK_STATUS(kvbm_namespace_open(e.manager, &who, &ns, &check_error), KVBM_ERR_INVALID);
  engine_close(&e);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 1;
  RUN(blocks_come_back_whatever_the_tier_codes);
  RUN(sealed_blocks_need_their_key);
  RUN(a_key_file_that_others_can_read_is_refused);
  RUN(a_key_file_that_is_a_pipe_is_refused_and_not_waited_for);
  RUN(a_tier_has_a_codec_that_loses_nothing);
  RUN(a_namespace_says_how_it_is_coded);
  check_remove(scratch);
  FINISH();
}
