/* A tier's directory that cannot be used: each time the right error, a message that says what to do, and nothing of
 * what was stored is lost. */
#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <xxhash.h>

#include "engine.h"

static char scratch[256];

static const char *directory(const char *name) {
  static char path[2][400];
  static int at;
  at = 1 - at;
  snprintf(path[at], sizeof path[at], "%s/%s", scratch, name);
  return path[at];
}

static int says(const char *what) {
  if (strstr(check_error.message, what) != NULL) return 1;
  printf("  \"%s\" does not say \"%s\"\n", check_error.message, what);
  return 0;
}

/* Expects that the tier at `path` is refused with `status`, in words that name `what` and `remedy`. */
static void refused(const char *path, uint64_t capacity, kvbm_status_t status, const char *what, const char *remedy) {
  engine_t e;
  memset(&check_error, 0, sizeof check_error);
  CHECK_STATUS(engine_open(&e, 16, path, capacity), status);
  CHECK_STATUS(check_error.status, status);
  CHECK(e.manager == NULL);
  CHECK(says(what));
  CHECK(says(remedy));
  engine_close(&e);
}

static void store_in(const char *path, uint32_t first, size_t n) {
  engine_t e;
  OK(engine_open(&e, 40, path, 64 << 20));
  OK(engine_store(&e, first, n));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  engine_close(&e);
}
static void still_has(const char *path, uint32_t first, size_t n) {
  engine_t e;
  OK(engine_open(&e, 40, path, 64 << 20));
  if (e.cache != NULL) CHECK_U64(engine_load(&e, first, n), n);
  engine_close(&e);
}

static void a_directory_in_use_by_another_process(void) {
  const char *path = directory("used");
  int ready[2], go[2], status = -1;
  char byte = 0, pid[32];
  pid_t child;
  CHECK(pipe(ready) == 0 && pipe(go) == 0);
  fflush(stdout);
  child = fork();
  if (child == 0) {
    engine_t e;
    close(ready[0]), close(go[1]);
    if (engine_open(&e, 40, path, 64 << 20) != KVBM_OK || engine_store(&e, 1, 20) != KVBM_OK) _exit(1);
    if (kvbm_manager_flush(e.manager, 60000000000ULL) != KVBM_OK) _exit(2);
    if (write(ready[1], "r", 1) != 1 || read(go[0], &byte, 1) != 1) _exit(3);
    if (engine_load(&e, 1, 20) != 20 || check_case_failed) _exit(4); /* the owner has noticed nothing */
    engine_close(&e);
    _exit(0);
  }
  close(ready[1]), close(go[0]);
  CHECK(read(ready[0], &byte, 1) == 1);
  snprintf(pid, sizeof pid, "%d", (int)child);
  refused(path, 64 << 20, KVBM_ERR_IN_USE, pid, "choose another directory");
  refused(path, 64 << 20, KVBM_ERR_IN_USE, path, "stop it");
  CHECK(write(go[1], "g", 1) == 1);
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(ready[0]), close(go[1]);
  still_has(path, 1, 20);
}

/* docs/formats: two slots of 256 KiB; the version after the magic, XXH3 over the rest at the end, seeded with the
 * magic. */
enum { SLOT = 256 * 1024 };
static void change_version(const char *path, int by) {
  static unsigned char slot[SLOT];
  char file[512];
  int fd, i;
  snprintf(file, sizeof file, "%s/superblock", path);
  fd = open(file, O_RDWR);
  CHECK(fd >= 0);
  for (i = 0; i < 2; ++i) {
    uint32_t magic, version;
    uint64_t sum;
    CHECK(pread(fd, slot, SLOT, (off_t)i * SLOT) == SLOT);
    memcpy(&magic, slot, 4);
    memcpy(&version, slot + 4, 4);
    memcpy(&sum, slot + SLOT - 8, 8);
    CHECK(sum == XXH3_64bits_withSeed(slot, SLOT - 8, magic)); /* else this test knows another format */
    version += (uint32_t)by;
    memcpy(slot + 4, &version, 4);
    sum = XXH3_64bits_withSeed(slot, SLOT - 8, magic);
    memcpy(slot + SLOT - 8, &sum, 8);
    CHECK(pwrite(fd, slot, SLOT, (off_t)i * SLOT) == SLOT);
  }
  close(fd);
}

