/* Sessions between two processes of one machine with caches on devices of the fake driver. Payloads go from device
 * memory to device memory, else over the link. Either process is killed meanwhile.
 *
 * The other process runs this program again. It reads commands from its input, and answers each line with one. */
#define SIDE_DIM 128 /* leaves that are worth it */
#include "device_side.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

typedef struct child {
  pid_t pid;
  FILE *to, *from;
  char address[128];
} child_t;

/* ---- The other process ---- */

static kvbm_request_id_t request_id(unsigned number) {
  kvbm_request_id_t id;
  memset(&id, 0, sizeof id);
  id.bytes[0] = (uint8_t)(1 + number);
  return id;
}

static kvbm_offer_t *offer_it(const side_t *s, unsigned number) {
  const kvbm_request_id_t id = request_id(number);
  kvbm_offer_t *offer = NULL;
  kvbm_error_t err;
  if (kvbm_offer_open(s->cache, &id, s->blocks, TOKENS / s->block_tokens, NULL, NULL, 0, &offer, &err) < 0) {
    printf("  %s\n", err.message);
  }
  return offer;
}

static kvbm_session_t *open_it(const side_t *s, unsigned number, const char *address) {
  const kvbm_request_id_t id = request_id(number);
  kvbm_session_t *session = NULL;
  kvbm_source_t source;
  kvbm_error_t err;
  memset(&source, 0, sizeof source);
  source.node = address;
  if (kvbm_session_open(s->cache, &id, s->blocks, TOKENS / s->block_tokens, &source, 1, NULL, NULL, 0, &session, &err) <
      0) {
    printf("  %s\n", err.message);
  }
  return session;
}

/* Waits until a metric is at least that, for a minute at most. */
static int reaches(const side_t *s, const char *name, const char *label, const char *other, uint64_t least) {
  int i;
  for (i = 0; i < 60000; ++i) {
    const uint64_t now = metric(s, name, label, other);
    if (now != ~0ull && now >= least) return 1;
    usleep(1000);
  }
  return 0;
}

static int run_prefill(const char *ipc) {
  kvbm_offer_t *offer = NULL;
  char line[160];
  size_t needed = 0;
  unsigned number = 0;
  uint32_t l;
  side_t s;
  if (!fake_open() || !side_open(&s, 0, "node.listen", "127.0.0.1:0", ipc, 16, KVBM_FORM_NHD)) return 1;
  for (l = 0; l < LAYERS; ++l) fill(&s, l, s.kv[l]);
  kvbm_manager_node_address(s.manager, line, sizeof line, &needed);
  printf("%s\n", line);
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (sscanf(line, "offer %u", &number) == 1) {
      kvbm_offer_release(offer);
      offer = offer_it(&s, number);
      printf("%s\n", offer != NULL ? "offered" : "refused");
    } else if (strncmp(line, "publish", 7) == 0) {
      printf("%s\n", kvbm_status_name(kvbm_offer_publish_all(offer, NULL)));
    } else if (strncmp(line, "sent", 4) == 0) {
      printf("%s\n", reaches(&s, "kvbm_session_slices_total", "\"prefill\"", "\"device\"", LAYERS) ? "sent" : "not sent");
    } else if (strncmp(line, "wait", 4) == 0) {
      printf("%s\n", kvbm_status_name(kvbm_offer_wait(offer, 60 * SECOND_NS, NULL)));
    } else {
      line[strcspn(line, "\n")] = 0;
      printf("%s\n", fake.apply(line) ? "done" : "not understood");
    }
    fflush(stdout);
  }
  kvbm_offer_release(offer);
  side_close(&s);
  return 0;
}

