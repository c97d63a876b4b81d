/* Tiers that code and seal: bytes after a load, refusals, and statistics. */
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
    OK(kvbm_manager_flush(e.manager, 60000000000ULL));
    engine_close(&e);
    engine_codec = codecs[(i + 1) % 6]; /* stored blocks stay readable, whatever is configured now */
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
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
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

/* Opening a pipe for reading waits for a writer, unless it is non-blocking. */
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

/* Blocks of KV that codes well: bf16 values around one. */
static void fill_with_values(unsigned char *out, size_t bytes) {
  uint32_t state = 12345;
  size_t i;
  for (i = 0; i + 1 < bytes; i += 2) {
    state = state * 1664525u + 1013904223u;
    out[i] = (unsigned char)(state >> 24);
    out[i + 1] = (unsigned char)(0x3F - ((state >> 16) % 7 == 0) + ((state >> 12 & 1) << 7));
  }
}

/* Two layers, K and V of 2 KiB each. */
static kvbm_geometry_t *two_layers(void) {
  kvbm_component_t component;
  kvbm_geometry_t *geometry = NULL;
  memset(&component, 0, sizeof component);
  component.kind = KVBM_COMPONENT_ATTENTION;
  component.element = KVBM_ELEMENT_BF16;
  component.layers = 2;
  component.heads = 1;
  component.head_dim = 64;
  OK(kvbm_geometry_create(16, 1, &component, 1, &geometry, &check_error));
  return geometry;
}

static kvbm_namespace_t *lossy_namespace(kvbm_manager_t *manager, const char *codec) {
  kvbm_geometry_t *geometry = two_layers();
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = codec;
  who.geometry = geometry;
  who.codec = codec;
  who.allow_lossy = 1;
  OK(kvbm_namespace_open(manager, &who, &ns, &check_error));
  kvbm_geometry_release(geometry);
  return ns;
}

/* A managed block with these bytes is registered under the key; *out is the hold. */
static void *register_block(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *key,
                            const unsigned char *bytes, kvbm_block_t *out) {
  kvbm_view_t view;
  memset(&view, 0, sizeof view);
  OK(kvbm_manager_allocate(manager, ns, 1, out, NULL, 0, NULL));
  OK(kvbm_block_view(manager, out, 1, &view));
  memcpy(view.data, bytes, BLOCK_BYTES);
  OK(kvbm_manager_complete(manager, out, 1, NULL));
  OK(kvbm_manager_register(manager, ns, out, key, 1, NULL));
  OK(kvbm_block_view(manager, out, 1, &view));
  return view.data;
}

/* Returns which quarters of a managed block (K and V of layer 0, of layer 1) have other bytes after a stay on the
 * disk, one bit each. */
static unsigned lost_by(const char *codec, const char *directory, kvbm_manager_stats_t *out_stats) {
  static unsigned char want[BLOCK_BYTES], other[BLOCK_BYTES];
  engine_t e;
  kvbm_namespace_t *ns;
  kvbm_key_t key;
  kvbm_block_t block, all[64];
  const unsigned char *got;
  unsigned lost = 0, i, held = 0;
  engine_codec = "default";
  OK(engine_open(&e, 16, in_scratch(directory), 64 << 20));
  ns = lossy_namespace(e.manager, codec);
  memset(&key, 7, sizeof key);
  fill_with_values(want, sizeof want);
  (void)register_block(e.manager, ns, &key, want, &block);
  OK(kvbm_block_release(e.manager, &block, 1));
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER));
  while (held < 64 && kvbm_manager_allocate(e.manager, ns, 1, &all[held], NULL, 0, NULL) == KVBM_OK) ++held;
  OK(kvbm_block_release(e.manager, all, held)); /* the host is empty now */
  OK(kvbm_manager_prefetch(e.manager, ns, NULL, &key, 1, NULL, 0));
  got = (const unsigned char *)register_block(e.manager, ns, &key, other, &block); /* gives the existing block */
  CHECK(memcmp(got, other, BLOCK_BYTES) != 0);
  for (i = 0; i < 4; ++i) {
    const size_t at = i * (BLOCK_BYTES / 4);
    if (memcmp(got + at, want + at, BLOCK_BYTES / 4) != 0) lost |= 1u << i;
  }
  *out_stats = stats_of(&e);
  OK(kvbm_block_release(e.manager, &block, 1));
  kvbm_namespace_release(ns);
  engine_close(&e);
  engine_codec = NULL;
  return lost;
}

/* The places of layers and planes in a block of a caller are unknown, so a recipe by layer or plane cannot apply. */
static void a_managed_block_loses_nothing_by_a_recipe_of_layers(void) {
  kvbm_manager_stats_t stats;
  CHECK_U64(lost_by("k:0=int8,default", "layers", &stats), 0);
  CHECK(stats.codec[1].coded != 0);
  CHECK(stats.codec[1].lossy_error == 0);
  CHECK_U64(stats.codec[1].mode, KVBM_CODEC_DEFAULT);
  CHECK_U64(lost_by("v=int8,max", "planes", &stats), 0);
}

static void what_all_of_it_may_lose_is_lost_and_said(void) {
  kvbm_manager_stats_t stats;
  CHECK_U64(lost_by("int8", "whole", &stats), 15);
  CHECK(stats.codec[1].lossy_error > 0);
  CHECK_U64(stats.codec[1].mode, KVBM_CODEC_INT8);
  CHECK_U64(stats.codec[1].setting, KVBM_CODEC_DEFAULT);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 1;
  RUN(blocks_come_back_whatever_the_tier_codes);
  RUN(sealed_blocks_need_their_key);
  RUN(a_key_file_that_others_can_read_is_refused);
  RUN(a_key_file_that_is_a_pipe_is_refused_and_not_waited_for);
  RUN(a_tier_has_a_codec_that_loses_nothing);
  RUN(a_namespace_says_how_it_is_coded);
  RUN(a_managed_block_loses_nothing_by_a_recipe_of_layers);
  RUN(what_all_of_it_may_lose_is_lost_and_said);
  check_remove(scratch);
  FINISH();
}