static void a_directory_of_a_newer_format(void) {
  const char *path = directory("newer");
  store_in(path, 1, 20);
  store_in(path, 100, 4); /* both slots are written now */
  change_version(path, 2); /* by one it is one that is known, of floors of epochs */
  refused(path, 64 << 20, KVBM_ERR_VERSION, "newer", "choose another directory");
  refused(path, 64 << 20, KVBM_ERR_VERSION, path, "that version");
  change_version(path, -2);
  still_has(path, 1, 20);
}

static void a_directory_with_files_of_someone_else(void) {
  const char *path = directory("foreign");
  char file[500];
  struct stat st;
  size_t i;
  int fd;
  const char *names[3] = {"notes.txt", "segment-000001.kv.bak", ".hidden"};
  store_in(path, 1, 20);
  for (i = 0; i < 3; ++i) {
    snprintf(file, sizeof file, "%s/%s", path, names[i]);
    fd = open(file, O_CREAT | O_WRONLY, 0600);
    CHECK(write(fd, "mine", 4) == 4);
    close(fd);
    refused(path, 64 << 20, KVBM_ERR_EXISTS, names[i], "move it away");
    CHECK(stat(file, &st) == 0 && st.st_size == 4);
    CHECK(unlink(file) == 0);
  }
  still_has(path, 1, 20);
  snprintf(file, sizeof file, "%s", directory("empty-but"));
  mkdir(file, 0700);
  strcat(file, "/photo.jpg");
  close(open(file, O_CREAT | O_WRONLY, 0600));
  refused(directory("empty-but"), 64 << 20, KVBM_ERR_EXISTS, "photo.jpg", "nothing was changed");
  CHECK(access(directory("empty-but/superblock"), F_OK) != 0);
  CHECK(access(directory("empty-but/lock"), F_OK) != 0);
}

static void a_path_that_is_no_directory(void) {
  engine_t e;
  const char *path = directory("file");
  close(open(path, O_CREAT | O_WRONLY, 0600));
  CHECK(engine_open(&e, 16, path, 64 << 20) < 0);
  CHECK(says(path));
  engine_close(&e);
  CHECK(engine_open(&e, 16, directory("file/below"), 64 << 20) < 0);
  CHECK(says("file/below"));
  engine_close(&e);
}

static void a_host_file_of_someone_else(void) {
  static const char text[] = "root:x:0:0\n";
  engine_t e;
  char kept[2 * sizeof text] = "";
  const char *path = directory("accounts");
  int fd = open(path, O_CREAT | O_RDWR, 0600);
  CHECK(write(fd, text, sizeof text) == (ssize_t)sizeof text);
  engine_host_file = path;
  CHECK_STATUS(engine_open(&e, 16, NULL, 0), KVBM_ERR_EXISTS);
  CHECK(says(path));
  CHECK(says("name another file"));
  engine_close(&e);
  engine_host_file = NULL;
  CHECK(pread(fd, kept, sizeof kept, 0) == (ssize_t)sizeof text && memcmp(kept, text, sizeof text) == 0);
  close(fd);
}

/* The error must not be a status of blocks, which would hide that something must be repaired. */
static void a_path_that_leads_nowhere(void) {
  engine_t e;
  const char *path = directory("missing/host");
  engine_host_file = path;
  CHECK_STATUS(engine_open(&e, 16, NULL, 0), KVBM_ERR_IO);
  CHECK(says(path));
  engine_close(&e);
  engine_host_file = NULL;
  refused("/proc/missing", 64 << 20, KVBM_ERR_IO, "/proc/missing", "No such file");
}

static void a_capacity_that_is_impossible(void) {
  refused(directory("vast"), UINT64_MAX, KVBM_ERR_CONFIG, "too large", "several tiers");
  refused(directory("vast"), (UINT64_C(16) << 40) + 1, KVBM_ERR_CONFIG, "too large", "several tiers");
}