/* Decodes a request of another process, on a device that makes no progress. */
static int run_decode(const char *address) {
  kvbm_session_t *session;
  side_t s;
  char line[16];
  if (!fake_open() || !side_open(&s, 0, "node.peers", address, "auto", 8, KVBM_FORM_HND)) return 1;
  session = open_it(&s, 0, address);
  if (session == NULL) return 1;
  printf("opened\n");
  fflush(stdout);
  if (fgets(line, sizeof line, stdin) == NULL || !reaches(&s, "kvbm_session_maps_total", "\"mapped\"", "", 1)) return 1;
  if (fake.apply("hold=1")) printf("held\n");
  fflush(stdout);
  (void)fgets(line, sizeof line, stdin); /* until it is killed */
  return 1;
}

/* ---- This one ---- */

static const char *say(child_t *c, const char *text) {
  static char answer[128];
  if (text != NULL) {
    fprintf(c->to, "%s\n", text);
    fflush(c->to);
  }
  if (fgets(answer, sizeof answer, c->from) == NULL) return "";
  answer[strcspn(answer, "\n")] = 0;
  return answer;
}

static int child_start(child_t *c, const char *role, const char *argument) {
  int down[2], up[2];
  memset(c, 0, sizeof *c);
  if (pipe(down) != 0 || pipe(up) != 0) return 0;
  c->pid = fork();
  if (c->pid == 0) {
    dup2(down[0], 0), dup2(up[1], 1);
    close(down[0]), close(down[1]), close(up[0]), close(up[1]);
    execl("/proc/self/exe", "session_ipc", role, argument, (char *)NULL);
    _exit(127);
  }
  close(down[0]), close(up[1]);
  c->to = fdopen(down[1], "w"), c->from = fdopen(up[0], "r");
  snprintf(c->address, sizeof c->address, "%s", say(c, NULL));
  return c->pid > 0 && c->address[0] != 0;
}

/* Ends a child. kill_it: by SIGKILL, else waits for it. Returns its exit status or its signal. */
static int child_end(child_t *c, int kill_it) {
  int status = -1;
  if (kill_it) kill(c->pid, SIGKILL);
  fclose(c->to);
  while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) {
  }
  fclose(c->from);
  return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
}

static uint64_t slices(const side_t *s, const char *side, const char *way) {
  return metric(s, "kvbm_session_slices_total", side, way);
}

static uint64_t all_wrong(const side_t *s) {
  uint64_t n = 0;
  uint32_t l;
  for (l = 0; l < LAYERS; ++l) n += wrong(s, l);
  return n;
}

/* A child that prefills, and this side to decode. */
typedef struct world2 {
  child_t prefill;
  side_t decode;
} world2_t;

static int world2_open(world2_t *w, const char *ipc, const char *their_ipc) {
  return child_start(&w->prefill, "prefill", their_ipc) && fake.apply("hold=0") &&
         side_open(&w->decode, 0, "node.peers", w->prefill.address, ipc, 8, KVBM_FORM_HND);
}

static kvbm_session_t *begin(world2_t *w, unsigned number) {
  char text[32];
  snprintf(text, sizeof text, "offer %u", number);
  CHECK(strcmp(say(&w->prefill, text), "offered") == 0);
  return open_it(&w->decode, number, w->prefill.address);
}

static void payloads_go_from_device_to_device(void) {
  world2_t w;
  unsigned i;
  if (!world2_open(&w, "auto", "auto")) OPEN_FAILED;
  for (i = 0; i < 3; ++i) {
    kvbm_session_t *session = begin(&w, i);
    uint32_t l;
    CHECK(reaches(&w.decode, "kvbm_session_maps_total", "\"mapped\"", "", 1));
    CHECK(strcmp(say(&w.prefill, "publish"), "KVBM_OK") == 0);
    CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, NULL), KVBM_OK);
    CHECK(strcmp(say(&w.prefill, "wait"), "KVBM_OK") == 0);
    CHECK_U64(all_wrong(&w.decode), 0);
    CHECK_U64(slices(&w.decode, "\"decode\"", "\"device\""), (i + 1) * LAYERS);
    CHECK_U64(slices(&w.decode, "\"decode\"", "\"link\""), 0);
    kvbm_session_release(session);
    for (l = 0; l < LAYERS; ++l) memset(w.decode.kv[l], 0, LAYER_VALUES * 2);
  }
  CHECK_U64(metric(&w.decode, "kvbm_session_maps_total", "\"mapped\"", ""), 1);
  CHECK_U64(metric(&w.decode, "kvbm_session_ended_total", "\"decode\"", "\"done\""), 3);
  CHECK(metric(&w.decode, "kvbm_device_inside_leaves_total", "\"scatter\"", "") > 0);
  CHECK_U64(child_end(&w.prefill, 0), 0);
  side_close(&w.decode);
}

