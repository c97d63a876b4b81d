/* Tiers below the host: restart, owners, damage, foreign files, plug-ins good and hostile. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

static char scratch[64];

static const char *fresh_directory(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

static void blocks_are_found_after_a_restart(void) {
  engine_t e;
  kvbm_manager_stats_t stats;
  const char *path = fresh_directory("restart");
  OK(engine_open(&e, 40, path, 64 << 20));
  OK(engine_store(&e, 1, 24));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  engine_close(&e);
  OK(engine_open(&e, 40, path, 64 << 20));
  CHECK(engine_load(&e, 1, 24) == 24);
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.n_tiers == 2 && stats.tiers[1].loads == 24 && stats.tiers[1].hits == 24);
  CHECK(engine_load(&e, 1, 24) == 24); /* now from the host */
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.tiers[1].loads == 24);
  engine_close(&e);
}

static void a_killed_owner_leaves_what_was_flushed(void) {
  engine_t e;
  int status = 0;
  const char *path = fresh_directory("killed");
  const pid_t child = fork();
  if (child == 0) {
    if (engine_open(&e, 40, path, 64 << 20) != KVBM_OK || engine_store(&e, 50, 16) != KVBM_OK) _exit(1);
    if (kvbm_manager_flush(e.manager, 60000000000ULL) != KVBM_OK) _exit(2);
    kill(getpid(), 9);
  }
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == 9);
  OK(engine_open(&e, 40, path, 64 << 20));
  CHECK(engine_load(&e, 50, 16) == 16);
  engine_close(&e);
}

static void one_owner_per_directory(void) {
  engine_t a, b;
  const char *path = fresh_directory("owner");
  OK(engine_open(&a, 16, path, 64 << 20));
  CHECK_STATUS(engine_open(&b, 16, path, 64 << 20), KVBM_ERR_IN_USE);
  CHECK(strlen(check_error.message) > 10);
  engine_close(&b);
  engine_close(&a);
  OK(engine_open(&b, 16, path, 64 << 20));
  engine_close(&b);
}

static void bad_directories_and_capacities_are_refused(void) {
  engine_t e;
  char file[512];
  int fd;
  const char *path = fresh_directory("foreign");
  mkdir(path, 0700);
  snprintf(file, sizeof file, "%s/notes.txt", path);
  fd = open(file, O_CREAT | O_WRONLY, 0600);
  close(fd);
  CHECK(engine_open(&e, 16, path, 64 << 20) < 0);
  CHECK(strstr(check_error.message, "notes.txt") != NULL);
  engine_close(&e);
  CHECK(access(file, F_OK) == 0); /* never deleted */
  CHECK_STATUS(engine_open(&e, 16, fresh_directory("small"), 1024), KVBM_ERR_CONFIG);
  engine_close(&e);
  CHECK_STATUS(engine_open(&e, 0, NULL, 0), KVBM_ERR_CONFIG); /* smaller than one block */
  CHECK(strstr(check_error.message, "host.capacity") != NULL);
  engine_close(&e);
}

static void damage_on_disk_is_a_miss(void) {
  engine_t e;
  kvbm_manager_stats_t stats;
  const char *path = fresh_directory("damage");
  char file[512];
  struct dirent *entry;
  DIR *dir;
  size_t good;
  OK(engine_open(&e, 40, path, 64 << 20));
  OK(engine_store(&e, 1, 20));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  engine_close(&e);
  dir = opendir(path);
  while ((entry = readdir(dir)) != NULL) {
    int fd;
    unsigned char page[4096];
    off_t at;
    if (strncmp(entry->d_name, "segment", 7) != 0) continue;
    snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    fd = open(file, O_RDWR);
    /* Damages one bit in every page that holds the middle of a payload: such a page has one value only. */
    for (at = 0; pread(fd, page, sizeof page, at) == (ssize_t)sizeof page; at += 4096) {
      if (page[0] != page[2048] || page[0] != page[4095] || page[0] == 0) continue;
      page[1000] ^= 4;
      if (page[0] % 2 == 0 && pwrite(fd, page, sizeof page, at) != (ssize_t)sizeof page) CHECK(!"write");
    }
    close(fd);
  }
  closedir(dir);
  OK(engine_open(&e, 40, path, 64 << 20));
  good = engine_load(&e, 1, 20); /* engine_load checks every byte that is reported as loaded */
  CHECK(good < 20);
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.tiers[1].damaged > 0);
  engine_close(&e);
}

