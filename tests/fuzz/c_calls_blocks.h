// The managed pool's half of the C interface's fuzzing: what a run has opened, arguments good and bad, and calls on
// blocks.
#pragma once

#include <memory>

#include "c_calls_world.h"

namespace kvbm::fuzz {

inline kvbm_context_t* context() {
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
inline kvbm_component_t component() {
  kvbm_component_t c{};
  c.kind = KVBM_COMPONENT_ATTENTION, c.element = KVBM_ELEMENT_BF16;
  c.layers = 2, c.heads = 1, c.head_dim = 64;
  return c;
}
class BlockCalls {
 protected:
  BlockCalls(const uint8_t* data, size_t size) : in_(data, size) { open(); }
  ~BlockCalls() = default;
  BlockCalls(const BlockCalls&) = delete;
  BlockCalls& operator=(const BlockCalls&) = delete;

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

  // A namespace of the first manager, or a choice that the call must refuse.
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

  // Sometimes sets struct_size to a wrong value: below 4, larger than the header's with zeros behind the struct (which
  // is legal), or larger with a byte that is not zero. `room` is a struct and 64 bytes behind it.
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
    // A count above the limit is refused before anything is written.
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
    const kvbm_status_t got =
        expected(kvbm_manager_complete(managers_[0], batch.values.data(), n, in_.bad() ? nullptr : bytes.data()));
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
      // A block can be registered only under the namespace it was filled for, and no longer once that epoch has
      // ended.
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
    const kvbm_status_t got =
        expected(kvbm_block_view(managers_[0], batch.values.data(), batch.values.size(), views.data()));
    if (batch.dead) REQUIRE(got < 0);
  }

  void clone() {
    Batch batch = some_blocks(HeldBlock::registered);
    std::vector<kvbm_block_t> out(batch.values.size() + 1);
    const kvbm_status_t got =
        expected(kvbm_block_clone(managers_[0], batch.values.data(), batch.values.size(), out.data()));
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
    const kvbm_status_t got =
        expected(kvbm_block_downgrade(managers_[0], batch.values.data(), batch.values.size(), out.data()));
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
    const kvbm_status_t got =
        expected(kvbm_block_upgrade(managers_[0], batch.values.data(), batch.values.size(), out.data()));
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

}  // namespace kvbm::fuzz
