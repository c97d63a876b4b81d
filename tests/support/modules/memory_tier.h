/* Records by name in memory: what a tier as a plug-in keeps. Thread: any. */
#ifndef KVBM_TESTS_MEMORY_TIER_H
#define KVBM_TESTS_MEMORY_TIER_H

#include <kvbm.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_TIER_BUCKETS = 4096 };

typedef struct memory_record {
  struct memory_record* next;
  uint8_t name[32];
  uint32_t head_bytes;
  uint64_t payload_bytes;
  unsigned char bytes[]; /* head, payload */
} memory_record_t;

typedef struct memory_tier {
  pthread_mutex_t mutex;
  memory_record_t* buckets[MEMORY_TIER_BUCKETS];
  uint64_t records, used;
} memory_tier_t;

/* Returns the pointer to the record of that name, or the place for a new one. The caller has the mutex. */
static memory_record_t** memory_tier_place(memory_tier_t* tier, const uint8_t* name) {
  memory_record_t** at = &tier->buckets[(name[0] | (unsigned)name[1] << 8) % MEMORY_TIER_BUCKETS];
  while (*at != NULL && memcmp((*at)->name, name, 32) != 0) at = &(*at)->next;
  return at;
}

static void memory_tier_find(memory_tier_t* tier, const uint8_t (*names)[32], size_t n, uint8_t* present,
                             uint32_t* head_bytes, uint64_t* payload_bytes) {
  size_t i;
  pthread_mutex_lock(&tier->mutex);
  for (i = 0; i < n; ++i) {
    const memory_record_t* record = *memory_tier_place(tier, names[i]);
    present[i] = record != NULL;
    head_bytes[i] = record != NULL ? record->head_bytes : 0;
    payload_bytes[i] = record != NULL ? record->payload_bytes : 0;
  }
  pthread_mutex_unlock(&tier->mutex);
}

static kvbm_status_t memory_tier_put_one(memory_tier_t* tier, const kvbm_tier_item_t* item) {
  memory_record_t** at;
  memory_record_t* made = (memory_record_t*)malloc(sizeof *made + item->head_bytes + item->payload_bytes);
  if (made == NULL) return KVBM_ERR_NO_MEMORY;
  memcpy(made->name, item->identity, 32);
  made->head_bytes = item->head_bytes;
  made->payload_bytes = item->payload_bytes;
  memcpy(made->bytes, item->head, item->head_bytes);
  memcpy(made->bytes + item->head_bytes, item->payload, item->payload_bytes);
  pthread_mutex_lock(&tier->mutex);
  at = memory_tier_place(tier, item->identity);
  made->next = NULL;
  if (*at != NULL) {
    memory_record_t* old = *at;
    made->next = old->next;
    tier->used -= old->payload_bytes;
    --tier->records;
    free(old);
  }
  *at = made;
  tier->used += made->payload_bytes;
  ++tier->records;
  pthread_mutex_unlock(&tier->mutex);
  return KVBM_OK;
}

static kvbm_status_t memory_tier_get_one(memory_tier_t* tier, kvbm_tier_item_t* item) {
  kvbm_status_t status = KVBM_ERR_MISS;
  const memory_record_t* record;
  pthread_mutex_lock(&tier->mutex);
  record = *memory_tier_place(tier, item->identity);
  if (record != NULL && record->head_bytes <= item->head_bytes && record->payload_bytes <= item->payload_bytes) {
    memcpy(item->head, record->bytes, record->head_bytes);
    memcpy(item->payload, record->bytes + record->head_bytes, record->payload_bytes);
    item->head_bytes = record->head_bytes;
    item->payload_bytes = record->payload_bytes;
    status = KVBM_OK;
  }
  pthread_mutex_unlock(&tier->mutex);
  return status;
}

static void memory_tier_erase(memory_tier_t* tier, const uint8_t (*names)[32], size_t n) {
  size_t i;
  pthread_mutex_lock(&tier->mutex);
  for (i = 0; i < n; ++i) {
    memory_record_t** at = memory_tier_place(tier, names[i]);
    memory_record_t* record = *at;
    if (record == NULL) continue;
    *at = record->next;
    tier->used -= record->payload_bytes;
    --tier->records;
    free(record);
  }
  pthread_mutex_unlock(&tier->mutex);
}

static void memory_tier_stats(memory_tier_t* tier, uint64_t* capacity, uint64_t* used, uint64_t* records) {
  pthread_mutex_lock(&tier->mutex);
  *capacity = 0;
  *used = tier->used;
  *records = tier->records;
  pthread_mutex_unlock(&tier->mutex);
}

#endif