static void explicit_offload_and_prefetch(void) {
  engine_t e;
  kvbm_key_t keys[8];
  kvbm_manager_stats_t stats;
  kvbm_block_t all[16];
  size_t n;
  OK(engine_open(&e, 16, fresh_directory("moves"), 64 << 20));
  OK(engine_store(&e, 1, 8));
  engine_keys(&e, 1, 8, keys);
  CHECK_STATUS(kvbm_manager_offload(e.manager, e.ns, NULL, keys, 8, 2, NULL, 0), KVBM_ERR_INVALID);
  OK(kvbm_manager_offload(e.manager, e.ns, NULL, keys, 8, 1, NULL, 0));
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.tiers[1].blocks == 8);
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER)); /* stored blocks are offloaded too, and held meanwhile */
  OK(kvbm_manager_allocate(e.manager, e.ns, 16, all, NULL, 0, &n)); /* empties the host */
  OK(kvbm_block_release(e.manager, all, 16));
  OK(kvbm_manager_prefetch(e.manager, e.ns, NULL, keys, 8, NULL, 0));
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.tiers[0].blocks == 8);
  CHECK(engine_load(&e, 1, 8) == 8);
  engine_close(&e);
}

/* A plug-in that keeps records in memory, with faults on request. */
#define PLUG_RECORDS 256
static struct plug {
  pthread_mutex_t mutex;
  size_t n;
  int flip, hang, reading;
  struct {
    uint8_t name[32];
    void *head, *payload;
    uint32_t head_bytes;
    uint64_t payload_bytes;
  } records[PLUG_RECORDS];
} plug = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, 0, {{{0}, NULL, NULL, 0, 0}}};

static int plug_find_one(struct plug *p, const uint8_t *name) {
  size_t i;
  for (i = 0; i < p->n; ++i) {
    if (memcmp(p->records[i].name, name, 32) == 0) return (int)i;
  }
  return -1;
}

static void plug_find(void *user, const uint8_t (*names)[32], size_t n, uint8_t *present, uint32_t *heads, uint64_t *bytes) {
  struct plug *p = (struct plug *)user;
  size_t i;
  pthread_mutex_lock(&p->mutex);
  for (i = 0; i < n; ++i) {
    const int at = plug_find_one(p, names[i]);
    present[i] = at >= 0;
    heads[i] = at >= 0 ? p->records[at].head_bytes : 0;
    bytes[i] = at >= 0 ? p->records[at].payload_bytes : 0;
  }
  pthread_mutex_unlock(&p->mutex);
}

static void plug_put(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
  struct plug *p = (struct plug *)user;
  size_t i;
  (void)timeout_ns;
  pthread_mutex_lock(&p->mutex);
  for (i = 0; i < n; ++i) {
    status[i] = KVBM_ERR_NO_ROOM;
    if (p->n == PLUG_RECORDS) continue;
    memcpy(p->records[p->n].name, items[i].identity, 32);
    p->records[p->n].head = malloc(items[i].head_bytes);
    memcpy(p->records[p->n].head, items[i].head, items[i].head_bytes);
    p->records[p->n].payload = malloc(items[i].payload_bytes);
    memcpy(p->records[p->n].payload, items[i].payload, items[i].payload_bytes);
    p->records[p->n].head_bytes = items[i].head_bytes;
    p->records[p->n++].payload_bytes = items[i].payload_bytes;
    status[i] = KVBM_OK;
  }
  pthread_mutex_unlock(&p->mutex);
}

