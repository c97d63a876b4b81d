/* Contexts and configuration: origins, and what is refused. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static kvbm_status_t create_with(const char *file, const char *key, const char *value, kvbm_context_t **context) {
  kvbm_context_options_t options;
  kvbm_setting_t setting;
  kvbm_context_options_init(&options, sizeof options);
  setting.key = key;
  setting.value = value;
  options.config_file = file;
  if (key != NULL) options.settings = &setting, options.n_settings = 1;
  return kvbm_context_create(&options, context, &check_error);
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  fputs(text, f);
  fclose(f);
}

static void later_sources_win_and_origins_are_printed(void) {
  kvbm_context_t *context = NULL;
  char path[64], text[8192];
  size_t needed = 0;
  snprintf(path, sizeof path, "/tmp/kvbm-config-%d.toml", (int)getpid());
  write_file(path, "threads = 3\n[host]\ncapacity = \"64MiB\"\nblock_bytes = \"32KiB\"\n");
  setenv("KVBM_HOST_CAPACITY", "128MiB", 1);
  OK(create_with(path, "host.block_bytes", "16KiB", &context));
  OK(kvbm_context_config(context, text, sizeof text, &needed));
  CHECK(needed == strlen(text));
  CHECK(strstr(text, "environment KVBM_HOST_CAPACITY") != NULL);
  CHECK(strstr(text, "options") != NULL);
  CHECK(strstr(text, path) != NULL); /* threads came from the file */
  CHECK(strstr(text, "default") != NULL);
  OK(kvbm_context_config(context, NULL, 0, &needed));
  OK(kvbm_context_config(context, text, 5, &needed));
  CHECK(strlen(text) == 4);
  kvbm_context_release(context);
  unsetenv("KVBM_HOST_CAPACITY");
  unlink(path);
}

static void unknown_keys_and_impossible_values_are_errors(void) {
  kvbm_context_t *context = NULL;
  char path[64];
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(NULL, "host.capacty", "1GiB", &context));
  CHECK(strstr(check_error.message, "host.capacty") != NULL);
  CHECK(strstr(check_error.message, "host.capacity") != NULL); /* the nearest */
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(NULL, "host.capacity", "many", &context));
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(NULL, "host.policy", "best", &context));
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(NULL, "threads", "0", &context));
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with("/nowhere/kvbm.toml", NULL, NULL, &context));
  CHECK(strstr(check_error.message, "/nowhere/kvbm.toml") != NULL);
  snprintf(path, sizeof path, "/tmp/kvbm-config-%d.toml", (int)getpid());
  write_file(path, "[host]\ncapacity = \"1GiB\"\nspeed = 9\n");
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(path, NULL, NULL, &context));
  CHECK(strstr(check_error.message, "host.speed") != NULL && strstr(check_error.message, ":3") != NULL);
  write_file(path, "[host\n");
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(path, NULL, NULL, &context));
  unlink(path);
  setenv("KVBM_HOST_CAPACTY", "1GiB", 1);
  CHECK_STATUS(KVBM_ERR_CONFIG, create_with(NULL, NULL, NULL, &context));
  CHECK(strstr(check_error.message, "KVBM_HOST_CAPACTY") != NULL);
  unsetenv("KVBM_HOST_CAPACTY");
}

static void versions_statuses_and_options_agree(void) {
  kvbm_context_options_t options;
  char text[16384];
  size_t needed = 0;
  CHECK(kvbm_version() == KVBM_VERSION);
  CHECK(strcmp(kvbm_version_string(), "0.1.0") == 0);
  CHECK(strcmp(kvbm_status_name(KVBM_ERR_NO_ROOM), "KVBM_ERR_NO_ROOM") == 0);
  CHECK(strcmp(kvbm_status_name(-12345), "KVBM_ERR_UNKNOWN") == 0);
  CHECK(strlen(kvbm_status_text(KVBM_ERR_DAMAGED)) > 10);
  memset(&options, 0xFF, sizeof options);
  OK(kvbm_context_options_init(&options, sizeof options));
  CHECK(options.struct_size == sizeof options && options.threads == 0 && options.log == NULL);
  CHECK_STATUS(KVBM_ERR_INVALID, kvbm_context_options_init(NULL, sizeof options));
  OK(kvbm_config_reference(text, sizeof text, &needed));
  CHECK(strstr(text, "host.capacity") != NULL);
}

static void a_forked_child_is_told(void) {
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  OK(kvbm_context_create(NULL, &context, &check_error));
  fflush(stdout);
  if (fork() == 0) _exit(kvbm_manager_create(context, NULL, &manager, NULL) == KVBM_ERR_FORKED ? 0 : 1);
  {
    int status = -1;
    while (wait(&status) < 0) {
    }
    CHECK(status == 0);
  }
  kvbm_context_release(context);
}

int main(void) {
  RUN(later_sources_win_and_origins_are_printed);
  RUN(unknown_keys_and_impossible_values_are_errors);
  RUN(versions_statuses_and_options_agree);
  RUN(a_forked_child_is_told);
  return check_end();
}