static void a_capacity_that_is_too_small(void) {
  const char *path = directory("small");
  refused(path, 0, KVBM_ERR_CONFIG, "capacity", "needed");
  refused(path, BLOCK_BYTES / 2, KVBM_ERR_CONFIG, "4096 bytes given", "needed");
  refused(path, 1 << 20, KVBM_ERR_CONFIG, "1048576 bytes given", "needed");
  CHECK(access(directory("small/superblock"), F_OK) != 0);
  store_in(path, 1, 20);
  refused(path, BLOCK_BYTES / 2, KVBM_ERR_CONFIG, "4096 bytes given", "needed"); /* a directory that is in good order */
  still_has(path, 1, 20);
}

/* Runs `what` in a process with mounts of its own; skips where that is forbidden. */
static int forbidden;
static void with_mounts(void (*what)(void)) {
  int status = -1;
  pid_t child;
  fflush(stdout);
  child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) _exit(77);
    what();
    fflush(stdout);
    _exit(check_case_skipped ? 77 : check_case_failed);
  }
  waitpid(child, &status, 0);
  forbidden = WIFEXITED(status) && WEXITSTATUS(status) == 77;
  CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || forbidden));
}

static int mounted(const char *source, const char *target, const char *type, unsigned long flags, const char *data) {
  if (mount(source, target, type, flags, data) == 0) return 1;
  printf("  mount: %s\n", strerror(errno));
  check_case_skipped = 1;
  return 0;
}

static void read_only_inside(void) {
  const char *path = directory("read-only");
  if (!mounted(path, path, NULL, MS_BIND, NULL)) return;
  if (!mounted(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)) return;
  refused(path, 64 << 20, KVBM_ERR_PERMISSION, path, "choose another directory");
  CHECK(umount(path) == 0);
  still_has(path, 1, 20);
}
static void a_read_only_directory(void) {
  store_in(directory("read-only"), 1, 20);
  with_mounts(read_only_inside);
  if (forbidden) SKIP("no mounts of its own here");
  still_has(directory("read-only"), 1, 20);
}

/* Makes a file that takes all remaining space. */
static void fill_up(const char *path) {
  static char page[65536];
  size_t bytes = sizeof page;
  const int fd = open(path, O_CREAT | O_WRONLY, 0600);
  while (bytes >= 512) {
    if (write(fd, page, bytes) <= 0) bytes /= 2;
  }
  close(fd);
}

static void full_inside(void) {
  const char *room = directory("room");
  char path[500], ballast[500];
  engine_t e;
  mkdir(room, 0700);
  if (!mounted("none", room, "tmpfs", 0, "size=20m")) return;
  snprintf(path, sizeof path, "%s/tier", room);
  snprintf(ballast, sizeof ballast, "%s/ballast", room);
  refused(path, 64 << 20, KVBM_ERR_DISK_FULL, path, "free space"); /* three segments of 16 MiB do not fit */
  refused(path, 64 << 20, KVBM_ERR_DISK_FULL, path, "free space"); /* files left by the first try do no harm */
  if (!mounted(NULL, room, NULL, MS_REMOUNT, "size=80m")) return;
  store_in(path, 1, 20);
  fill_up(ballast);
  still_has(path, 1, 20); /* a full disk can be opened and read */
  OK(engine_open(&e, 40, path, 1 << 30)); /* has no room to grow */
  OK(engine_store(&e, 100, 30));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  CHECK(engine_load(&e, 100, 30) == 30);
  CHECK(engine_load(&e, 1, 20) == 20);
  engine_close(&e);
  still_has(path, 100, 30);
  still_has(path, 1, 20);
}
static void a_full_disk(void) {
  with_mounts(full_inside);
  if (forbidden) SKIP("no mounts of its own here");
}

int main(void) {
  if (check_directory(scratch) == NULL) return 77;
  RUN(a_directory_in_use_by_another_process);
  RUN(a_directory_of_a_newer_format);
  RUN(a_directory_with_files_of_someone_else);
  RUN(a_path_that_is_no_directory);
  RUN(a_capacity_that_is_too_small);
  RUN(a_capacity_that_is_impossible);
  RUN(a_host_file_of_someone_else);
  RUN(a_path_that_leads_nowhere);
  RUN(a_read_only_directory);
  RUN(a_full_disk);
  check_remove(scratch);
  FINISH();
}
