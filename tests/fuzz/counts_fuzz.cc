// Every count and size of the C interface, beyond what there can be: each call refuses it, or needs no more than there
// is, and nothing dies by a signal. Arrays are as short as they may be: whatever is read because of a count is read too
// much.
//
// A row for each: CALL(function, parameter, ...) or FIELD(struct, field, ...). tests/abi/counts compares the rows with
// the headers. The empty input tries all rows with all edges; others choose a row and the numbers.
#include <iterator>

#include "c_calls_world.h"
#include "target.h"

namespace counts_fuzz {
namespace {

using kvbm::fuzz::ErrorSlot;
using kvbm::fuzz::expected;

constexpr uint64_t kMost = uint64_t{1} << 28;  // kvbm.h, convention 7
constexpr uint64_t kEdges[] = {kMost + 1,
                               INT32_MAX,
                               uint64_t{1} << 31,
                               UINT32_MAX,
                               uint64_t{1} << 32,
                               (uint64_t{1} << 32) + 1,
                               (uint64_t{1} << 40) + 1,
                               uint64_t{1} << 56,
                               uint64_t{1} << 57,
                               uint64_t{1} << 58,
                               uint64_t{1} << 59,
                               (uint64_t{1} << 60) - 1,
                               uint64_t{1} << 60,
                               (uint64_t{1} << 60) + 1,
                               uint64_t{1} << 61,
                               uint64_t{1} << 62,
                               (uint64_t{1} << 62) + 1,
                               INT64_MAX,
                               uint64_t{1} << 63,
                               (uint64_t{1} << 63) + 1,
                               UINT64_MAX / 24 + 1,
                               UINT64_MAX / 3 + 1,
                               UINT64_MAX - 15,
                               UINT64_MAX - 1,
                               UINT64_MAX};

constexpr size_t kBlock = 4096;
constexpr uint32_t kUnits = 4;
constexpr size_t kText = 1 << 20;

// Objects and arguments that calls need beside the count. Every array is one element long.
struct World {
  kvbm_context_t* plain = nullptr;  // for managers that are no nodes
  kvbm_context_t* context = nullptr;
  kvbm_manager_t* manager = nullptr;  // a node, so that offers and sessions come to their counts
  kvbm_namespace_t* ns = nullptr;
  kvbm_geometry_t* geometry = nullptr;
  kvbm_cache_t* cache = nullptr;  // two parts, four engine blocks in a stored one
  kvbm_queue_t* queue = nullptr;
  kvbm_match_t* match = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>(size_t{2} * 2 * kUnits * kBlock);
  std::vector<char> text = std::vector<char>(kText);
  kvbm_key_t key{};
  kvbm_block_t block = 0;  // partial
  kvbm_block_t held = 0;   // registered

