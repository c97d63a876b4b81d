/* kvbm_version*, kvbm_status_*. */
#include "check.h"

static void library_and_header_have_one_version(void) {
  char text[32];
  CHECK_U64(kvbm_version(), KVBM_VERSION);
  snprintf(text, sizeof text, "%d.%d.%d", KVBM_VERSION_MAJOR, KVBM_VERSION_MINOR, KVBM_VERSION_PATCH);
  CHECK(strcmp(kvbm_version_string(), text) == 0);
}

static void every_status_has_its_name_and_a_sentence(void) {
  static const struct {
    kvbm_status_t status;
    const char *name;
  } all[] = {
#define ROW(name) {name, #name}
      ROW(KVBM_OK), ROW(KVBM_PARTIAL), ROW(KVBM_ERR_INVALID), ROW(KVBM_ERR_STALE), ROW(KVBM_ERR_FOREIGN),
      ROW(KVBM_ERR_STATE), ROW(KVBM_ERR_FORKED), ROW(KVBM_ERR_CONFIG), ROW(KVBM_ERR_IN_USE), ROW(KVBM_ERR_EXISTS),
      ROW(KVBM_ERR_NO_ROOM), ROW(KVBM_ERR_QUOTA), ROW(KVBM_ERR_AGAIN), ROW(KVBM_ERR_NO_MEMORY),
      ROW(KVBM_ERR_DISK_FULL), ROW(KVBM_ERR_LIMIT), ROW(KVBM_ERR_DEADLINE), ROW(KVBM_ERR_CANCELLED), ROW(KVBM_ERR_OWNER_GONE),
      ROW(KVBM_ERR_CLOSED), ROW(KVBM_ERR_MISS), ROW(KVBM_ERR_DAMAGED), ROW(KVBM_ERR_MISMATCH),
      ROW(KVBM_ERR_UNSUPPORTED), ROW(KVBM_ERR_VERSION), ROW(KVBM_ERR_PERMISSION), ROW(KVBM_ERR_INTERNAL),
      ROW(KVBM_ERR_IO), ROW(KVBM_ERR_TIER_DISABLED)};
  size_t i, j;
  for (i = 0; i < sizeof all / sizeof all[0]; ++i) {
    const char *name = kvbm_status_name(all[i].status);
    CHECK(strcmp(name, all[i].name) == 0);
    CHECK(strlen(kvbm_status_text(all[i].status)) > 3);
    for (j = 0; j < i; ++j) CHECK(strcmp(kvbm_status_text(all[i].status), kvbm_status_text(all[j].status)) != 0);
  }
}

static void unknown_statuses_are_named_too(void) {
  CHECK(kvbm_status_name(-12345) != NULL);
  CHECK(kvbm_status_text(77) != NULL);
}

int main(void) {
  RUN(library_and_header_have_one_version);
  RUN(every_status_has_its_name_and_a_sentence);
  RUN(unknown_statuses_are_named_too);
  FINISH();
}
