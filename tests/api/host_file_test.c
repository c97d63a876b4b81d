/* A host tier in a file: one owner, the state after a kill, forgotten blocks stay forgotten.
 *
 * The writer is a child that is killed or closes, the reader is another child. The parent never has the file open,
 * because record locks and their end are under test. */
#include "engine.h"

#include <signal.h>
#include <sys/wait.h>

static char file[128];
static char disk[300]; /* of the engines that are opened; empty: none */
static char directory[256];

enum { HOST_BLOCKS = 20, STORED = 6 };

static kvbm_status_t open_engine(engine_t *e) {
  kvbm_status_t status;
  engine_host_file = file;
  status = engine_open(e, HOST_BLOCKS, disk[0] ? disk : NULL, 64 << 20);
  if (status != KVBM_OK && status != KVBM_ERR_IN_USE) printf("  open: %s\n", check_error.message);
  return status;
}

/* Runs a function in a child process. `then_killed`: the child is ended by kill -9, else by its last line. Returns
 * the function's result; -1 if the child failed. */
typedef int part_fn(int argument);
static int in_a_child(part_fn *part, int argument, int then_killed) {
  int said[2], status = 0, word = -1;
  pid_t child;
  fflush(stdout);
  if (pipe(said) != 0) return -1;
  child = fork();
  if (child == 0) {
    check_case_failed = 0;
    word = part(argument);
    if (check_case_failed) word = -1;
    fflush(stdout);
    if (write(said[1], &word, sizeof word) != (ssize_t)sizeof word) _exit(1);
    while (then_killed) pause();
    _exit(0);
  }
  close(said[1]);
  if (read(said[0], &word, sizeof word) != (ssize_t)sizeof word) word = -1;
  close(said[0]);
  if (then_killed) kill(child, SIGKILL);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(then_killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(word != -1);
  return word;
}

static void begin(int with_disk) {
  static int number;
  snprintf(file, sizeof file, "/dev/shm/kvbm-host-file-test-%d-%d", (int)getpid(), ++number);
  unlink(file);
  disk[0] = '\0';
  if (with_disk) snprintf(disk, sizeof disk, "%s/disk-%d", directory, number);
}
static void end(void) { unlink(file); }

/* ---- one owner ---- */

static int holds_the_file(int unused) {
  static engine_t e;
  (void)unused;
  return open_engine(&e) == KVBM_OK ? (int)getpid() : -1;
}

static int is_refused(int owner) {
  engine_t e;
  char who[64];
  snprintf(who, sizeof who, "is owned by process %d", owner);
  CHECK_STATUS(open_engine(&e), KVBM_ERR_IN_USE);
  CHECK(strstr(check_error.message, file) != NULL);
  CHECK(strstr(check_error.message, "host.file") != NULL);
  CHECK(owner == 0 || strstr(check_error.message, who) != NULL);
  kvbm_context_release(e.context);
  return 0;
}

static int is_refused_twice_in_one_process(int unused) {
  engine_t mine;
  int i;
  (void)unused;
  CHECK_STATUS(open_engine(&mine), KVBM_OK);
  for (i = 0; i < 2; ++i) is_refused(0); /* the refusal takes nothing from the owner */
  CHECK(engine_store(&mine, 30, STORED) == KVBM_OK && engine_load(&mine, 30, STORED) == STORED);
  /* The file is still locked against other processes. */
  CHECK(in_a_child(is_refused, (int)getpid(), 0) == 0);
  engine_close(&mine);
  CHECK_STATUS(open_engine(&mine), KVBM_OK); /* free again */
  CHECK(engine_load(&mine, 30, STORED) == STORED);
  engine_close(&mine);
  return 0;
}

static void a_second_owner_in_the_process_is_refused(void) {
  begin(0);
  CHECK(in_a_child(is_refused_twice_in_one_process, 0, 0) == 0);
  end();
}

/* The owner forks, as engines do. Its child must not keep the file locked after the owner's end. */
static int holds_the_file_and_forks(int unused) {
  pid_t child;
  if (holds_the_file(unused) == -1) return -1;
  child = fork();
  while (child == 0) pause();
  return (int)child;
}

static int may_have_it(int unused) {
  engine_t e;
  (void)unused;
  if (open_engine(&e) != KVBM_OK) return 0;
  engine_close(&e);
  return 1;
}

static void a_killed_owner_frees_the_file_though_its_fork_lives(void) {
  int orphan;
  begin(0);
  orphan = in_a_child(holds_the_file_and_forks, 0, 1);
  CHECK(orphan > 0 && kill(orphan, 0) == 0);
  CHECK(in_a_child(may_have_it, 0, 0) == 1);
  if (orphan > 0) kill(orphan, SIGKILL);
  end();
}

static void an_owner_in_another_process_is_named(void) {
  int said[2], until[2], owner = 0;
  char byte;
  pid_t child;
  begin(0);
  if (pipe(said) != 0 || pipe(until) != 0) return;
  child = fork();
  if (child == 0) {
    close(until[1]);
    owner = holds_the_file(0);
    if (write(said[1], &owner, sizeof owner) != (ssize_t)sizeof owner) _exit(1);
    if (read(until[0], &byte, 1) != 0) _exit(1);
    _exit(0);
  }
  CHECK(read(said[0], &owner, sizeof owner) == (ssize_t)sizeof owner && owner == (int)child);
  CHECK(in_a_child(is_refused, owner, 0) == 0);
  close(until[1]);
  waitpid(child, NULL, 0);
  close(said[0]), close(said[1]), close(until[0]);
  CHECK(in_a_child(may_have_it, 0, 0) == 1);
  end();
}

/* ---- kill -9 ---- */

/* Blocks of a managed pool, to which their user begins to write, evict the blocks of the keys. */
static int writes_into_every_slot(int unused) {
  static engine_t e;
  kvbm_block_t block;
  kvbm_view_t view;
  int slots = 0;
  (void)unused;
  if (open_engine(&e) != KVBM_OK || engine_store(&e, 30, STORED) != KVBM_OK) return -1;
  while (kvbm_manager_allocate(e.manager, e.ns, 1, &block, NULL, 0, NULL) == KVBM_OK) {
    if (kvbm_block_view(e.manager, &block, 1, &view) != KVBM_OK) return -1;
    memset(view.data, 'z', BLOCK_BYTES);
    ++slots;
  }
  return slots;
}

/* Number of the match's blocks with the stored bytes in their views; -1 if any has other bytes. */
static int views_right(engine_t *e, uint32_t first, size_t n, size_t *out_hits) {
  kvbm_key_t keys[64];
  kvbm_block_t blocks[64];
  kvbm_view_t view;
  kvbm_match_t *match = NULL;
  size_t i, b;
  int right = 0;
  engine_keys(e, first, n, keys);
  OK(kvbm_manager_lookup(e->manager, e->ns, keys, n, NULL, &match, out_hits));
  if (*out_hits == 0) return 0;
  OK(kvbm_match_blocks(match, 0, 0, *out_hits, blocks));
  for (i = 0; i < *out_hits; ++i) {
    if (blocks[i] == 0) continue;
    OK(kvbm_block_view(e->manager, &blocks[i], 1, &view));
    CHECK_U64(view.bytes, BLOCK_BYTES);
    for (b = 0; b < BLOCK_BYTES; ++b) {
      if (((const unsigned char *)view.data)[b] == (unsigned char)(first + i)) continue;
      CHECK(!"a view has other bytes than were stored");
      return -1;
    }
    ++right;
    OK(kvbm_block_release(e->manager, &blocks[i], 1));
  }
  kvbm_match_release(match);
  return right;
}

static int finds_nothing_wrong(int unused) {
  engine_t e;
  size_t hits = 0;
  int right;
  (void)unused;
  if (open_engine(&e) != KVBM_OK) return -1;
  right = views_right(&e, 30, STORED, &hits);
  CHECK(engine_load(&e, 30, STORED) == hits);
  engine_close(&e);
  return right;
}

static void slots_that_were_handed_out_are_not_found_after_a_kill(void) {
  int slots;
  begin(0);
  slots = in_a_child(writes_into_every_slot, 0, 1);
  CHECK(slots >= HOST_BLOCKS - 1);
  CHECK(in_a_child(finds_nothing_wrong, 0, 0) == 0);
  end();
}

/* Writes into all slots but some. The blocks in the others must all be found, with the right bytes. */
static int writes_into_some_slots(int taken) {
  static engine_t e;
  kvbm_block_t blocks[HOST_BLOCKS];
  kvbm_view_t view;
  int i;
  if (open_engine(&e) != KVBM_OK || engine_store(&e, 30, STORED) != KVBM_OK) return -1;
  if (kvbm_manager_allocate(e.manager, e.ns, (size_t)taken, blocks, NULL, 0, NULL) != KVBM_OK) return -1;
  for (i = 0; i < taken; ++i) {
    if (kvbm_block_view(e.manager, &blocks[i], 1, &view) != KVBM_OK) return -1;
    memset(view.data, 'z', BLOCK_BYTES);
  }
  return 0;
}

static void what_was_not_touched_is_found_after_a_kill(void) {
  begin(0);
  CHECK(in_a_child(writes_into_some_slots, HOST_BLOCKS - 1 - STORED + 2, 1) == 0);
  CHECK(in_a_child(finds_nothing_wrong, 0, 0) == STORED - 2); /* the last of the chain went */
  end();
}

/* ---- damage in between ---- */

static int stores_some(int unused) {
  static engine_t e;
  (void)unused;
  if (open_engine(&e) != KVBM_OK || engine_store(&e, 30, STORED) != KVBM_OK) return -1;
  return engine_load(&e, 30, STORED) == STORED ? 0 : -1;
}

/* Bytes of one block change in the file while no process has it open. */
static void damage(unsigned char value) {
  static unsigned char page[4096];
  FILE *f = fopen(file, "r+b");
  long at;
  CHECK(f != NULL);
  if (f == NULL) return;
  for (at = 4096; fseek(f, at, SEEK_SET) == 0 && fread(page, 1, sizeof page, f) == sizeof page; at += 4096) {
    if (page[0] != value || page[4095] != value) continue;
    CHECK(fseek(f, at + 7, SEEK_SET) == 0 && fputc(value ^ 1, f) != EOF);
    break;
  }
  CHECK(fclose(f) == 0);
}

static int views_all_but(int damaged) {
  engine_t e;
  size_t hits = 0;
  int right;
  if (open_engine(&e) != KVBM_OK) return -1;
  right = views_right(&e, 30, STORED, &hits);
  CHECK_U64(hits, STORED);
  /* The block is gone for matches and loads, and blocks after it in the chain are not found either. */
  CHECK(engine_load(&e, 30, STORED) == (size_t)damaged);
  CHECK_STATUS(engine_store(&e, 30, STORED), KVBM_OK);
  CHECK(views_right(&e, 30, STORED, &hits) == STORED);
  engine_close(&e);
  return right;
}

static void a_view_gives_no_bytes_that_changed_in_the_file(void) {
  begin(0);
  CHECK(in_a_child(stores_some, 0, 1) == 0);
  damage(33);
  CHECK(in_a_child(views_all_but, 3, 0) == STORED - 1);
  end();
}

static int loads_what_is_right(int unused) {
  engine_t e;
  int good;
  (void)unused;
  if (open_engine(&e) != KVBM_OK) return -1;
  good = (int)engine_load(&e, 30, STORED); /* compares every byte */
  engine_close(&e);
  return good;
}

static void a_load_gives_no_bytes_that_changed_in_the_file(void) {
  begin(0);
  CHECK(in_a_child(stores_some, 0, 1) == 0);
  damage(32);
  CHECK(in_a_child(loads_what_is_right, 0, 0) == STORED - 1);
  end();
}

/* Registering an existing key gives the existing block, but not one with other bytes. */
static int registers_the_same(int unused) {
  engine_t e;
  kvbm_key_t keys[STORED];
  kvbm_block_t blocks[STORED];
  kvbm_view_t views[STORED];
  size_t i, b;
  (void)unused;
  if (open_engine(&e) != KVBM_OK) return -1;
  engine_keys(&e, 30, STORED, keys);
  OK(kvbm_manager_allocate(e.manager, e.ns, STORED, blocks, NULL, 0, NULL));
  OK(kvbm_block_view(e.manager, blocks, STORED, views));
  for (i = 0; i < STORED; ++i) memset(views[i].data, (int)(30 + i), BLOCK_BYTES);
  OK(kvbm_manager_complete(e.manager, blocks, STORED, NULL));
  OK(kvbm_manager_register(e.manager, e.ns, blocks, keys, STORED, NULL));
  OK(kvbm_block_view(e.manager, blocks, STORED, views));
  for (i = 0; i < STORED; ++i) {
    for (b = 0; b < BLOCK_BYTES && ((const unsigned char *)views[i].data)[b] == 30 + i; ++b) {
    }
    CHECK_U64(b, BLOCK_BYTES);
  }
  OK(kvbm_block_release(e.manager, blocks, STORED));
  CHECK(engine_load(&e, 30, STORED) == STORED);
  engine_close(&e);
  return 0;
}

static void a_registered_duplicate_of_changed_bytes_is_not_given(void) {
  begin(0);
  CHECK(in_a_child(stores_some, 0, 1) == 0);
  damage(34);
  CHECK(in_a_child(registers_the_same, 0, 0) == 0);
  end();
}

/* A store that reports a key as present must have verified that block's bytes. */
static int stores_the_same(int unused) {
  engine_t e;
  (void)unused;
  if (open_engine(&e) != KVBM_OK) return -1;
  OK(engine_store(&e, 30, STORED));
  CHECK(engine_load(&e, 30, STORED) == STORED);
  engine_close(&e);
  return 0;
}

static void a_store_does_not_rely_on_bytes_that_changed_in_the_file(void) {
  begin(0);
  CHECK(in_a_child(stores_some, 0, 1) == 0);
  damage(32);
  CHECK(in_a_child(stores_the_same, 0, 0) == 0);
  end();
}

/* ---- forgotten for good ---- */

enum { MANAGER_RESET, NAMESPACE_RESET, INVALIDATE, DROP_ALL, WAYS };
enum { EVICTED_FIRST = 16, HELD = 32, CLOSES = 64 };

static void forget(engine_t *e, int way) {
  kvbm_key_t keys[STORED];
  if (way == MANAGER_RESET) OK(kvbm_manager_reset(e->manager, &check_error));
  if (way == NAMESPACE_RESET) OK(kvbm_namespace_reset(e->ns, &check_error));
  if (way == INVALIDATE) OK(kvbm_namespace_invalidate(e->ns, &check_error));
  if (way != DROP_ALL) return;
  engine_keys(e, 30, STORED, keys);
  OK(kvbm_manager_drop(e->manager, e->ns, NULL, keys, STORED, NULL));
}

/* Stores and erases. With EVICTED_FIRST the blocks' slots are free by then, with HELD they are held. */
static int forgets(int how) {
  static engine_t e;
  kvbm_block_t blocks[HOST_BLOCKS];
  kvbm_key_t keys[STORED];
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  if (open_engine(&e) != KVBM_OK || engine_store(&e, 30, STORED) != KVBM_OK) return -1;
  if (disk[0]) OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  if (how & EVICTED_FIRST) {
    OK(kvbm_manager_allocate(e.manager, e.ns, HOST_BLOCKS - 1, blocks, NULL, 0, NULL));
    OK(kvbm_block_release(e.manager, blocks, HOST_BLOCKS - 1));
  }
  engine_keys(&e, 30, STORED, keys);
  if (how & HELD) {
    OK(kvbm_manager_lookup(e.manager, e.ns, keys, STORED, NULL, &match, &hits));
    CHECK(hits == STORED);
  }
  forget(&e, how & 15);
  CHECK(engine_load(&e, 30, STORED) == 0);
  if (how & CLOSES) {
    kvbm_match_release(match);
    engine_close(&e);
  }
  return 0;
}

static int finds(int unused) {
  engine_t e;
  size_t hits = 0;
  int found;
  (void)unused;
  if (open_engine(&e) != KVBM_OK) return -1;
  found = (int)engine_load(&e, 30, STORED);
  (void)views_right(&e, 30, STORED, &hits);
  CHECK_U64(hits, found);
  engine_close(&e);
  return found;
}

static void forgotten(int with_disk, int killed) {
  int way, more;
  for (way = 0; way < WAYS; ++way) {
    if (way == DROP_ALL && with_disk) continue; /* not written down there */
    for (more = 0; more < 64; more += EVICTED_FIRST) {
      if ((more & EVICTED_FIRST) && (more & HELD)) continue;
      begin(with_disk);
      CHECK(in_a_child(forgets, way | more | (killed ? 0 : CLOSES), killed) == 0);
      CHECK(in_a_child(finds, 0, 0) == 0);
      CHECK(in_a_child(finds, 0, 0) == 0);
      if (check_case_failed) printf("  way %d, case %d\n", way, more);
      end();
    }
  }
}

static void forgotten_blocks_stay_forgotten_after_a_close(void) { forgotten(0, 0); }
static void forgotten_blocks_stay_forgotten_after_a_kill(void) { forgotten(0, 1); }
static void forgotten_blocks_with_a_disk_stay_forgotten_after_a_close(void) { forgotten(1, 0); }
static void forgotten_blocks_with_a_disk_stay_forgotten_after_a_kill(void) { forgotten(1, 1); }

/* Without a disk only the file keeps the epoch. Blocks stored after the invalidation are found, and a second
 * invalidation does not bring back older blocks. */
static int invalidates_and_stores(int first) {
  static engine_t e;
  if (open_engine(&e) != KVBM_OK) return -1;
  OK(kvbm_namespace_invalidate(e.ns, &check_error));
  CHECK(engine_load(&e, (uint32_t)first - 10, STORED) == 0);
  OK(engine_store(&e, (uint32_t)first, STORED));
  return (int)engine_load(&e, (uint32_t)first, STORED);
}
static int finds_from(int first) {
  engine_t e;
  int found;
  if (open_engine(&e) != KVBM_OK) return -1;
  found = (int)engine_load(&e, (uint32_t)first, STORED);
  engine_close(&e);
  return found;
}

static void an_epoch_outlives_its_process(void) {
  int round, first;
  begin(0);
  for (round = 0; round < 3; ++round) {
    first = 30 + round * 10;
    CHECK(in_a_child(invalidates_and_stores, first, 1) == STORED);
    CHECK(in_a_child(finds_from, first, 0) == STORED);
    if (round > 0) CHECK(in_a_child(finds_from, first - 10, 0) == 0);
  }
  end();
}

/* ---- a shared tier set ---- */

static kvbm_status_t open_shared(kvbm_context_t **context, kvbm_manager_t **manager) {
  kvbm_manager_options_t options;
  kvbm_tier_t tier;
  memset(&tier, 0, sizeof tier);
  tier.path = disk;
  tier.capacity_bytes = 64 << 20;
  if (kvbm_context_create(NULL, context, &check_error) != KVBM_OK) return KVBM_ERR_INTERNAL;
  kvbm_manager_options_init(&options, sizeof options);
  options.flags = KVBM_MANAGER_SHARE;
  options.block_bytes = BLOCK_BYTES;
  options.host_capacity_bytes = 1 << 20;
  options.host_file = file;
  options.tiers = &tier;
  options.n_tiers = 1;
  return kvbm_manager_create(*context, &options, manager, &check_error);
}

static int shares(int owner) {
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  pid_t child;
  int status = 0;
  CHECK_STATUS(open_shared(&context, &manager), KVBM_OK);
  if (owner) {
    fflush(stdout);
    child = fork();
    if (child == 0) _exit(shares(0) == 0 && !check_case_failed ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  kvbm_manager_release(manager);
  kvbm_context_release(context);
  return 0;
}

static void clients_of_a_shared_set_may_name_the_owners_file(void) {
  begin(1);
  CHECK(in_a_child(shares, 1, 0) == 0);
  end();
}

int main(void) {
  if (access("/dev/shm", W_OK) != 0) return 77;
  if (check_directory(directory) == NULL) return 77;
  RUN(a_second_owner_in_the_process_is_refused);
  RUN(an_owner_in_another_process_is_named);
  RUN(a_killed_owner_frees_the_file_though_its_fork_lives);
  RUN(slots_that_were_handed_out_are_not_found_after_a_kill);
  RUN(what_was_not_touched_is_found_after_a_kill);
  RUN(a_view_gives_no_bytes_that_changed_in_the_file);
  RUN(a_load_gives_no_bytes_that_changed_in_the_file);
  RUN(a_registered_duplicate_of_changed_bytes_is_not_given);
  RUN(a_store_does_not_rely_on_bytes_that_changed_in_the_file);
  RUN(forgotten_blocks_stay_forgotten_after_a_close);
  RUN(forgotten_blocks_stay_forgotten_after_a_kill);
  RUN(forgotten_blocks_with_a_disk_stay_forgotten_after_a_close);
  RUN(forgotten_blocks_with_a_disk_stay_forgotten_after_a_kill);
  RUN(an_epoch_outlives_its_process);
  RUN(clients_of_a_shared_set_may_name_the_owners_file);
  check_remove(directory);
  FINISH();
}
