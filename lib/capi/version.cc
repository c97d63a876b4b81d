#include "capi/guard.h"

#define KVBM_TEXT_(x) #x
#define KVBM_TEXT(x) KVBM_TEXT_(x)

extern "C" {

uint32_t kvbm_version(void) { return KVBM_VERSION; }

const char* kvbm_version_string(void) {
  return KVBM_TEXT(KVBM_VERSION_MAJOR) "." KVBM_TEXT(KVBM_VERSION_MINOR) "." KVBM_TEXT(KVBM_VERSION_PATCH);
}

const char* kvbm_status_name(kvbm_status_t status) { return kvbm::code_name(static_cast<kvbm::Code>(status)); }

const char* kvbm_status_text(kvbm_status_t status) { return kvbm::code_text(static_cast<kvbm::Code>(status)); }

}  // extern "C"

// The core's codes and the header's values are one set.
#define KVBM_SAME(code, value) static_assert(static_cast<int32_t>(kvbm::Code::code) == (value))
KVBM_SAME(ok, KVBM_OK);
KVBM_SAME(partial, KVBM_PARTIAL);
KVBM_SAME(invalid_argument, KVBM_ERR_INVALID);
KVBM_SAME(stale_handle, KVBM_ERR_STALE);
KVBM_SAME(foreign_handle, KVBM_ERR_FOREIGN);
KVBM_SAME(wrong_state, KVBM_ERR_STATE);
KVBM_SAME(forked, KVBM_ERR_FORKED);
KVBM_SAME(bad_config, KVBM_ERR_CONFIG);
KVBM_SAME(in_use, KVBM_ERR_IN_USE);
KVBM_SAME(exists, KVBM_ERR_EXISTS);
KVBM_SAME(no_room, KVBM_ERR_NO_ROOM);
KVBM_SAME(over_quota, KVBM_ERR_QUOTA);
KVBM_SAME(again, KVBM_ERR_AGAIN);
KVBM_SAME(no_memory, KVBM_ERR_NO_MEMORY);
KVBM_SAME(disk_full, KVBM_ERR_DISK_FULL);
KVBM_SAME(at_limit, KVBM_ERR_LIMIT);
KVBM_SAME(deadline, KVBM_ERR_DEADLINE);
KVBM_SAME(cancelled, KVBM_ERR_CANCELLED);
KVBM_SAME(owner_gone, KVBM_ERR_OWNER_GONE);
KVBM_SAME(closed, KVBM_ERR_CLOSED);
KVBM_SAME(miss, KVBM_ERR_MISS);
KVBM_SAME(damaged, KVBM_ERR_DAMAGED);
KVBM_SAME(mismatch, KVBM_ERR_MISMATCH);
KVBM_SAME(unsupported, KVBM_ERR_UNSUPPORTED);
KVBM_SAME(newer_version, KVBM_ERR_VERSION);
KVBM_SAME(not_permitted, KVBM_ERR_PERMISSION);
KVBM_SAME(internal, KVBM_ERR_INTERNAL);
KVBM_SAME(io_error, KVBM_ERR_IO);
KVBM_SAME(tier_disabled, KVBM_ERR_TIER_DISABLED);