static void plug_get(void *user, kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
  struct plug *p = (struct plug *)user;
  size_t i;
  (void)timeout_ns;
  __atomic_add_fetch(&p->reading, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&p->hang, __ATOMIC_SEQ_CST)) usleep(1000); /* beyond the deadline of the call */
  pthread_mutex_lock(&p->mutex);
  for (i = 0; i < n; ++i) {
    const int at = plug_find_one(p, items[i].identity);
    status[i] = KVBM_ERR_MISS;
    if (at < 0 || items[i].head_bytes < p->records[at].head_bytes || items[i].payload_bytes < p->records[at].payload_bytes) continue;
    memcpy(items[i].head, p->records[at].head, p->records[at].head_bytes);
    memcpy(items[i].payload, p->records[at].payload, p->records[at].payload_bytes);
    if (__atomic_load_n(&p->flip, __ATOMIC_RELAXED)) ((uint8_t *)items[i].payload)[77] ^= 1;
    items[i].head_bytes = p->records[at].head_bytes;
    items[i].payload_bytes = p->records[at].payload_bytes;
    status[i] = KVBM_OK;
  }
  pthread_mutex_unlock(&p->mutex);
  __atomic_sub_fetch(&p->reading, 1, __ATOMIC_SEQ_CST);
}

static void plug_erase(void *user, const uint8_t (*names)[32], size_t n) {
  struct plug *p = (struct plug *)user;
  size_t i;
  pthread_mutex_lock(&p->mutex);
  for (i = 0; i < n; ++i) {
    const int at = plug_find_one(p, names[i]);
    if (at < 0) continue;
    free(p->records[at].head);
    free(p->records[at].payload);
    p->records[at] = p->records[--p->n];
  }
  pthread_mutex_unlock(&p->mutex);
}

static void plug_stats(void *user, uint64_t *capacity, uint64_t *used, uint64_t *records) {
  struct plug *p = (struct plug *)user;
  *capacity = PLUG_RECORDS * (uint64_t)BLOCK_BYTES;
  *used = p->n * (uint64_t)BLOCK_BYTES;
  *records = p->n;
}

static size_t plug_records(void) {
  uint64_t capacity, used, records;
  pthread_mutex_lock(&plug.mutex);
  plug_stats(&plug, &capacity, &used, &records);
  pthread_mutex_unlock(&plug.mutex);
  return (size_t)records;
}

/* Waits until the function returns 0. Returns its value after a minute. */
static size_t waited_for(size_t (*what)(void)) {
  int tries;
  for (tries = 0; tries < 60000 && what() != 0; ++tries) usleep(1000);
  return what();
}

static size_t plug_reading(void) { return (size_t)__atomic_load_n(&plug.reading, __ATOMIC_SEQ_CST); }

static const kvbm_tier_table_t plug_table = {sizeof(kvbm_tier_table_t), 2, "memory", plug_find, plug_put,
                                             plug_get, plug_erase, plug_stats};