  World() {
    kvbm_context_options_t options;
    kvbm_context_options_init(&options, sizeof options);
    options.threads = 1;
    const kvbm_setting_t settings[] = {
        {"io.engine", "pread"}, {"io.threads", "1"}, {"host.huge_pages", "off"}, {"node.listen", "127.0.0.1:0"}};
    options.settings = settings;
    options.n_settings = std::size(settings);
    REQUIRE(kvbm_context_create(&options, &context, nullptr) == KVBM_OK);
    options.n_settings = std::size(settings) - 1;
    REQUIRE(kvbm_context_create(&options, &plain, nullptr) == KVBM_OK);
    kvbm_manager_options_t pool;
    kvbm_manager_options_init(&pool, sizeof pool);
    pool.block_bytes = 16 * kBlock;  // room for a leaf of each unit, layer and plane
    pool.host_capacity_bytes = 4 << 20;
    REQUIRE(kvbm_manager_create(context, &pool, &manager, nullptr) == KVBM_OK);
    kvbm_component_t parts[2] = {};
    for (kvbm_component_t& c : parts) {
      c.kind = KVBM_COMPONENT_ATTENTION, c.element = KVBM_ELEMENT_BF16;
      c.layers = 2, c.heads = 1, c.head_dim = 64;
    }
    REQUIRE(kvbm_geometry_create(8, kUnits, parts, 2, &geometry, nullptr) == KVBM_OK);
    kvbm_namespace_options_t who = namespace_options();
    REQUIRE(kvbm_namespace_open(manager, &who, &ns, nullptr) == KVBM_OK);
    attach();
    REQUIRE(kvbm_queue_create(context, 4, &queue, nullptr) == KVBM_OK);
    const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    size_t n = 0;
    REQUIRE(kvbm_key_chain(ns, nullptr, tokens, 8, 8, nullptr, &key, 1, &n) == KVBM_OK);
    const uint32_t ids[2][kUnits] = {{0, 1, 2, 3}, {0, 1, 2, 3}};
    REQUIRE(kvbm_cache_store(cache, &key, ids[0], 1, nullptr, nullptr, 0) == KVBM_OK);
    REQUIRE(kvbm_cache_lookup(cache, &key, 1, nullptr, &match, &n) == KVBM_OK && n == 1);
    REQUIRE(kvbm_match_blocks(match, 0, 0, 1, &held) == KVBM_OK && held != 0);
    REQUIRE(kvbm_manager_allocate(manager, ns, 1, &block, nullptr, 0, nullptr) == KVBM_OK);
  }
  ~World() {
    kvbm_match_release(match);
    REQUIRE(kvbm_block_release(manager, &block, 1) == KVBM_OK);
    REQUIRE(kvbm_block_release(manager, &held, 1) == KVBM_OK);
    kvbm_manager_stats_t stats;
    stats.struct_size = sizeof stats;
    REQUIRE(kvbm_manager_stats(manager, &stats) == KVBM_OK && stats.holds == 0 && stats.operations_in_flight == 0);
    kvbm_cache_release(cache);
    kvbm_queue_release(queue);
    kvbm_namespace_release(ns);
    kvbm_geometry_release(geometry);
    kvbm_manager_release(manager);
    kvbm_context_release(context);
    kvbm_context_release(plain);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] kvbm_namespace_options_t namespace_options() const {
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "counts";
    who.geometry = geometry;
    return who;
  }
  void attach() {
    kvbm_tensor_t tensors[2][2];
    kvbm_cache_part_t parts[2] = {};
    for (uint32_t p = 0; p < 2; ++p) {
      for (size_t layer = 0; layer < 2; ++layer) {
        tensors[p][layer] = {memory.data() + (p * 2 + layer) * kUnits * kBlock, kUnits * kBlock / 2, 0, 0};
      }
      parts[p].part.component = p;
      parts[p].form = KVBM_FORM_NHD;
      parts[p].tensors = tensors[p];
      parts[p].n_tensors = 2;
    }
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = kUnits;
    options.parts = parts;
    options.n_parts = 2;
    ErrorSlot slot;
    const kvbm_status_t got = kvbm_cache_attach(manager, ns, &options, &cache, &slot.error);
    if (got != KVBM_OK) std::fprintf(stderr, "%s\n", slot.error.message);
    REQUIRE(got == KVBM_OK);
  }
};

// `n`: the number to try. `m`: a second number, for another count of the call.
using Try = kvbm_status_t (*)(World& w, uint64_t n, uint64_t m);
enum class Wanted { refusal, no_harm };
struct Row {
  const char* name;
  const char* count;
  Wanted wanted;
  Try run;
};

kvbm_status_t refused(kvbm_status_t got) {
  REQUIRE(got != KVBM_ERR_NO_MEMORY && got != KVBM_ERR_INTERNAL);
  return got;
}

kvbm_status_t create(World& w, kvbm_manager_options_t& options) {
  kvbm_manager_t* manager = nullptr;
  ErrorSlot slot;
  const kvbm_status_t got = slot.check(kvbm_manager_create(w.plain, &options, &manager, &slot.error), &slot.error);
  REQUIRE((got == KVBM_OK) == (manager != nullptr) && got != KVBM_ERR_INTERNAL);
  kvbm_manager_release(manager);
  return got;
}
kvbm_manager_options_t pool() {
  kvbm_manager_options_t options;
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = kBlock;
  options.host_capacity_bytes = 1 << 20;
  return options;
}
// Returns a tier without records.
kvbm_tier_table_t table() {
  kvbm_tier_table_t t{};
  t.struct_size = sizeof t;
  t.name = "none";
  t.find = [](void*, const uint8_t(*)[32], size_t n, uint8_t* present, uint32_t*, uint64_t*) {
    std::fill_n(present, n, uint8_t{0});
  };
  t.put = [](void*, const kvbm_tier_item_t*, size_t n, uint64_t, kvbm_status_t* out) {
    std::fill_n(out, n, KVBM_ERR_NO_ROOM);
  };
  t.get = [](void*, kvbm_tier_item_t*, size_t n, uint64_t, kvbm_status_t* out) { std::fill_n(out, n, KVBM_ERR_MISS); };
  t.erase = [](void*, const uint8_t(*)[32], size_t) {};
  t.stats = [](void*, uint64_t* capacity, uint64_t* used, uint64_t* records) { *capacity = *used = *records = 0; };
  return t;
}
// Returns a store without objects.
kvbm_store_table_t store_table() {
  kvbm_store_table_t t{};
  t.struct_size = sizeof t;
  t.abi = KVBM_STORE_ABI;
  t.name = "none";
  t.open = [](const kvbm_store_config_t*, uint64_t, kvbm_store_facts_t*, void**, char[256]) -> kvbm_status_t {
    return KVBM_ERR_CONFIG;
  };
  t.start = [](void*, kvbm_store_op_t* const*, size_t) {};
  t.close = [](void*) {};
  return t;
}
template <class Set>
kvbm_status_t with_tier(World& w, Set&& set) {
  kvbm_manager_options_t options = pool();
  const kvbm_tier_table_t none = table();
  kvbm_tier_t tier{};
  tier.table = &none;
  tier.capacity_bytes = 64 << 20;
  set(tier);
  options.tiers = &tier;
  options.n_tiers = 1;
  return create(w, options);
}
template <class Set>
kvbm_status_t attach(World& w, Set&& set) {
  kvbm_tensor_t tensor{w.memory.data(), kBlock, 0, kBlock};
  kvbm_cache_part_t part{};
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_t options;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = 1;
  options.parts = &part;
  options.n_parts = 1;
  set(options, part, tensor);
  kvbm_cache_t* cache = nullptr;
  ErrorSlot slot;
  const kvbm_status_t got = slot.check(kvbm_cache_attach(w.manager, w.ns, &options, &cache, &slot.error), &slot.error);
  kvbm_cache_release(cache);
  return got;
}
template <class Set>
kvbm_status_t look_up(World& w, Set&& set) {
  kvbm_lookup_options_t options;
  kvbm_lookup_options_init(&options, sizeof options);
  kvbm_part_t part{};
  options.parts = &part;
  options.n_parts = 1;
  options.unit_keys = &w.key;
  set(options);
  kvbm_match_t* match = nullptr;
  size_t n = 0;
  const kvbm_status_t got = kvbm_manager_lookup(w.manager, w.ns, &w.key, 1, &options, &match, &n);
  kvbm_match_release(match);
  return got;
}
template <class Set>
kvbm_status_t locate(World& w, size_t n_keys, size_t capacity, Set&& set) {
  kvbm_locate_options_t options;
  kvbm_locate_options_init(&options, sizeof options);
  kvbm_part_t part{};
  const size_t one = 1;
  options.parts = &part;
  options.n_parts = 1;
  options.request_keys = &one;
  options.n_requests = 1;
  set(options);
  kvbm_location_t row;
  size_t n = 0;
  return kvbm_manager_locate(w.manager, w.ns, &w.key, n_keys, &options, &row, capacity, &n);
}
// Loads the match; the load has ended when this returns.
kvbm_status_t load(World& w, size_t n_ids, uint32_t n_layers) {
  kvbm_load_options_t options;
  kvbm_load_options_init(&options, sizeof options);
  options.n_layers = n_layers;
  uint32_t id = 0;
  return kvbm_cache_load(w.cache, w.match, &id, n_ids, &options, nullptr, 0);
}
kvbm_status_t open_session(World& w, size_t n_ids, size_t n_sources, uint64_t budget) {
  kvbm_session_options_t options;
  kvbm_session_options_init(&options, sizeof options);
  options.budget_bytes = budget;
  const kvbm_request_id_t id{{1}};
  const kvbm_source_t source{"127.0.0.1:1", 0, 0};
  const uint32_t blocks[2] = {0, 0};  // one for each part
  kvbm_session_t* session = nullptr;
  ErrorSlot slot;
  const kvbm_status_t got = slot.check(
      kvbm_session_open(w.cache, &id, blocks, n_ids, &source, n_sources, &options, nullptr, 0, &session, &slot.error),
      &slot.error);
  kvbm_session_release(session);
  return got;
}
kvbm_status_t open_offer(World& w, size_t n_ids, uint32_t n_layers) {
  const kvbm_request_id_t id{{2}};
  const uint32_t blocks[2] = {0, 0};
  kvbm_offer_t* offer = nullptr;
  ErrorSlot slot;
  kvbm_status_t got =
      slot.check(kvbm_offer_open(w.cache, &id, blocks, n_ids, nullptr, nullptr, 0, &offer, &slot.error), &slot.error);
  if (offer != nullptr) got = kvbm_offer_publish(offer, 0, 0, n_layers, 0, 0, nullptr);
  kvbm_offer_release(offer);
  return got;
}
kvbm_status_t geometry(uint32_t tokens, uint32_t units, size_t n, uint64_t state_bytes) {
  kvbm_component_t c{};
  c.kind = state_bytes != 0 ? KVBM_COMPONENT_STATE : KVBM_COMPONENT_ATTENTION;
  c.element = state_bytes != 0 ? KVBM_ELEMENT_BYTES : KVBM_ELEMENT_BF16;
  c.layers = 1, c.heads = 1, c.head_dim = state_bytes != 0 ? 0 : 64;
  c.state_bytes = state_bytes;
  kvbm_geometry_t* made = nullptr;
  ErrorSlot slot;
  const kvbm_status_t got = slot.check(kvbm_geometry_create(tokens, units, &c, n, &made, &slot.error), &slot.error);
  kvbm_geometry_release(made);
  return got;
}
kvbm_status_t quota(World& w, uint64_t bytes) {
  const kvbm_status_t got = kvbm_namespace_set_quota(w.ns, bytes, KVBM_QUOTA_EVICT);
  REQUIRE(kvbm_namespace_set_quota(w.ns, 0, KVBM_QUOTA_EVICT) == KVBM_OK);
  return got;
}
// Four engine blocks, coded.
struct Coded {
  std::vector<uint8_t> bytes;
  size_t n = 0;
  explicit Coded(World& w) {
    const uint32_t ids[kUnits] = {0, 1, 2, 3};
    uint64_t room = 0;
    REQUIRE(kvbm_cache_code_room(w.cache, kUnits, nullptr, &room, nullptr) == KVBM_OK);
    bytes.resize(room);
    REQUIRE(kvbm_cache_encode(w.cache, ids, kUnits, KVBM_CODEC_FAST, nullptr, bytes.data(), room, &n, nullptr) ==
            KVBM_OK);
  }
};
constexpr uint32_t kIds[kUnits] = {0, 1, 2, 3};

#define ROW(name, count, wanted, ...)                                                     \
  {#name, #count, Wanted::wanted, [](World& w, uint64_t n, uint64_t m) -> kvbm_status_t { \
     (void)w, (void)n, (void)m;                                                           \
     __VA_ARGS__                                                                          \
   }},
#define CALL(name, count, wanted, ...) ROW(name, count, wanted, __VA_ARGS__)
#define FIELD(name, count, wanted, ...) ROW(name, count, wanted, __VA_ARGS__)
// Returns the low half, for counts of 32 bits.
constexpr uint32_t low(uint64_t n) { return static_cast<uint32_t>(n) | 1U << 28; }

constexpr Row kRows[] = {
#include "counts_rows.inc"
};

World& world() {
  static World one;
  return one;
}

void run(const Row& row, uint64_t n, uint64_t m) {
  const kvbm_status_t got = row.run(world(), n, m);
  const bool good =
      kvbm::fuzz::is_status(got) && got != KVBM_ERR_INTERNAL && (row.wanted == Wanted::no_harm || got < 0);
  if (good) return;
  std::fprintf(stderr, "%s with %s = %llu gave %s\n", row.name, row.count, static_cast<unsigned long long>(n),
               kvbm_status_name(got));
  REQUIRE(good);
}

uint64_t number(const uint8_t* data) {
  uint64_t n;
  std::memcpy(&n, data, sizeof n);
  return n > kMost ? n : kEdges[n % std::size(kEdges)];
}

}  // namespace
}  // namespace counts_fuzz

KVBM_FUZZ_TARGET(counts) {
  using namespace counts_fuzz;
  if (size == 0) {
    for (const Row& row : kRows) {
      for (size_t i = 0; i < std::size(kEdges); ++i) run(row, kEdges[i], kEdges[(i * 7 + 3) % std::size(kEdges)]);
    }
  }
  for (; size >= 17; data += 17, size -= 17) run(kRows[data[0] % std::size(kRows)], number(data + 1), number(data + 9));
  return 0;
}