static void who_is_told_not_to_or_is_not_let_does_it_over_the_link(void) {
  static const struct {
    const char *here, *there, *fault, *their_fault;
    uint64_t refused;
  } cases[] = {{"off", "auto", "hold=0", "hold=0", 0},
               {"auto", "off", "hold=0", "hold=0", 0},
               {"auto", "auto", "fail=cuIpcOpenMemHandle:1:217", "hold=0", 1},
               {"auto", "auto", "fail=cuIpcOpenMemHandle:1:205", "hold=0", 1},
               {"auto", "auto", "hold=0", "fail=cuIpcGetMemHandle:1:801", 1},
               {"auto", "auto", "hold=0", "fail=cuMemAlloc:1:2", 1}};
  size_t i;
  for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
    kvbm_session_t *session;
    world2_t w;
    if (!world2_open(&w, cases[i].here, cases[i].there)) OPEN_FAILED;
    CHECK(fake.apply(cases[i].fault));
    CHECK(strcmp(say(&w.prefill, cases[i].their_fault), "done") == 0);
    session = begin(&w, 0);
    if (cases[i].refused) CHECK(reaches(&w.decode, "kvbm_session_maps_total", "\"refused\"", "", 1));
    CHECK(strcmp(say(&w.prefill, "publish"), "KVBM_OK") == 0);
    CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, NULL), KVBM_OK);
    CHECK_U64(all_wrong(&w.decode), 0);
    CHECK_U64(slices(&w.decode, "\"decode\"", "\"device\""), 0);
    CHECK_U64(metric(&w.decode, "kvbm_session_maps_total", "\"refused\"", ""), cases[i].refused);
    kvbm_session_release(session);
    child_end(&w.prefill, 0);
    side_close(&w.decode);
  }
}

static void a_prefill_process_that_is_killed_while_it_is_read_ends_the_session(void) {
  kvbm_session_t *session;
  kvbm_error_t err;
  world2_t w;
  uint32_t l;
  if (!world2_open(&w, "auto", "auto")) OPEN_FAILED;
  session = begin(&w, 0);
  CHECK(reaches(&w.decode, "kvbm_session_maps_total", "\"mapped\"", "", 1));
  CHECK(fake.apply("hold=1"));
  CHECK(strcmp(say(&w.prefill, "publish"), "KVBM_OK") == 0);
  CHECK(strcmp(say(&w.prefill, "sent"), "sent") == 0); /* and this device stands still */
  CHECK_U64(child_end(&w.prefill, 1), SIGKILL);
  CHECK(fake.apply("hold=0"));
  /* The device may still have read the shared memory as it was before, or the connection ended first. */
  if (kvbm_session_wait(session, 60 * SECOND_NS, &err) != KVBM_OK) {
    CHECK_STATUS(err.status, KVBM_ERR_OWNER_GONE);
    CHECK(strstr(err.message, w.prefill.address) != NULL);
  }
  for (l = 0; l < LAYERS; ++l) {
    if (kvbm_session_wait_layer(session, 0, l, 0, NULL) == KVBM_OK) CHECK_U64(wrong(&w.decode, l), 0);
  }
  kvbm_session_release(session);
  side_close(&w.decode);
}

