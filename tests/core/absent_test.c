/* Calls of parts that this build leaves out answer KVBM_ERR_UNSUPPORTED, and their text names the CMake option. Each case
 * is skipped where its part is built. */
#include "../api/engine.h"

#define ABSENT(call, option)                                        \
  do {                                                              \
    CHECK_STATUS(call, KVBM_ERR_UNSUPPORTED);                       \
    CHECK(strstr(check_error.message, "KVBM_WITH_" option) != NULL); \
    memset(&check_error, 0, sizeof check_error);                    \
  } while (0)
/* Checks a call without an error slot. */
#define ABSENT_LAST(call, option)                              \
  do {                                                         \
    CHECK_STATUS(call, KVBM_ERR_UNSUPPORTED);                  \
    OK(kvbm_error_last(&check_error));                         \
    CHECK(strstr(check_error.message, "KVBM_WITH_" option) != NULL); \
    memset(&check_error, 0, sizeof check_error);               \
  } while (0)

/* Opens an engine with one setting of the context. */
static kvbm_status_t open_with(const char *key, const char *value) {
  kvbm_setting_t setting = {key, value};
  kvbm_context_options_t how;
  kvbm_manager_options_t options;
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  kvbm_status_t status;
  kvbm_context_options_init(&how, sizeof how);
  how.settings = &setting;
  how.n_settings = 1;
  status = kvbm_context_create(&how, &context, &check_error);
  if (status == KVBM_OK) {
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = BLOCK_BYTES;
    options.host_capacity_bytes = 1 << 20;
    status = kvbm_manager_create(context, &options, &manager, &check_error);
  }
  kvbm_manager_release(manager);
  kvbm_context_release(context);
  return status;
}

static void sessions(void) {
  engine_t e;
  kvbm_request_id_t request;
  kvbm_source_t source = {"node", 0, 0};
  uint32_t ids[1] = {0};
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  if (KVBM_WITH_SESSIONS) SKIP("sessions are built");
  memset(&request, 1, sizeof request);
  OK(engine_open_tiers(&e, 8, NULL, 0));
  ABSENT(kvbm_offer_open(e.cache, &request, ids, 1, NULL, NULL, 0, &offer, &check_error), "SESSIONS");
  ABSENT(kvbm_session_open(e.cache, &request, ids, 1, &source, 1, NULL, NULL, 0, &session, &check_error), "SESSIONS");
  CHECK(offer == NULL && session == NULL);
  ABSENT_LAST(kvbm_offer_abort(NULL, NULL), "SESSIONS");
  kvbm_offer_release(NULL);
  kvbm_session_release(NULL);
  engine_close(&e);
}

static void nodes_and_shared_tier_sets(void) {
  engine_t e;
  size_t n = 1;
  kvbm_share_t share;
  if (KVBM_WITH_CLUSTER) SKIP("nodes are built");
  ABSENT(open_with("node.listen", "127.0.0.1:0"), "CLUSTER");
  ABSENT(open_with("node.peers", "127.0.0.1:1"), "CLUSTER");
  ABSENT(open_with("share", "on"), "CLUSTER");
  OK(engine_open_tiers(&e, 8, NULL, 0));
  ABSENT(kvbm_manager_wait_for_peers(e.manager, 0, &check_error), "CLUSTER");
  ABSENT_LAST(kvbm_manager_nodes(e.manager, NULL, 0, &n), "CLUSTER");
  CHECK_U64(n, 0);
  ABSENT_LAST(kvbm_manager_node_address(e.manager, NULL, 0, &n), "CLUSTER");
  memset(&share, 0, sizeof share);
  share.struct_size = sizeof share;
  ABSENT_LAST(kvbm_manager_share(e.manager, &share), "CLUSTER");
  engine_close(&e);
}