static void a_plug_in_is_a_tier_and_a_hostile_one_is_contained(void) {
  engine_t e;
  kvbm_manager_options_t options;
  kvbm_tier_t tier;
  kvbm_key_t keys[8];
  kvbm_load_options_t load;
  kvbm_match_t *match = NULL;
  kvbm_block_t all[16];
  uint32_t ids[8] = {40, 41, 42, 43, 44, 45, 46, 47};
  size_t hits, n, round;
  OK(engine_open(&e, 16, NULL, 0));
  kvbm_cache_release(e.cache);
  kvbm_namespace_release(e.ns);
  kvbm_manager_release(e.manager);
  memset(&tier, 0, sizeof tier);
  tier.table = &plug_table;
  tier.table_user = &plug;
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = BLOCK_BYTES;
  options.host_capacity_bytes = 4096 + 16 * (BLOCK_BYTES + 384);
  options.tiers = &tier;
  options.n_tiers = 1;
  OK(kvbm_manager_create(e.context, &options, &e.manager, &check_error));
  {
    kvbm_namespace_options_t who;
    kvbm_tensor_t tensor = {e.memory, (uint64_t)ENGINE_BLOCKS * BLOCK_BYTES, 0, BLOCK_BYTES};
    kvbm_cache_part_t part;
    kvbm_cache_options_t layout;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "plug";
    OK(kvbm_namespace_open(e.manager, &who, &e.ns, &check_error));
    memset(&part, 0, sizeof part);
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = ENGINE_BLOCKS;
    layout.parts = &part;
    layout.n_parts = 1;
    OK(kvbm_cache_attach(e.manager, e.ns, &layout, &e.cache, &check_error));
  }
  OK(engine_store(&e, 1, 8));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  CHECK(plug.n == 8);
  for (round = 0; round < 3; ++round) {
    OK(kvbm_manager_flush(e.manager, 60000000000ULL)); /* blocks of the last load are held while they are checked */
    OK(kvbm_manager_allocate(e.manager, e.ns, 16, all, NULL, 0, &n)); /* empties the host */
    OK(kvbm_block_release(e.manager, all, 16));
    if (round == 0) CHECK(engine_load(&e, 1, 8) == 8);
    __atomic_store_n(&plug.flip, round == 1, __ATOMIC_RELAXED);
    if (round == 1) {
      CHECK(engine_load(&e, 1, 8) == 0); /* wrong bytes are misses, and the tier is called to erase them */
      CHECK_U64(waited_for(plug_records), 0);
      OK(engine_store(&e, 1, 8));
      OK(kvbm_manager_flush(e.manager, 60000000000ULL));
      OK(kvbm_manager_allocate(e.manager, e.ns, 16, all, NULL, 0, &n));
      OK(kvbm_block_release(e.manager, all, 16));
    }
    __atomic_store_n(&plug.hang, round == 2, __ATOMIC_SEQ_CST);
    if (round == 2) {
      engine_keys(&e, 1, 8, keys);
      OK(kvbm_cache_lookup(e.cache, keys, 8, NULL, &match, &hits));
      CHECK(hits == 8);
      kvbm_load_options_init(&load, sizeof load);
      load.timeout_ns = 20000000; /* 20 ms */
      CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, 8, &load, NULL, 0), KVBM_ERR_DEADLINE);
      memset(engine_block(&e, 40), 0x11, 8 * BLOCK_BYTES);
      __atomic_store_n(&plug.hang, 0, __ATOMIC_SEQ_CST);
      kvbm_match_release(match);
    }
  }
  /* The late answer arrives now. It must not touch memory of the engine. */
  CHECK_U64(waited_for(plug_reading), 0);
  CHECK(engine_block_is(&e, 40, 0x11) && engine_block_is(&e, 47, 0x11));
  /* A plug-in cannot forget a namespace, which is an error. Blocks of an ended epoch are not requested again. */
  CHECK_STATUS(kvbm_namespace_reset(e.ns, &check_error), KVBM_ERR_UNSUPPORTED);
  CHECK(strstr(check_error.message, "invalidate") != NULL);
  CHECK_STATUS(kvbm_manager_reset(e.manager, &check_error), KVBM_ERR_UNSUPPORTED);
  engine_keys(&e, 1, 8, keys);
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, keys + 4, 4, NULL));
  CHECK_U64(plug.n, 4);
  /* A plug-in keeps no epoch either. The invalidation works, but only until the manager ends. */
  CHECK_STATUS(kvbm_namespace_invalidate(e.ns, &check_error), KVBM_ERR_UNSUPPORTED);
  OK(kvbm_cache_lookup(e.cache, keys, 8, NULL, &match, &hits));
  CHECK(hits == 0);
  CHECK(engine_load(&e, 1, 8) == 0);
  /* Holds also after all operations in flight have ended. */
  kvbm_cache_release(e.cache);
  kvbm_namespace_release(e.ns);
  kvbm_manager_release(e.manager);
  e.cache = NULL, e.ns = NULL, e.manager = NULL;
  CHECK(engine_block_is(&e, 40, 0x11) && engine_block_is(&e, 47, 0x11));
  engine_close(&e);
}

