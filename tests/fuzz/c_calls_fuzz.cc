// The C interface under calls in any order with good and bad arguments. Only what kvbm.h says is detected is done
// wrong: NULLs, counts, ids, options and reserved fields out of range, holds and pins that have ended or are another
// manager's. What it leaves undefined (arrays shorter than their counts, released pointers) is not done.
#include <memory>

#include "c_calls_world.h"

namespace {

using namespace kvbm::fuzz;

kvbm_context_t* context() {
  struct Owner {
    kvbm_context_t* context = nullptr;
    Owner() {
      kvbm_context_options_t options;
      kvbm_context_options_init(&options, sizeof options);
      options.threads = 1;
      kvbm_setting_t settings[] = {{"io.engine", "pread"}, {"io.threads", "1"}, {"host.huge_pages", "off"}};
      options.settings = settings;
      options.n_settings = std::size(settings);
      kvbm_error_t error;
      if (kvbm_context_create(&options, &context, &error) != KVBM_OK) std::fprintf(stderr, "%s\n", error.message);
      REQUIRE(context != nullptr);
    }
    ~Owner() { kvbm_context_release(context); }
  };
  static Owner owner;
  return owner.context;
}

// A component of 4,096 bytes a block: 2 layers x K,V x 8 tokens x 1 head x 64 x 2 bytes.
kvbm_component_t component() {
  kvbm_component_t c{};
  c.kind = KVBM_COMPONENT_ATTENTION, c.element = KVBM_ELEMENT_BF16;
  c.layers = 2, c.heads = 1, c.head_dim = 64;
  return c;
}

class World {
 public:
  World(const uint8_t* data, size_t size) : in_(data, size) { open(); }
  ~World() { close(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run() {
    for (int calls = 0; calls < 64 && !in_.empty(); ++calls) {
      call();
      check();
    }
  }

 private:
  void open() {
    kvbm_component_t c = component();
    kvbm_geometry_t* geometry = nullptr;
    REQUIRE(kvbm_geometry_create(8, 1, &c, 1, &geometry, nullptr) == KVBM_OK);
    for (size_t m = 0; m < 2; ++m) {
      kvbm_manager_options_t options;
      kvbm_manager_options_init(&options, sizeof options);
      options.block_bytes = kBlockBytes;
      options.host_capacity_bytes = kHostBytes;
      static const char* const kPolicies[] = {"prefix", "lru"};
      options.policy = kPolicies[in_.below(std::size(kPolicies))];
      REQUIRE(kvbm_manager_create(context(), &options, &managers_[m], nullptr) == KVBM_OK);
    }
    for (size_t n = 0; n < 3; ++n) {
      kvbm_namespace_options_t who;
      kvbm_namespace_options_init(&who, sizeof who);
      who.model = n == 0 ? "pages" : "shaped";
      who.geometry = n == 1 ? geometry : nullptr;
      REQUIRE(kvbm_namespace_open(managers_[n == 2 ? 1 : 0], &who, &ns_[n], nullptr) == KVBM_OK);
      keys_[n].make(ns_[n]);
    }
    kvbm_geometry_release(geometry);
    REQUIRE(kvbm_manager_allocate(managers_[1], ns_[2], 1, &foreign_, nullptr, 0, nullptr) == KVBM_OK);
    REQUIRE(kvbm_queue_create(context(), 4, &queue_, nullptr) == KVBM_OK);
    REQUIRE(kvbm_queue_create(context(), 1, &events_, nullptr) == KVBM_OK);
  }

  void close() {
    drain();
    for (HeldMatch& m : matches_) kvbm_match_release(m.match);
    matches_.clear();
    for (const HeldBlock& b : blocks_) REQUIRE(kvbm_block_release(managers_[0], &b.value, 1) == KVBM_OK);
    blocks_.clear();
    REQUIRE(kvbm_block_release(managers_[1], &foreign_, 1) == KVBM_OK);
    size_t n = 0;
    REQUIRE(kvbm_manager_unpin_owner(managers_[0], 7, &n) == KVBM_OK);
    REQUIRE(kvbm_manager_unpin_owner(managers_[0], 8, &n) == KVBM_OK);
    const kvbm_manager_stats_t s = stats();
    REQUIRE(s.holds == 0 && s.pins == 0 && s.matches == 0 && s.operations_in_flight == 0);
    // What nothing holds can all be taken again.
    kvbm_namespace_set_quota(ns_[0], 0, KVBM_QUOTA_EVICT);
    std::vector<kvbm_block_t> all(s.tiers[0].capacity_bytes / (kBlockBytes + 384));
    REQUIRE(kvbm_manager_allocate(managers_[0], ns_[0], all.size(), all.data(), nullptr, 0, nullptr) == KVBM_OK);
    REQUIRE(kvbm_block_release(managers_[0], all.data(), all.size()) == KVBM_OK);
    if (in_.below(2) != 0) kvbm_manager_release(managers_[0]), managers_[0] = nullptr;
    for (kvbm_namespace_t* ns : ns_) kvbm_namespace_release(ns);
    for (kvbm_manager_t* m : managers_) kvbm_manager_release(m);
    kvbm_queue_release(queue_);
    kvbm_queue_release(events_);
  }

  kvbm_manager_stats_t stats() {
    kvbm_manager_stats_t s;
    s.struct_size = sizeof s;
    REQUIRE(kvbm_manager_stats(managers_[0], &s) == KVBM_OK);
    return s;
  }

  void check() {
    const kvbm_manager_stats_t s = stats();
    REQUIRE(s.n_tiers == 1);
    const kvbm_tier_stats_t& host = s.tiers[0];
    REQUIRE(host.capacity_bytes <= kHostBytes && host.used_bytes <= host.capacity_bytes);
    REQUIRE(host.blocks * kBlockBytes == host.payload_bytes && host.payload_bytes <= host.used_bytes);
    REQUIRE(s.holds == blocks_.size());
    REQUIRE(s.pins <= pins_.size());
    REQUIRE(s.keys_hit <= s.keys_looked_up && s.operations_in_flight <= submitted_.size());
    REQUIRE(s.matches >= matches_.size());
    REQUIRE(host.hits == s.keys_hit && host.hits + host.misses == s.keys_looked_up);
    for (const auto& op : submitted_) op->tensors.check();
    for (const HeldBlock& b : blocks_) {
      kvbm_view_t view{};
      const kvbm_status_t got = kvbm_block_view(managers_[0], &b.value, 1, &view);
      if (b.kind == HeldBlock::weak) {
        REQUIRE(got == KVBM_ERR_STATE);
        continue;
      }
      REQUIRE(got == KVBM_OK && view.data != nullptr && view.bytes == kBlockBytes);
      REQUIRE(b.kind == HeldBlock::partial ||
              holds_fill(static_cast<const uint8_t*>(view.data), kBlockBytes, b.ns.data(), b.content));
    }
  }

  // ------------------------------------------------------------------ arguments

  // A namespace of the first manager, or what the caller must be told about.
  struct Who {
    kvbm_manager_t* manager;
    kvbm_namespace_t* ns;
    size_t n;
    bool wrong() const { return manager == nullptr || ns == nullptr || n == 2; }
  };
  Who who() {
    const size_t n = in_.bad() ? 2 : in_.below(2);
    return {in_.or_null(managers_[0]), in_.or_null(ns_[n]), n};
  }
  const Keys& keys_of(const Who& w) const { return keys_[w.n]; }

  std::vector<kvbm_key_t> some_keys(const Keys& keys) {
    std::vector<kvbm_key_t> out;
    const size_t first = in_.below(kKeys);
    const size_t n = in_.below(8);
    for (size_t i = 0; i < n; ++i) out.push_back(keys.key[(first + (in_.bad() ? 0 : i)) % kKeys]);  // repeats too
    return out;
  }

  const kvbm_part_t* some_part(kvbm_part_t& part) {
    std::memset(&part, 0, sizeof part);
    const uint8_t how = in_.byte();
    if (how < 160) return nullptr;
    if (how < 190) return &part;
    part.component = static_cast<uint32_t>(in_.edge());
    part.shard.first_layer = static_cast<uint16_t>(in_.edge());
    part.shard.layers = static_cast<uint16_t>(in_.edge());
    part.shard.first_head = static_cast<uint16_t>(in_.edge());
    part.shard.heads = static_cast<uint16_t>(in_.edge());
    part.shard.replicated = static_cast<uint16_t>(in_.below(3));
    if (in_.bad()) part.shard.reserved[1] = 1;
    if (in_.bad()) part.reserved = 1;
    return &part;
  }

  // A struct_size that is not the header's: too short to be one, shorter than known, or longer with or without bytes.
  // `room` is a struct followed by 64 bytes of the caller's.
  template <class T>
  struct Roomy {
    T options;
    uint8_t tail[64];
  };
  template <class T>
  void resize(Roomy<T>& room) {
    std::memset(room.tail, 0, sizeof room.tail);
    if (!in_.bad()) return;
    switch (in_.below(3)) {
      case 0:
        room.options.struct_size = static_cast<uint32_t>(in_.below(4));
        break;
      case 1:
        room.options.struct_size = sizeof(Roomy<T>);
        break;
      default:
        room.options.struct_size = sizeof(Roomy<T>);
        room.tail[in_.below(64)] = 1;
    }
  }

  struct Chosen {
    kvbm_block_t value;
    HeldBlock* held;  // null: the value is not a live hold of this manager's
    kvbm_status_t why;
  };
  Chosen some_block(HeldBlock::Kind kind) {
    const uint8_t how = in_.byte();
    if (how >= 250) return {foreign_, nullptr, KVBM_ERR_FOREIGN};
    if (how >= 244) return {0, nullptr, KVBM_ERR_STALE};
    if (how >= 232 && !ended_.empty()) return {ended_[in_.below(ended_.size())], nullptr, KVBM_ERR_STALE};
    std::vector<HeldBlock*> fitting;
    for (HeldBlock& b : blocks_) {
      if (b.kind == kind || how >= 216) fitting.push_back(&b);
    }
    if (fitting.empty()) return {0, nullptr, KVBM_ERR_STALE};
    HeldBlock* held = fitting[in_.below(fitting.size())];
    return {held->value, held, held->kind == kind ? KVBM_OK : KVBM_ERR_STATE};
  }
  struct Batch {
    std::vector<kvbm_block_t> values;
    std::vector<HeldBlock*> held;
    bool dead = false;     // one of them has ended or is foreign
    bool wrong = false;    // that, or another state than asked for
    bool repeats = false;  // one of them twice
  };
  Batch some_blocks(HeldBlock::Kind kind) {
    Batch batch;
    const size_t n = in_.below(5);
    for (size_t i = 0; i < n; ++i) {
      const Chosen c = some_block(kind);
      if (std::find(batch.values.begin(), batch.values.end(), c.value) != batch.values.end()) batch.repeats = true;
      batch.values.push_back(c.value);
      batch.held.push_back(c.held);
      batch.dead |= c.held == nullptr;
      batch.wrong |= c.why != KVBM_OK;
    }
    return batch;
  }
  void forget(kvbm_block_t value) {
    ended_.push_back(value);
    blocks_.erase(std::find_if(blocks_.begin(), blocks_.end(), [&](const HeldBlock& b) { return b.value == value; }));
  }

  // ------------------------------------------------------------------ managed pool

  void allocate() {
    const Who w = who();
    const size_t n = in_.bad() ? static_cast<size_t>(std::max<uint64_t>(in_.edge(), kHostBlocks + 1)) : in_.below(6);
    std::vector<kvbm_block_t> out(std::max<size_t>(1, std::min<size_t>(n, kHostBlocks)), 0);
    kvbm_key_t evicted[4];
    size_t n_evicted = kUnwritten;
    size_t* counted = in_.or_null(&n_evicted);
    // More than there can be is refused before anything is written.
    kvbm_block_t* blocks = in_.or_null(out.data());
    const kvbm_status_t got = expected(kvbm_manager_allocate(w.manager, w.ns, n, blocks, evicted, 4, counted));
    REQUIRE(counted == nullptr || n_evicted != kUnwritten);
    if (w.wrong() || (blocks == nullptr && n != 0)) REQUIRE(got < 0);
    if (n > kHostBlocks + 1) REQUIRE(got < 0);
    if (got != KVBM_OK) return;
    for (size_t i = 0; i < n; ++i) {
      REQUIRE(out[i] != 0);
      blocks_.push_back({out[i], HeldBlock::partial, 0, keys_of(w).id, {}, false});
    }
  }

  void complete() {
    Batch batch = some_blocks(HeldBlock::partial);
    const size_t n = batch.values.size();
    std::vector<uint64_t> bytes(n, kBlockBytes);
    const bool too_long = n != 0 && in_.bad();
    if (too_long) bytes[in_.below(n)] = in_.bad() ? 0 : std::max<uint64_t>(in_.edge(), kBlockBytes + 1);
    // Partial blocks get the bytes of the key that they will be registered under.
    for (HeldBlock* b : batch.held) {
      if (b == nullptr || b->kind != HeldBlock::partial) continue;
      kvbm_view_t view{};
      REQUIRE(kvbm_block_view(managers_[0], &b->value, 1, &view) == KVBM_OK);
      b->key = in_.below(kKeys);
      const size_t owner = b->ns == keys_[1].id ? 1 : 0;
      b->ns = keys_[owner].id;
      b->content = keys_[owner].key[b->key];
      fill(static_cast<uint8_t*>(view.data), kBlockBytes, b->ns.data(), b->content);
    }
    const kvbm_status_t got = expected(kvbm_manager_complete(managers_[0], batch.values.data(), n, in_.bad() ? nullptr : bytes.data()));
    if (batch.wrong || batch.repeats) REQUIRE(got < 0);
    if (!batch.wrong && !batch.repeats && !too_long) REQUIRE(got == KVBM_OK);
    if (got != KVBM_OK) return;
    for (HeldBlock* b : batch.held) b->kind = HeldBlock::complete;
  }

  void enroll() {
    Batch batch = some_blocks(HeldBlock::complete);
    const size_t n = batch.values.size();
    Who w = who();
    std::vector<kvbm_key_t> keys;
    for (const HeldBlock* b : batch.held) {
      keys.push_back(b != nullptr ? b->content : kvbm_key_t{});
      // A block is told under the namespace it was filled for; one whose epoch has ended is not told any more.
      if (b != nullptr && w.n < 2 && b->ns != keys_[w.n].id) return;
    }
    Roomy<kvbm_register_options_t> room;
    kvbm_register_options_init(&room.options, sizeof room.options);
    room.options.duplicates = in_.bad() ? static_cast<uint32_t>(in_.edge()) : static_cast<uint32_t>(in_.below(2));
    room.options.priority = in_.bad() ? static_cast<uint32_t>(in_.edge()) : static_cast<uint32_t>(in_.below(4));
    room.options.unchained = static_cast<uint32_t>(in_.below(2));
    if (in_.bad()) room.options.parent = &keys_of(w).key[in_.below(kKeys)];
    std::vector<kvbm_status_t> status(n, kNoStatus);
    room.options.item_status = in_.or_null(status.data());
    resize(room);
    std::vector<kvbm_block_t> values = batch.values;
    const kvbm_status_t got = expected(
        kvbm_manager_register(w.manager, w.ns, values.data(), keys.data(), n, in_.bad() ? nullptr : &room.options));
    if (w.wrong() || (n != 0 && (batch.wrong || batch.repeats))) REQUIRE(got < 0);
    if (got < 0) {
      REQUIRE(values == batch.values);  // refused whole: the holds stay
      return;
    }
    for (size_t i = 0; i < n; ++i) {
      REQUIRE(values[i] != 0);
      ended_.push_back(batch.values[i]);
      batch.held[i]->value = values[i];
      batch.held[i]->kind = HeldBlock::registered;
    }
  }

  void view() {
    Batch batch = some_blocks(HeldBlock::registered);
    std::vector<kvbm_view_t> views(batch.values.size() + 1);
    const kvbm_status_t got = expected(kvbm_block_view(managers_[0], batch.values.data(), batch.values.size(), views.data()));
    if (batch.dead) REQUIRE(got < 0);
  }

  void clone() {
    Batch batch = some_blocks(HeldBlock::registered);
    std::vector<kvbm_block_t> out(batch.values.size() + 1);
    const kvbm_status_t got = expected(kvbm_block_clone(managers_[0], batch.values.data(), batch.values.size(), out.data()));
    if (batch.dead) REQUIRE(got < 0);
    if (got != KVBM_OK) return;
    std::vector<HeldBlock> made;
    for (size_t i = 0; i < batch.held.size(); ++i) made.push_back(*batch.held[i]), made.back().value = out[i];
    blocks_.insert(blocks_.end(), made.begin(), made.end());
  }

  void release() {
    Batch batch = some_blocks(static_cast<HeldBlock::Kind>(in_.below(4)));
    const kvbm_status_t got = expected(kvbm_block_release(managers_[0], batch.values.data(), batch.values.size()));
    REQUIRE((got == KVBM_OK) == (!batch.dead && !batch.repeats));
    for (size_t i = 0; i < batch.values.size(); ++i) {
      const auto first = std::find(batch.values.begin(), batch.values.end(), batch.values[i]) - batch.values.begin();
      if (batch.held[i] == nullptr || static_cast<size_t>(first) != i) batch.values[i] = 0;
    }
    for (const kvbm_block_t value : batch.values) {
      if (value != 0) forget(value);
    }
  }

  void downgrade() {
    Batch batch = some_blocks(HeldBlock::registered);
    std::vector<kvbm_block_t> out(batch.values.size() + 1);
    const kvbm_status_t got = expected(kvbm_block_downgrade(managers_[0], batch.values.data(), batch.values.size(), out.data()));
    if (batch.dead) REQUIRE(got < 0);
    if (got != KVBM_OK) return;
    std::vector<HeldBlock> made;
    for (size_t i = 0; i < batch.held.size(); ++i) {
      made.push_back(*batch.held[i]);
      made.back().value = out[i], made.back().kind = HeldBlock::weak;
    }
    blocks_.insert(blocks_.end(), made.begin(), made.end());
  }

  void upgrade() {
    Batch batch = some_blocks(HeldBlock::weak);
    std::vector<kvbm_block_t> out(batch.values.size() + 1);
    const kvbm_status_t got = expected(kvbm_block_upgrade(managers_[0], batch.values.data(), batch.values.size(), out.data()));
    if (batch.dead || batch.wrong) REQUIRE(got < 0);
    if (got != KVBM_OK) return;
    std::vector<HeldBlock> made;
    for (size_t i = 0; i < batch.held.size(); ++i) {
      if (out[i] == 0) continue;
      made.push_back(*batch.held[i]);
      made.back().value = out[i], made.back().kind = HeldBlock::registered;
    }
    blocks_.insert(blocks_.end(), made.begin(), made.end());
  }

  // ------------------------------------------------------------------ attached caches

  kvbm_cache_t* attach(Submitted& op, size_t n) {
    kvbm_tensor_t tensor{op.tensors.base(), kEngineBlocks * kBlockBytes, 0, n == 0 ? kBlockBytes : 0};
    kvbm_cache_part_t part{};
    part.form = n == 0 ? KVBM_FORM_OPAQUE : in_.below(2) == 0 ? KVBM_FORM_CROSS_NHD : KVBM_FORM_CROSS_HND;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = kEngineBlocks;
    options.parts = &part;
    options.n_parts = 1;
    kvbm_cache_t* cache = nullptr;
    REQUIRE(kvbm_cache_attach(managers_[0], ns_[n], &options, &cache, nullptr) == KVBM_OK);
    return cache;
  }

  // Ids of the engine's, one of them perhaps not its own. True when all are.
  bool some_ids(Submitted& op, size_t n) {
    bool good = true;
    const size_t first = in_.below(kEngineBlocks);
    for (size_t i = 0; i < n; ++i) {
      op.ids.push_back(static_cast<uint32_t>((first + i) % kEngineBlocks));
      if (!in_.bad()) continue;
      op.ids.back() = in_.below(2) == 0 ? KVBM_NO_BLOCK : static_cast<uint32_t>(std::max<uint64_t>(kEngineBlocks, in_.edge() % UINT32_MAX));
      good &= op.ids.back() == KVBM_NO_BLOCK;
    }
    return good;
  }

  // What a submission came to; takes it over when it is in flight.
  void after_submit(std::unique_ptr<Submitted> op, kvbm_status_t got, bool queued, bool wrong) {
    expected(got);
    if (wrong) REQUIRE(got < 0);
    if (queued && got == KVBM_OK) {
      submitted_.push_back(std::move(op));
      return;
    }
    finish(*op, got);
  }

  void finish(Submitted& op, kvbm_status_t got) {
    op.tensors.check();
    const bool refused = got < 0 && std::all_of(op.status.begin(), op.status.end(), [](kvbm_status_t s) { return s == kNoStatus; });
    for (size_t i = 0; i < op.status.size() && !refused; ++i) {
      REQUIRE(op.status[i] != kNoStatus);
      expected(op.status[i]);
      if (got == KVBM_OK) REQUIRE(op.status[i] == KVBM_OK);
      if (op.op != KVBM_OP_LOAD || op.status[i] != KVBM_OK || !op.compare || op.ids[i] == KVBM_NO_BLOCK) continue;
      REQUIRE(holds_fill(op.tensors.block(op.ids[i]), kBlockBytes, op.ns.data(), op.keys[i]));
    }
    kvbm_cache_release(op.cache);
    op.cache = nullptr;
  }

  void store() {
    auto op = std::make_unique<Submitted>();
    const size_t n = in_.below(2);
    op->op = KVBM_OP_STORE;
    op->keys = some_keys(keys_[n]);
    op->ns = keys_[n].id;
    op->cache = attach(*op, n);
    const bool good = some_ids(*op, op->keys.size());
    for (size_t i = 0; i < op->keys.size(); ++i) {
      if (op->ids[i] < kEngineBlocks) fill(op->tensors.block(op->ids[i]), kBlockBytes, op->ns.data(), op->keys[i]);
    }
    Roomy<kvbm_store_options_t> room;
    kvbm_store_options_init(&room.options, sizeof room.options);
    room.options.priority = in_.bad() ? static_cast<uint32_t>(in_.edge()) : static_cast<uint32_t>(in_.below(4));
    room.options.unchained = static_cast<uint32_t>(in_.below(2));
    if (in_.bad()) room.options.timeout_ns = in_.edge();
    if (in_.bad()) room.options.parent = &keys_[n].key[in_.below(kKeys)];
    std::vector<kvbm_position_t> positions(op->keys.size(), kvbm_position_t{16, 1, in_.byte()});
    if (in_.bad()) room.options.positions = positions.data();
    op->status.assign(op->keys.size(), kNoStatus);
    room.options.item_status = op->status.data();
    uint64_t operation = 0;
    room.options.out_operation = &operation;
    resize(room);
    const bool short_struct = room.options.struct_size < sizeof room.options;
    kvbm_queue_t* queue = in_.below(2) == 0 ? queue_ : nullptr;
    kvbm_cache_t* cache = in_.or_null(op->cache);
    op->user_data = ++next_user_;
    op->items = op->keys.size();
    const uint32_t* ids = in_.or_null(op->ids.data());
    if (op->keys.empty()) ids = nullptr;
    const kvbm_status_t got =
        kvbm_cache_store(cache, op->keys.data(), ids, op->keys.size(), &room.options, queue, op->user_data);
    const bool wrong = cache == nullptr || (ids == nullptr && !op->keys.empty()) || (ids != nullptr && !good) || short_struct;
    if (queue != nullptr && got == KVBM_OK) last_operation_ = operation;
    after_submit(std::move(op), got, queue != nullptr, wrong);
  }

  void load() {
    auto op = std::make_unique<Submitted>();
    const size_t n = in_.below(2);
    op->op = KVBM_OP_LOAD;
    op->ns = keys_[n].id;
    op->cache = attach(*op, n);
    HeldMatch fresh;
    HeldMatch* match = &fresh;
    if (!matches_.empty() && in_.below(3) == 0) {
      match = &matches_[in_.below(matches_.size())];  // perhaps the other namespace's, or one from before an invalidation
    } else {
      fresh.keys = some_keys(keys_[n]);
      fresh.ns = op->ns;
      size_t hits = kUnwritten;
      expected(kvbm_cache_lookup(op->cache, fresh.keys.data(), fresh.keys.size(), nullptr, &fresh.match, &hits));
      REQUIRE(hits <= fresh.keys.size() && (hits != 0) == (fresh.match != nullptr));
      fresh.keys.resize(std::min(fresh.keys.size(), in_.bad() ? fresh.keys.size() : hits));
    }
    op->ns = match->ns;
    Roomy<kvbm_load_options_t> room;
    kvbm_load_options_init(&room.options, sizeof room.options);
    size_t first = match->keys.empty() ? 0 : in_.below(match->keys.size());
    room.options.first_key = static_cast<uint32_t>(first);
    op->keys.assign(match->keys.begin() + static_cast<std::ptrdiff_t>(first), match->keys.end());
    bool wrong = match->match == nullptr;
    if (in_.bad()) room.options.first_key = static_cast<uint32_t>(in_.edge()), op->compare = false;
    if (in_.bad()) room.options.first_layer = static_cast<uint32_t>(in_.edge()), op->compare = false;
    if (in_.bad()) room.options.n_layers = static_cast<uint32_t>(in_.edge()), op->compare = false;
    if (in_.bad()) room.options.timeout_ns = in_.edge();
    if (in_.bad()) room.options.any_position = 1;
    room.options.keep_below = static_cast<uint32_t>(in_.below(2));
    std::vector<kvbm_position_t> positions(op->keys.size(), kvbm_position_t{16, 1, in_.byte()});
    if (in_.bad()) room.options.positions = positions.data();
    wrong |= !some_ids(*op, op->keys.size());
    for (const uint32_t id : op->ids) {
      if (id < kEngineBlocks) std::memset(op->tensors.block(id), 0xEE, kBlockBytes);
    }
    op->status.assign(op->keys.size(), kNoStatus);
    room.options.item_status = op->status.data();
    uint64_t operation = 0;
    room.options.out_operation = &operation;
    resize(room);
    wrong |= room.options.struct_size < sizeof room.options;
    kvbm_queue_t* queue = in_.below(2) == 0 ? queue_ : nullptr;
    op->user_data = ++next_user_;
    op->items = op->keys.size();
    const kvbm_status_t got = kvbm_cache_load(op->cache, match->match, op->ids.data(), op->ids.size(), &room.options, queue, op->user_data);
    if (queue != nullptr && got == KVBM_OK) last_operation_ = operation;
    after_submit(std::move(op), got, queue != nullptr, wrong);
    kvbm_match_release(fresh.match);  // loads that were submitted with it go on
  }

  // ------------------------------------------------------------------ lookups and care

  void look_up() {
    const Who w = who();
    HeldMatch m;
    m.keys = some_keys(keys_of(w));
    m.ns = keys_of(w).id;
    kvbm_part_t parts[2];
    Roomy<kvbm_lookup_options_t> room;
    kvbm_lookup_options_init(&room.options, sizeof room.options);
    room.options.mode = in_.bad() ? static_cast<uint32_t>(in_.edge()) : static_cast<uint32_t>(in_.below(3));
    room.options.host_only = static_cast<uint32_t>(in_.below(2));
    room.options.no_use = static_cast<uint32_t>(in_.below(2));
    if (const kvbm_part_t* part = some_part(parts[0]); part != nullptr) {
      some_part(parts[1]);
      room.options.parts = parts;
      room.options.n_parts = in_.bad() ? static_cast<size_t>(std::max<uint64_t>(33, in_.edge())) : 1 + in_.below(2);
    }
    resize(room);
    size_t hits = kUnwritten;
    kvbm_match_t** out = in_.or_null(&m.match);
    const kvbm_status_t got = expected(
        kvbm_manager_lookup(w.manager, w.ns, m.keys.data(), m.keys.size(), &room.options, out, &hits));
    REQUIRE(hits != kUnwritten);
    if (w.wrong() || out == nullptr) REQUIRE(got < 0);
    REQUIRE(hits <= m.keys.size() && (hits != 0) == (m.match != nullptr));
    if (m.match == nullptr) return;
    REQUIRE(got == KVBM_OK && kvbm_match_count(m.match) == m.keys.size());
    matches_.push_back(std::move(m));
    if (matches_.size() > 4) end_match(0);
  }

  void end_match(size_t at) {
    kvbm_match_release(matches_[at].match);
    matches_.erase(matches_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void use_match() {
    if (matches_.empty()) {
      REQUIRE(kvbm_match_count(nullptr) == 0);
      REQUIRE(kvbm_match_items(nullptr, 0, 0, nullptr) == KVBM_ERR_INVALID);
      return kvbm_match_release(nullptr);
    }
    const size_t at = in_.below(matches_.size());
    HeldMatch& m = matches_[at];
    if (in_.below(4) == 0) return end_match(at);
    const size_t all = m.keys.size();
    const size_t first = in_.bad() ? static_cast<size_t>(in_.edge()) : in_.below(all);
    const size_t n = in_.bad() ? static_cast<size_t>(in_.edge()) : in_.below(all + 1);
    const bool fits = first <= all && n <= all - first;
    std::vector<kvbm_match_item_t> items(all);
    const kvbm_status_t seen = expected(kvbm_match_items(m.match, first, n, items.data()));
    REQUIRE(fits == (seen == KVBM_OK));
    const uint32_t part = in_.bad() ? static_cast<uint32_t>(in_.edge()) : 0;
    std::vector<kvbm_block_t> out(all, 0);
    const kvbm_status_t got = expected(kvbm_match_blocks(m.match, part, first, n, out.data()));
    if (!fits) REQUIRE(got < 0);
    if (got != KVBM_OK) return;
    for (size_t i = 0; i < n; ++i) {
      if (out[i] == 0) continue;
      blocks_.push_back({out[i], HeldBlock::registered, 0, m.ns, m.keys[first + i], false});
    }
  }

  void move() {
    auto op = std::make_unique<Submitted>();
    const Who w = who();
    op->keys = some_keys(keys_of(w));
    kvbm_part_t part;
    const kvbm_part_t* which = some_part(part);
    kvbm_queue_t* queue = in_.below(2) == 0 ? queue_ : nullptr;
    op->user_data = ++next_user_;
    op->items = op->keys.size();
    kvbm_status_t got;
    bool wrong = w.wrong();
    if (in_.below(2) == 0) {
      op->op = KVBM_OP_PREFETCH;
      got = kvbm_manager_prefetch(w.manager, w.ns, which, op->keys.data(), op->keys.size(), queue, op->user_data);
    } else {
      op->op = KVBM_OP_OFFLOAD;
      wrong = true;  // there is no tier below
      got = kvbm_manager_offload(w.manager, w.ns, which, op->keys.data(), op->keys.size(),
                                 static_cast<uint32_t>(in_.edge()), queue, op->user_data);
    }
    after_submit(std::move(op), got, queue != nullptr, wrong);
  }

  void care() {
    const Who w = who();
    const std::vector<kvbm_key_t> keys = some_keys(keys_of(w));
    kvbm_part_t part;
    const kvbm_part_t* which = some_part(part);
    const kvbm_key_t* list = in_.or_null(keys.data());
    const bool wrong = w.wrong() || (list == nullptr && !keys.empty());
    size_t n = kUnwritten;
    size_t* count = in_.or_null(&n);
    kvbm_status_t got;
    switch (in_.below(3)) {
      case 0:
        got = kvbm_manager_drop(w.manager, w.ns, which, list, keys.size(), count);
        REQUIRE(count == nullptr || n <= keys.size());
        break;
      case 1:
        got = kvbm_manager_hint(w.manager, w.ns, which, list, keys.size(), static_cast<uint32_t>(in_.below(6)));
        break;
      default: {
        kvbm_pin_t pin = 1;
        kvbm_pin_t* out = in_.or_null(&pin);
        got = kvbm_manager_pin(w.manager, w.ns, which, list, keys.size(), 7 + in_.below(2),
                               in_.bad() ? in_.edge() : KVBM_FOREVER, out, count);
        REQUIRE(count == nullptr || n <= keys.size());
        if (out == nullptr) REQUIRE(got < 0);
        if (got == KVBM_OK && out != nullptr) {
          if (count != nullptr) REQUIRE((n != 0) == (pin != 0));
          if (pin != 0) pins_.push_back(pin);
        }
      }
    }
    expected(got);
    if (wrong) REQUIRE(got < 0);
  }

  void unpin() {
    switch (in_.below(4)) {
      case 0:
        REQUIRE(kvbm_manager_unpin(managers_[0], 0) == KVBM_ERR_STALE);
        REQUIRE(kvbm_manager_unpin(nullptr, 1) == KVBM_ERR_INVALID);
        break;
      case 1: {
        size_t n = kUnwritten;
        REQUIRE(kvbm_manager_unpin_owner(managers_[0], 7 + in_.below(3), &n) == KVBM_OK && n <= pins_.size());
        break;
      }
      default:
        if (pins_.empty()) return;
        const kvbm_pin_t pin = pins_[in_.below(pins_.size())];
        const kvbm_status_t got = kvbm_manager_unpin(managers_[0], pin);
        REQUIRE(got == KVBM_OK || got == KVBM_ERR_STALE);
        REQUIRE(kvbm_manager_unpin(managers_[0], pin) == KVBM_ERR_STALE);
    }
  }

  // ------------------------------------------------------------------ queues

  void end(const kvbm_completion_t& c) {
    const auto at = std::find_if(submitted_.begin(), submitted_.end(), [&](const auto& op) { return op->user_data == c.user_data; });
    REQUIRE(at != submitted_.end());  // exactly one each, and none for what was refused
    REQUIRE(c.op == (*at)->op && c.items == (*at)->items && c.items_done <= c.items);
    if (c.status == KVBM_OK) REQUIRE(c.items_done == c.items || c.op == KVBM_OP_PREFETCH);
    finish(**at, expected(c.status));
    submitted_.erase(at);
  }

  void poll() {
    kvbm_completion_t out[4];
    const size_t capacity = in_.below(5);
    const size_t n = in_.below(2) == 0 ? kvbm_queue_poll(queue_, out, capacity) : kvbm_queue_wait(queue_, out, capacity, 1000);
    REQUIRE(n <= capacity);
    for (size_t i = 0; i < n; ++i) end(out[i]);
  }

  void drain() {
    kvbm_completion_t c;
    while (!submitted_.empty()) {
      REQUIRE(kvbm_queue_wait(queue_, &c, 1, 10'000'000'000ULL) == 1);
      end(c);
    }
    REQUIRE(kvbm_queue_poll(queue_, &c, 1) == 0);
  }

  void queue_calls() {
    switch (in_.below(6)) {
      case 0: {
        const kvbm_status_t got = kvbm_queue_cancel(queue_, in_.bad() ? in_.edge() : last_operation_);
        REQUIRE(got == KVBM_OK || got == KVBM_ERR_STALE);
        break;
      }
      case 1:
        REQUIRE(kvbm_queue_cancel(nullptr, 1) == KVBM_ERR_INVALID);
        REQUIRE(kvbm_queue_poll(nullptr, nullptr, 1) == 0 && kvbm_queue_wait(nullptr, nullptr, 1, 1) == 0);
        REQUIRE(kvbm_queue_poll_events(nullptr, nullptr, 1) == 0 && kvbm_queue_poll(queue_, nullptr, 0) == 0);
        break;
      case 2:
        REQUIRE(kvbm_manager_subscribe(managers_[0], in_.below(3) == 0 ? nullptr : events_) == KVBM_OK);
        sequence_ = 0;
        REQUIRE(kvbm_manager_subscribe(nullptr, events_) == KVBM_ERR_INVALID);
        break;
      case 3: {
        kvbm_event_t events[8];
        const size_t n = kvbm_queue_poll_events(events_, events, in_.below(9));
        REQUIRE(n <= 8);
        for (size_t i = 0; i < n; ++i) {
          REQUIRE(events[i].kind >= KVBM_EVENT_STORED && events[i].kind <= KVBM_EVENT_DISABLED && events[i].tier == 0);
          REQUIRE(sequence_ == 0 || events[i].sequence == sequence_ + 1);
          sequence_ = events[i].sequence;
        }
        break;
      }
      default:
        poll();
    }
  }

  // ------------------------------------------------------------------ the whole manager

  void upkeep() {
    const size_t n = in_.below(2);
    ErrorSlot slot;
    kvbm_error_t* err = in_.or_null(&slot.error);
    switch (in_.below(8)) {
      case 0:
        slot.check(expected(kvbm_manager_reset(in_.or_null(managers_[0]), err)), err);
        break;
      case 1:
        slot.check(expected(kvbm_namespace_reset(in_.or_null(ns_[n]), err)), err);
        break;
      case 2: {
        kvbm_namespace_t* ns = in_.or_null(ns_[n]);
        const kvbm_status_t got = slot.check(expected(kvbm_namespace_invalidate(ns, err)), err);
        const Keys before = keys_[n];
        keys_[n].make(ns_[n]);
        REQUIRE((got == KVBM_OK) == (before.id != keys_[n].id));
        break;
      }
      case 3: {
        const uint32_t mode = static_cast<uint32_t>(in_.below(3));
        const uint64_t quota = in_.bad() ? in_.edge() : in_.below(kHostBlocks) * (kBlockBytes + 384);
        const kvbm_status_t got = expected(kvbm_namespace_set_quota(in_.or_null(ns_[n]), quota, mode));
        if (mode == 2) REQUIRE(got < 0);
        break;
      }
      case 4:
        expected(kvbm_manager_flush(in_.or_null(managers_[0]), in_.edge()));
        break;
      case 5:
        scan();
        break;
      case 6:
        text();
        break;
      default:
        inits();
    }
  }

  void scan() {
    std::vector<kvbm_scan_row_t> rows(1 + in_.below(6));
    std::vector<std::string> seen;
    uint64_t cursor = 0;
    for (int pages = 0; pages < 100; ++pages) {
      size_t n = kUnwritten;
      REQUIRE(kvbm_manager_scan(managers_[0], &cursor, rows.data(), rows.size(), &n) == KVBM_OK && n <= rows.size());
      for (size_t i = 0; i < n; ++i) {
        REQUIRE(rows[i].tier == 0 && rows[i].bytes <= kBlockBytes);
        std::string name(reinterpret_cast<const char*>(&rows[i].key), 16);
        name.append(reinterpret_cast<const char*>(rows[i].namespace_id), 16);
        seen.push_back(name);
      }
      if (cursor == 0) break;
    }
    REQUIRE(cursor == 0);
    size_t n = kUnwritten;
    REQUIRE(kvbm_manager_scan(nullptr, &cursor, rows.data(), 1, &n) == KVBM_ERR_INVALID && n == 0);
    REQUIRE(kvbm_manager_scan(managers_[0], &cursor, rows.data(), 0, &n) == KVBM_ERR_INVALID);
  }

  void text() {
    const size_t capacity = in_.below(200);
    std::vector<char> out(capacity + 1, 'x');
    size_t needed = kUnwritten;
    const auto written = [&](kvbm_status_t got) {
      REQUIRE(got == KVBM_OK && needed != kUnwritten && out[capacity] == 'x');
      if (capacity != 0) REQUIRE(std::strlen(out.data()) == std::min(needed, capacity - 1));
    };
    written(kvbm_manager_metrics(managers_[0], out.data(), capacity, &needed));
    written(kvbm_context_config(context(), out.data(), capacity, &needed));
    written(kvbm_config_reference(out.data(), capacity, &needed));
    REQUIRE(kvbm_manager_metrics(nullptr, nullptr, 0, &needed) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_context_config(nullptr, nullptr, 0, &needed) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_config_reference(nullptr, 1, &needed) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_status_name(static_cast<kvbm_status_t>(in_.edge())) != nullptr);
    REQUIRE(kvbm_status_text(static_cast<kvbm_status_t>(in_.edge())) != nullptr);
    kvbm_manager_stats_t s;
    s.struct_size = static_cast<uint32_t>(in_.below(4));
    REQUIRE(kvbm_manager_stats(managers_[0], &s) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_manager_stats(managers_[0], nullptr) == KVBM_ERR_INVALID);
  }

  // Nothing behind struct_size is written, and all before it is.
  void inits() {
    std::vector<uint8_t> memory(256, 0xA5);
    const auto size = static_cast<uint32_t>(in_.below(200));
    const auto check_one = [&](kvbm_status_t got) {
      REQUIRE((got == KVBM_OK) == (size >= 4));
      REQUIRE(std::all_of(memory.begin() + size, memory.end(), [](uint8_t b) { return b == 0xA5; }));
      std::fill(memory.begin(), memory.end(), 0xA5);
    };
    void* p = memory.data();
    check_one(kvbm_context_options_init(static_cast<kvbm_context_options_t*>(p), size));
    check_one(kvbm_manager_options_init(static_cast<kvbm_manager_options_t*>(p), size));
    check_one(kvbm_namespace_options_init(static_cast<kvbm_namespace_options_t*>(p), size));
    check_one(kvbm_register_options_init(static_cast<kvbm_register_options_t*>(p), size));
    check_one(kvbm_lookup_options_init(static_cast<kvbm_lookup_options_t*>(p), size));
    check_one(kvbm_cache_options_init(static_cast<kvbm_cache_options_t*>(p), size));
    check_one(kvbm_store_options_init(static_cast<kvbm_store_options_t*>(p), size));
    check_one(kvbm_load_options_init(static_cast<kvbm_load_options_t*>(p), size));
    REQUIRE(kvbm_load_options_init(nullptr, 64) == KVBM_ERR_INVALID);
  }

  void call() {
    switch (in_.below(18)) {
      case 0: case 1: return store();
      case 2: case 3: return load();
      case 4: return look_up();
      case 5: return use_match();
      case 6: return allocate();
      case 7: return complete();
      case 8: return enroll();
      case 9: return view();
      case 10: return clone();
      case 11: return release();
      case 12: return in_.below(2) == 0 ? downgrade() : upgrade();
      case 13: return move();
      case 14: return care();
      case 15: return unpin();
      case 16: return queue_calls();
      default: return upkeep();
    }
  }

  Bytes in_;
  kvbm_manager_t* managers_[2] = {};
  kvbm_namespace_t* ns_[3] = {};
  Keys keys_[3];
  kvbm_queue_t* queue_ = nullptr;
  kvbm_queue_t* events_ = nullptr;
  kvbm_block_t foreign_ = 0;
  std::vector<HeldBlock> blocks_;
  std::vector<kvbm_block_t> ended_;
  std::vector<HeldMatch> matches_;
  std::vector<kvbm_pin_t> pins_;
  std::vector<std::unique_ptr<Submitted>> submitted_;
  uint64_t next_user_ = 0;
  uint64_t last_operation_ = 0;
  uint64_t sequence_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world(data, size);
  world.run();
  return 0;
}
