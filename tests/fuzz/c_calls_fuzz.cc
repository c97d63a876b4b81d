// The C interface under calls in any order with good and bad arguments. Only what kvbm.h says is detected is done
// wrong: NULLs, counts, ids, options and reserved fields out of range, holds and pins that have ended or are another
// manager's. What it leaves undefined (arrays shorter than their counts, released pointers) is not done.
#include "c_calls_coding.h"
#include "target.h"

namespace c_calls_fuzz {

namespace {

using namespace kvbm::fuzz;

class World : CodingCalls {
 public:
  World(const uint8_t* data, size_t size) : CodingCalls(data, size) {}
  ~World() { close(); }

  void run() {
    for (int calls = 0; calls < 64 && !in_.empty(); ++calls) {
      call();
      check();
    }
  }

 private:
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
    // All slots can be allocated again once nothing is held.
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

  // ------------------------------------------------------------------ attached caches

  // Draws ids of engine blocks, one of them perhaps out of range. Returns true if all are valid.
  bool some_ids(Submitted& op, size_t n) {
    bool good = true;
    const size_t first = in_.below(kEngineBlocks);
    for (size_t i = 0; i < n; ++i) {
      op.ids.push_back(static_cast<uint32_t>((first + i) % kEngineBlocks));
      if (!in_.bad()) continue;
      op.ids.back() = in_.below(2) == 0
                          ? KVBM_NO_BLOCK
                          : static_cast<uint32_t>(std::max<uint64_t>(kEngineBlocks, in_.edge() % UINT32_MAX));
      good &= op.ids.back() == KVBM_NO_BLOCK;
    }
    return good;
  }

  // Checks the status of a submission, and keeps the operation if it is in flight.
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
    const bool refused =
        got < 0 && std::all_of(op.status.begin(), op.status.end(), [](kvbm_status_t s) { return s == kNoStatus; });
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
    const bool wrong =
        cache == nullptr || (ids == nullptr && !op->keys.empty()) || (ids != nullptr && !good) || short_struct;
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
      match =
          &matches_[in_.below(matches_.size())];  // perhaps the other namespace's, or one from before an invalidation
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
    bool wrong = match->match == nullptr && !op->keys.empty();  // a load of nothing needs no match
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
    const kvbm_status_t got =
        kvbm_cache_load(op->cache, match->match, op->ids.data(), op->ids.size(), &room.options, queue, op->user_data);
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
    const kvbm_status_t got =
        expected(kvbm_manager_lookup(w.manager, w.ns, m.keys.data(), m.keys.size(), &room.options, out, &hits));
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
    const auto at = std::find_if(submitted_.begin(), submitted_.end(),
                                 [&](const auto& op) { return op->user_data == c.user_data; });
    REQUIRE(at != submitted_.end());  // exactly one each, and none for what was refused
    REQUIRE(c.op == (*at)->op && c.items == (*at)->items && c.items_done <= c.items);
    if (c.status == KVBM_OK) REQUIRE(c.items_done == c.items || c.op == KVBM_OP_PREFETCH);
    finish(**at, expected(c.status));
    submitted_.erase(at);
  }