static void caches_on_devices(void) {
  engine_t e;
  size_t n = 1;
  kvbm_cache_options_t layout;
  kvbm_tensor_t tensor;
  kvbm_cache_part_t part;
  kvbm_cache_t *cache = NULL;
  if (KVBM_WITH_DEVICE) SKIP("devices are built");
  ABSENT(open_with("device.cuda", "on"), "DEVICE");
  OK(engine_open_tiers(&e, 8, NULL, 0));
  ABSENT_LAST(kvbm_manager_devices(e.manager, NULL, 0, &n), "DEVICE");
  CHECK_U64(n, 0);
  memset(&tensor, 0, sizeof tensor);
  tensor.data = e.memory;
  tensor.bytes = (uint64_t)ENGINE_BLOCKS * BLOCK_BYTES;
  tensor.page_bytes = BLOCK_BYTES;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = ENGINE_BLOCKS;
  layout.parts = &part;
  layout.n_parts = 1;
  layout.memory = KVBM_MEMORY_CUDA;
  ABSENT(kvbm_cache_attach(e.manager, e.ns, &layout, &cache, &check_error), "DEVICE");
  CHECK(cache == NULL);
  engine_close(&e);
}

static void codecs_and_sealing(void) {
  engine_t e;
  char raw[64] = "raw", coded[8192];
  size_t bytes = 0;
  uint32_t mode = 0;
  kvbm_tier_t tier;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  if (KVBM_WITH_CODING) SKIP("codecs are built");
  ABSENT(kvbm_codec_encode(raw, sizeof raw, 1, NULL, coded, sizeof coded, &bytes, &check_error), "CODING");
  ABSENT(kvbm_codec_decode(coded, sizeof coded, 0, raw, sizeof raw, &bytes, &check_error), "CODING");
  ABSENT(kvbm_codec_mode_by_name("fast", &mode, &check_error), "CODING");
  ABSENT(open_with("seal.key_file", "/dev/null"), "CODING");
  memset(&tier, 0, sizeof tier);
  tier.path = "/tmp";
  tier.capacity_bytes = 64 << 20;
  tier.codec = "fast";
  ABSENT(engine_open_tiers(&e, 8, &tier, 1), "CODING");
  kvbm_context_release(e.context);
  OK(engine_open_tiers(&e, 8, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "other";
  who.codec = "fast";
  ABSENT(kvbm_namespace_open(e.manager, &who, &ns, &check_error), "CODING");
  ABSENT(kvbm_cache_encode(e.cache, NULL, 0, 1, NULL, coded, sizeof coded, &bytes, &check_error), "CODING");
  engine_close(&e);
}

static void disks(void) {
  engine_t e;
  kvbm_tier_t tier;
  if (KVBM_WITH_DISK) SKIP("disks are built");
  memset(&tier, 0, sizeof tier);
  tier.path = "/tmp/kvbm-absent";
  tier.capacity_bytes = 64 << 20;
  ABSENT(engine_open_tiers(&e, 8, &tier, 1), "DISK");
  kvbm_context_release(e.context);
  ABSENT(open_with("io.engine", "uring"), "DISK");
}

static void stores_and_plug_ins(void) {
  engine_t e;
  kvbm_tier_t tier;
  kvbm_tier_table_t tier_table;
  kvbm_policy_table_t policy_table;
  kvbm_manager_options_t options;
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  if (KVBM_WITH_PLUGINS) SKIP("plug-ins are built");
  memset(&tier, 0, sizeof tier);
  tier.capacity_bytes = 64 << 20;
  tier.url = "file:///tmp/kvbm-absent";
  ABSENT(engine_open_tiers(&e, 8, &tier, 1), "PLUGINS");
  kvbm_context_release(e.context);
  tier.url = NULL;
  memset(&tier_table, 0, sizeof tier_table);
  tier_table.struct_size = sizeof tier_table;
  tier.table = &tier_table;
  ABSENT(engine_open_tiers(&e, 8, &tier, 1), "PLUGINS");
  kvbm_context_release(e.context);
  memset(&policy_table, 0, sizeof policy_table);
  policy_table.struct_size = sizeof policy_table;
  OK(kvbm_context_create(NULL, &context, &check_error));
  kvbm_manager_options_init(&options, sizeof options);
  options.policy_table = &policy_table;
  ABSENT(kvbm_manager_create(context, &options, &manager, &check_error), "PLUGINS");
  kvbm_context_release(context);
}

int main(void) {
  RUN(sessions);
  RUN(nodes_and_shared_tier_sets);
  RUN(caches_on_devices);
  RUN(codecs_and_sealing);
  RUN(disks);
  RUN(stores_and_plug_ins);
  FINISH();
}