static void slots_of_a_decode_process_that_is_killed_are_free_again(void) {
  kvbm_offer_t *offer;
  kvbm_error_t err;
  child_t decode;
  char address[128];
  size_t needed = 0;
  side_t s;
  uint32_t l;
  if (!side_open(&s, 0, "node.listen", "127.0.0.1:0", "auto", 16, KVBM_FORM_NHD)) OPEN_FAILED;
  for (l = 0; l < LAYERS; ++l) fill(&s, l, s.kv[l]);
  kvbm_manager_node_address(s.manager, address, sizeof address, &needed);
  offer = offer_it(&s, 0);
  if (!child_start(&decode, "decode", address)) OPEN_FAILED;
  CHECK(strcmp(say(&decode, "hold"), "held") == 0);
  CHECK_STATUS(kvbm_offer_publish_all(offer, NULL), KVBM_OK);
  CHECK(reaches(&s, "kvbm_session_slots", "\"device\"", "", LAYERS)); /* each layer is read by a device that stands still */
  CHECK_U64(child_end(&decode, 1), SIGKILL);
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_ERR_OWNER_GONE);
  CHECK_U64(metric(&s, "kvbm_session_slots", "\"device\"", ""), 0);
  CHECK_U64(metric(&s, "kvbm_session_slots", "\"host\"", ""), 0);
  kvbm_offer_release(offer);
  side_close(&s);
}

static void a_device_that_is_lost_over_there_is_named_here(void) {
  kvbm_session_t *session;
  kvbm_error_t err;
  world2_t w;
  if (!world2_open(&w, "auto", "auto")) OPEN_FAILED;
  session = begin(&w, 0);
  CHECK(reaches(&w.decode, "kvbm_session_maps_total", "\"mapped\"", "", 1));
  CHECK(strcmp(say(&w.prefill, "lose=0:719"), "done") == 0);
  CHECK(strcmp(say(&w.prefill, "publish"), "KVBM_OK") == 0);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_TIER_DISABLED);
  CHECK(strstr(err.message, "device 0") != NULL);
  CHECK(strcmp(say(&w.prefill, "wait"), "KVBM_ERR_TIER_DISABLED") == 0);
  kvbm_session_release(session);
  child_end(&w.prefill, 0);
  side_close(&w.decode);
}

/* The last case: the device of this process stays lost. */
static void a_device_that_is_lost_here_is_named_over_there(void) {
  kvbm_session_t *session;
  world2_t w;
  if (!world2_open(&w, "auto", "auto")) OPEN_FAILED;
  session = begin(&w, 0);
  CHECK(reaches(&w.decode, "kvbm_session_maps_total", "\"mapped\"", "", 1));
  CHECK(fake.apply("lose=0:719"));
  CHECK(strcmp(say(&w.prefill, "publish"), "KVBM_OK") == 0);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, NULL), KVBM_ERR_TIER_DISABLED);
  CHECK(strcmp(say(&w.prefill, "wait"), "KVBM_ERR_TIER_DISABLED") == 0);
  kvbm_session_release(session);
  CHECK_U64(child_end(&w.prefill, 0), 0);
  side_close(&w.decode);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "prefill") == 0) return run_prefill(argv[2]);
  if (argc == 3 && strcmp(argv[1], "decode") == 0) return run_decode(argv[2]);
  if (!fake_open()) return 1;
  signal(SIGPIPE, SIG_IGN);
  RUN(payloads_go_from_device_to_device);
  RUN(who_is_told_not_to_or_is_not_let_does_it_over_the_link);
  RUN(a_prefill_process_that_is_killed_while_it_is_read_ends_the_session);
  RUN(slots_of_a_decode_process_that_is_killed_are_free_again);
  RUN(a_device_that_is_lost_over_there_is_named_here);
  RUN(a_device_that_is_lost_here_is_named_over_there);
  FINISH();
}
