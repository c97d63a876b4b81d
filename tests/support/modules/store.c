/* Libraries that are stores, or nearly (KVBM_CASE), for capi/plugin/store_module. */
#include <stddef.h>

#include "kvbm_plugin.h"


#if KVBM_CASE == 7 /* short_symbol */
KVBM_API extern const uint32_t kvbm_store_table[2];
const uint32_t kvbm_store_table[2] = {sizeof(kvbm_store_table_t), KVBM_STORE_ABI};
#elif KVBM_CASE != 6 /* no_symbol */
static const kvbm_store_option_help_t options[] = {
    {"region", "where it is"},
#if KVBM_CASE == 8 /* bad_option */
    {"Re gion", "x"},
#endif
    {"threads", "how many"}};

static kvbm_status_t open_store(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *facts, void **out,
                                char message[256]) {
  (void)config, (void)timeout_ns, (void)facts, (void)message;
  *out = NULL;
  return KVBM_OK;
}
static void start(void *store, kvbm_store_op_t *const *ops, size_t n) { (void)store, (void)ops, (void)n; }
static void close_store(void *store) { (void)store; }

KVBM_API extern const kvbm_store_table_t kvbm_store_table;
const kvbm_store_table_t kvbm_store_table = {
    KVBM_CASE == 3 ? sizeof(kvbm_store_table_t) - 8 : sizeof(kvbm_store_table_t), /* small_table */
    KVBM_CASE == 2 ? KVBM_STORE_ABI + 1 : KVBM_STORE_ABI,                         /* other_abi */
    KVBM_CASE == 5 ? "Of mine" : "test",                                          /* bad_name */
    options,
    sizeof options / sizeof options[0],
    open_store,
    KVBM_CASE == 4 ? NULL : start, /* holes */
    NULL,
    close_store};
#endif