  void poll() {
    kvbm_completion_t out[4];
    const size_t capacity = in_.below(5);
    const size_t n =
        in_.below(2) == 0 ? kvbm_queue_poll(queue_, out, capacity) : kvbm_queue_wait(queue_, out, capacity, 1000);
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
    switch (in_.below(10)) {
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
        expected((in_.byte() & 1) != 0 ? kvbm_manager_flush_durable(in_.or_null(managers_[0]), in_.edge())
                                       : kvbm_manager_flush(in_.or_null(managers_[0]), in_.edge()));
        break;
      case 5:
        scan();
        break;
      case 6:
        text();
        break;
      case 7:
        locate();
        break;
      case 8:
        sessions();
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
    written(kvbm_manager_node_address(managers_[0], out.data(), capacity, &needed));
    size_t nodes = 1;
    REQUIRE(kvbm_manager_nodes(managers_[0], nullptr, 0, &nodes) == KVBM_OK && nodes == 0);
    REQUIRE(kvbm_manager_nodes(in_.or_null(managers_[0]), nullptr, 1, &nodes) == KVBM_ERR_INVALID);
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

  void locate() {
    Roomy<kvbm_locate_options_t> room;
    kvbm_locate_options_t& options = room.options;
    REQUIRE(kvbm_locate_options_init(&options, sizeof options) == KVBM_OK);
    const size_t n_keys = in_.below(kKeys + 1);
    size_t requests[3] = {in_.below(kKeys), in_.below(kKeys), in_.bad() ? static_cast<size_t>(in_.edge()) : 0};
    if (in_.below(2) == 0) options.request_keys = requests, options.n_requests = in_.below(4);
    if (in_.bad()) options.ask_nodes_ns = in_.edge();
    resize(room);
    std::vector<kvbm_location_t> rows(in_.below(5));
    size_t n = kUnwritten;
    const kvbm_status_t got =
        expected(kvbm_manager_locate(managers_[0], ns_[in_.below(3)], in_.or_null(keys_[0].key.data()), n_keys,
                                     in_.or_null(&options), rows.empty() ? nullptr : rows.data(), rows.size(), &n));
    if (got != KVBM_OK) return;
    REQUIRE(n != kUnwritten);
    for (size_t i = 0; i < std::min(n, rows.size()); ++i) REQUIRE(rows[i].tier == 0 && rows[i].n_prefix <= n_keys);
  }

  // Calls about sessions. No manager here is a node, so nothing begins and no handle is written, whatever else is
  // wrong.
  void sessions() {
    const kvbm_request_id_t request{};
    const uint32_t ids[] = {0, static_cast<uint32_t>(in_.edge())};
    kvbm_offer_options_t offering;
    kvbm_offer_options_init(&offering, sizeof offering);
    kvbm_session_options_t opening;
    kvbm_session_options_init(&opening, sizeof opening);
    if (in_.bad()) offering.end = opening.end = in_.edge();
    if (in_.bad()) offering.rank = opening.rank = static_cast<uint32_t>(in_.edge());
    const kvbm_source_t source{in_.or_null("nobody"), static_cast<uint32_t>(in_.edge()), 0};
    Submitted op;
    op.cache = attach(op, in_.below(2));
    kvbm_cache_t* const cache = in_.or_null(op.cache);
    ErrorSlot slot;
    kvbm_offer_t* offer = reinterpret_cast<kvbm_offer_t*>(&slot);
    REQUIRE(expected(slot.check(kvbm_offer_open(cache, in_.or_null(&request), in_.or_null(ids), in_.below(3), &offering,
                                                nullptr, 0, &offer, &slot.error),
                                &slot.error)) < 0);
    REQUIRE(static_cast<void*>(offer) == &slot);
    kvbm_session_t* session = reinterpret_cast<kvbm_session_t*>(&slot);
    REQUIRE(expected(slot.check(kvbm_session_open(cache, in_.or_null(&request), ids, 1, in_.or_null(&source),
                                                  in_.below(2), &opening, nullptr, 0, &session, &slot.error),
                                &slot.error)) < 0);
    REQUIRE(static_cast<void*>(session) == &slot);
    REQUIRE(kvbm_offer_publish_all(nullptr, nullptr) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_offer_abort(nullptr, nullptr) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_session_abort(nullptr, nullptr) == KVBM_ERR_INVALID);
    REQUIRE(kvbm_session_wait_layer(nullptr, 0, 0, 0, nullptr) == KVBM_ERR_INVALID);
    kvbm_offer_release(nullptr);
    kvbm_session_release(nullptr);
    kvbm_cache_release(op.cache);
  }

  // Calls the init functions: all fields within struct_size are written, and nothing behind.
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
    check_one(kvbm_cache_code_options_init(static_cast<kvbm_cache_code_options_t*>(p), size));
    check_one(kvbm_load_options_init(static_cast<kvbm_load_options_t*>(p), size));
    check_one(kvbm_locate_options_init(static_cast<kvbm_locate_options_t*>(p), size));
    check_one(kvbm_offer_options_init(static_cast<kvbm_offer_options_t*>(p), size));
    check_one(kvbm_session_options_init(static_cast<kvbm_session_options_t*>(p), size));
    REQUIRE(kvbm_load_options_init(nullptr, 64) == KVBM_ERR_INVALID);
  }

  void call() {
    switch (in_.below(20)) {
      case 0:
      case 1:
        return store();
      case 2:
      case 3:
        return load();
      case 4:
        return look_up();
      case 5:
        return use_match();
      case 6:
        return allocate();
      case 7:
        return complete();
      case 8:
        return enroll();
      case 9:
        return view();
      case 10:
        return clone();
      case 11:
        return release();
      case 12:
        return in_.below(2) == 0 ? downgrade() : upgrade();
      case 13:
        return move();
      case 14:
        return care();
      case 15:
        return unpin();
      case 16:
        return queue_calls();
      case 17:
      case 18:
        return code();
      default:
        return upkeep();
    }
  }
};

}  // namespace

KVBM_FUZZ_TARGET(c_calls) {
  World world(data, size);
  world.run();
  return 0;
}

}  // namespace c_calls_fuzz