static void a_host_file_survives_a_restart(void) {
  engine_t e;
  char file[128];
  int round;
  snprintf(file, sizeof file, "/dev/shm/kvbm-test-%d", (int)getpid());
  engine_host_file = file;
  for (round = 0; round < 2; ++round) {
    OK(engine_open(&e, 100, NULL, 0));
    if (round == 0) OK(engine_store(&e, 30, 12));
    CHECK(engine_load(&e, 30, 12) == 12);
    engine_close(&e);
  }
  engine_host_file = NULL;
  unlink(file);
}

/* A child stores blocks with its host tier in that file and is killed. Returns how many of 12 blocks this process
 * finds there. */
static size_t found_after_a_kill(const char *file, uint64_t host_blocks) {
  engine_t e;
  int said[2], status = 0;
  char word = 0;
  size_t found = 0;
  pid_t child;
  if (pipe(said) != 0) return 0;
  engine_host_file = file;
  child = fork();
  if (child == 0) {
    if (engine_open(&e, host_blocks, NULL, 0) != KVBM_OK || engine_store(&e, 30, 12) != KVBM_OK) _exit(1);
    if (engine_load(&e, 30, 12) != 12 || write(said[1], "k", 1) != 1) _exit(2);
    for (;;) pause();
  }
  close(said[1]);
  CHECK(read(said[0], &word, 1) == 1); /* 0 if it ended by itself */
  close(said[0]);
  kill(child, SIGKILL);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  if (word == 'k' && engine_open(&e, host_blocks, NULL, 0) == KVBM_OK) {
    found = engine_load(&e, 30, 12); /* every byte is compared */
    engine_close(&e);
  }
  engine_host_file = NULL;
  unlink(file);
  return found;
}

static void a_host_file_survives_kill_9_of_its_process(void) {
  char file[128];
  snprintf(file, sizeof file, "/dev/shm/kvbm-test-killed-%d", (int)getpid());
  CHECK_U64(found_after_a_kill(file, 100), 12);
}

/* Returns a place for a file of 4 MiB in huge pages; 0 if there is none. */
static int hugetlbfs_file(char out[512]) {
  char line[512], at[256], kind[64];
  int found = 0;
  FILE *mounts = fopen("/proc/mounts", "r");
  if (mounts == NULL) return 0;
  while (!found && fgets(line, sizeof line, mounts) != NULL) {
    int file;
    void *memory = MAP_FAILED;
    if (sscanf(line, "%*s %255s %63s", at, kind) != 2 || strcmp(kind, "hugetlbfs") != 0) continue;
    snprintf(out, 512, "%s/kvbm-test-%d", at, (int)getpid());
    file = open(out, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) continue;
    if (ftruncate(file, 4 << 20) == 0) memory = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    found = memory != MAP_FAILED; /* pages are reserved by it */
    if (found) munmap(memory, 4 << 20);
    close(file);
    unlink(out);
  }
  fclose(mounts);
  return found;
}

static void a_hugetlbfs_file_survives_kill_9_of_its_process(void) {
  char file[512];
  if (!hugetlbfs_file(file)) SKIP("no hugetlbfs here in which 4 MiB of pages are free");
  CHECK_U64(found_after_a_kill(file, 200), 12);
}

int main(void) {
  char command[128];
  snprintf(scratch, sizeof scratch, "/tmp/kvbm-api-XXXXXX");
  if (mkdtemp(scratch) == NULL) return 77;
  RUN(blocks_are_found_after_a_restart);
  RUN(a_killed_owner_leaves_what_was_flushed);
  RUN(one_owner_per_directory);
  RUN(bad_directories_and_capacities_are_refused);
  RUN(damage_on_disk_is_a_miss);
  RUN(explicit_offload_and_prefetch);
  RUN(a_plug_in_is_a_tier_and_a_hostile_one_is_contained);
  RUN(a_host_file_survives_a_restart);
  RUN(a_host_file_survives_kill_9_of_its_process);
  RUN(a_hugetlbfs_file_survives_kill_9_of_its_process);
  snprintf(command, sizeof command, "rm -rf %s", scratch);
  if (system(command) != 0) return 1;
  FINISH();
}
