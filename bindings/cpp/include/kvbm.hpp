// kvbm.hpp - C++17 over kvbm.h: handles that release themselves, and exceptions.
//
// SPDX-License-Identifier: Apache-2.0
//
// kvbm.h documents the calls. This header adds:
//   - A class for each object; it is moved, not copied, and releases the object at its end. Objects may end in any
//     order. close() ends an object early, and may be called twice. Calls on an ended object give KVBM_ERR_INVALID.
//   - kvbm::Error for failed calls. KVBM_PARTIAL is not a failure: calls that may return it return the status.
//   - kvbm::Span for arrays: made from a vector, an array, or a pointer and a length.
//   - Options are the structs of kvbm.h, filled with their defaults by kvbm::manager_options() and so on. The caller
//     owns the memory that they point to, which must live as long as the call.
//   - Item statuses of a submission live until its completion was taken, whatever happens to the Submission.
// Programs without exceptions call kvbm.h; get() returns the object of every handle.
// Included with it: kvbm_codec.hpp, coding of buffers, and kvbm_text.hpp, text forms of objects and rows.
#ifndef KVBM_HPP
#define KVBM_HPP

#include <kvbm.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvbm {

// ------------------------------------------------------------------------------------------------------------- errors

// Remedies: the bands of kvbm_status_t.
enum class Band { none = 0, caller = 1, no_room = 2, time_or_peer = 3, miss = 4, unavailable = 5, internal = 6 };

inline Band band_of(kvbm_status_t status) noexcept {
  return status > -100 || status < -699 ? Band::none : static_cast<Band>(-status / 100);
}

class Error : public std::runtime_error {
 public:
  explicit Error(kvbm_status_t status, const std::string& particulars = {})
      : std::runtime_error(std::string(kvbm_status_name(status)) + ": " +
                           (particulars.empty() ? kvbm_status_text(status) : particulars)),
        status_(status) {}
  kvbm_status_t status() const noexcept { return status_; }
  const char* name() const noexcept { return kvbm_status_name(status_); }
  Band band() const noexcept { return band_of(status_); }

 private:
  kvbm_status_t status_;
};

// Throws where a call that this thread has just made failed, with what the library has to say of it; else gives its
// status, KVBM_OK or KVBM_PARTIAL.
inline kvbm_status_t check(kvbm_status_t status) {
  if (status >= 0) return status;
  kvbm_error_t last{};
  kvbm_error_last(&last);
  throw Error(status, last.status == status ? last.message : "");
}
inline kvbm_status_t check(kvbm_status_t status, const kvbm_error_t& particulars) {
  if (status < 0) throw Error(status, particulars.message);
  return status;
}

// Throws KVBM_ERR_VERSION where the library is not of the version that this header is of: before 1.0 a minor version
// may change what structs look like.
inline void check_version() {
  if (kvbm_version() / 1000 == static_cast<uint32_t>(KVBM_VERSION) / 1000) return;
  throw Error(KVBM_ERR_VERSION, std::string("libkvbm is ") + kvbm_version_string() +
                                    ", and this program was built for " + std::to_string(KVBM_VERSION_MAJOR) + "." +
                                    std::to_string(KVBM_VERSION_MINOR) +
                                    ": install that version, or build the program again");
}

// ------------------------------------------------------------------------------------------------------------ basics

// A pointer and a length.
template <class T>
class Span {
 public:
  Span() = default;
  Span(T* data, std::size_t size) : data_(data), size_(size) {}
  template <std::size_t n>
  Span(T (&array)[n]) : data_(array), size_(n) {}
  template <class C, class = std::enable_if_t<std::is_convertible_v<decltype(std::declval<C&>().data()), T*>>>
  Span(C&& container) : data_(container.data()), size_(container.size()) {}
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  Span subspan(std::size_t first, std::size_t n) const { return Span(data_ + first, n); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

using Keys = std::vector<kvbm_key_t>;
using Id = std::array<uint8_t, 16>;

namespace detail {

template <class T, void (*release)(T*)>
struct Releaser {
  void operator()(T* object) const noexcept { release(object); }
};
// One C object, or none.
template <class T, void (*release)(T*)>
class Handle {
 public:
  T* get() const noexcept { return object_.get(); }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  void close() noexcept { object_.reset(); }

 protected:
  void take(T* object) noexcept { object_.reset(object); }

 private:
  std::unique_ptr<T, Releaser<T, release>> object_;
};

// The text of a call of two phases; it may grow between them.
template <class Call>
std::string text(Call&& call) {
  std::string out;
  std::size_t needed = 0;
  do {
    out.resize(needed);
    check(call(out.data(), out.empty() ? 0 : out.size() + 1, &needed));
  } while (needed > out.size());
  out.resize(needed);
  return out;
}

template <class Options>
Options options(kvbm_status_t (*init)(Options*, uint32_t)) {
  Options out;
  check(init(&out, sizeof out));
  return out;
}

inline void same_size(std::size_t a, std::size_t b, const char* what) {
  if (a != b) throw Error(KVBM_ERR_INVALID, std::string(what) + " differ in number");
}

}  // namespace detail

inline auto context_options() { return detail::options(kvbm_context_options_init); }
inline auto manager_options() { return detail::options(kvbm_manager_options_init); }
inline auto namespace_options() { return detail::options(kvbm_namespace_options_init); }
inline auto register_options() { return detail::options(kvbm_register_options_init); }
inline auto lookup_options() { return detail::options(kvbm_lookup_options_init); }
inline auto cache_options() { return detail::options(kvbm_cache_options_init); }
inline auto code_options() { return detail::options(kvbm_cache_code_options_init); }
inline auto store_options() { return detail::options(kvbm_store_options_init); }
inline auto load_options() { return detail::options(kvbm_load_options_init); }
inline auto locate_options() { return detail::options(kvbm_locate_options_init); }
inline auto offer_options() { return detail::options(kvbm_offer_options_init); }
inline auto session_options() { return detail::options(kvbm_session_options_init); }

// ---------------------------------------------------------------------------------------------------- context, queues

class Context : public detail::Handle<kvbm_context_t, kvbm_context_release> {
 public:
  explicit Context(const kvbm_context_options_t& options = context_options()) {
    check_version();
    kvbm_error_t err{};
    kvbm_context_t* out = nullptr;
    check(kvbm_context_create(&options, &out, &err), err);
    take(out);
  }
  explicit Context(Span<const kvbm_setting_t> settings) : Context(with(settings)) {}

  std::string config() const {
    return detail::text(
        [this](char* out, std::size_t n, std::size_t* need) { return kvbm_context_config(get(), out, n, need); });
  }
  static std::string config_reference() { return detail::text(kvbm_config_reference); }

 private:
  static kvbm_context_options_t with(Span<const kvbm_setting_t> settings) {
    auto options = context_options();
    options.settings = settings.data();
    options.n_settings = settings.size();
    return options;
  }
};

// An accepted submission. `items` is written before the completion can be taken; do not read it earlier.
struct Submission {
  uint64_t operation = 0;
  std::shared_ptr<const std::vector<kvbm_status_t>> items;
};

// Ends by cancelling what is under way with item statuses, and waiting for it: they are written until then.
class Queue {
 public:
  Queue(const Context& context, uint32_t depth) : state_(std::make_unique<State>()) {
    kvbm_error_t err{};
    check(kvbm_queue_create(context.get(), depth, &state_->queue, &err), err);
  }
  kvbm_queue_t* get() const noexcept { return state_ ? state_->queue : nullptr; }
  void close() noexcept { state_.reset(); }
  int fd() const noexcept { return kvbm_queue_fd(get()); }
  // Takes completions that are there; never blocks.
  std::size_t poll(Span<kvbm_completion_t> out) { return taken(out, kvbm_queue_poll(get(), out.data(), out.size())); }
  std::size_t wait(Span<kvbm_completion_t> out, uint64_t timeout_ns) {
    return taken(out, kvbm_queue_wait(get(), out.data(), out.size(), timeout_ns));
  }
  void cancel(uint64_t operation) { check(kvbm_queue_cancel(get(), operation)); }
  std::size_t poll_events(Span<kvbm_event_t> out) { return kvbm_queue_poll_events(get(), out.data(), out.size()); }

  // Submits by `call(item_status, out_operation)`, and keeps what the library will write to.
  template <class Call>
  Submission submit(std::size_t n_items, Call&& call) {
    if (!state_) throw Error(KVBM_ERR_INVALID, "the queue is closed");
    auto items = std::make_shared<std::vector<kvbm_status_t>>(n_items, KVBM_OK);
    const std::lock_guard<std::mutex> lock(state_->mutex);  // the completion cannot be taken before it is known here
    auto slot = state_->pending.emplace(kNew, items).first;
    Submission out;
    try {
      check(call(items->data(), &out.operation));
    } catch (...) {
      state_->pending.erase(slot);
      throw;
    }
    auto node = state_->pending.extract(slot);
    node.key() = out.operation;
    state_->pending.insert(std::move(node));
    out.items = std::move(items);
    return out;
  }

 private:
  static constexpr uint64_t kNew = 0;
  struct State {
    kvbm_queue_t* queue = nullptr;
    std::mutex mutex;
    std::unordered_map<uint64_t, std::shared_ptr<std::vector<kvbm_status_t>>> pending;

    void done(const kvbm_completion_t& completion) {
      if (completion.op == KVBM_OP_STORE || completion.op == KVBM_OP_LOAD) pending.erase(completion.operation);
    }
    ~State() {
      for (const auto& entry : pending) (void)kvbm_queue_cancel(queue, entry.first);
      kvbm_completion_t completion;
      while (!pending.empty() && kvbm_queue_wait(queue, &completion, 1, KVBM_FOREVER) == 1) done(completion);
      kvbm_queue_release(queue);
    }
  };
  std::size_t taken(Span<kvbm_completion_t> out, std::size_t n) {
    if (n == 0) return 0;
    const std::lock_guard<std::mutex> lock(state_->mutex);
    for (std::size_t i = 0; i < n; ++i) state_->done(out[i]);
    return n;
  }
  std::unique_ptr<State> state_;
};

// ---------------------------------------------------------------------------------------------------------- geometry

class Geometry : public detail::Handle<kvbm_geometry_t, kvbm_geometry_release> {
 public:
  Geometry(uint32_t tokens_per_block, uint32_t units, Span<const kvbm_component_t> components) {
    kvbm_error_t err{};
    kvbm_geometry_t* out = nullptr;
    check(kvbm_geometry_create(tokens_per_block, units, components.data(), components.size(), &out, &err), err);
    take(out);
    units_ = units;
  }
  uint32_t units() const noexcept { return units_; }
  uint64_t fingerprint() const { return kvbm_geometry_fingerprint(get()); }
  uint64_t record_bytes(uint32_t component, const kvbm_shard_t* shard = nullptr) const {
    uint64_t bytes = 0;
    check(kvbm_geometry_record_bytes(get(), component, shard, &bytes));
    return bytes;
  }

 private:
  uint32_t units_ = 1;
};

// ------------------------------------------------------------------------------------------------- namespaces, blocks

using ManagerPointer = std::shared_ptr<kvbm_manager_t>;

class Namespace : public detail::Handle<kvbm_namespace_t, kvbm_namespace_release> {
 public:
  // NULL geometry = opaque blocks. It is not set in the options: how many block ids a store takes depends on it.
  Namespace(kvbm_manager_t* manager, kvbm_namespace_options_t options, const Geometry* geometry) {
    if (options.geometry != nullptr) throw Error(KVBM_ERR_INVALID, "give the kvbm::Geometry beside the options");
    if (geometry != nullptr) options.geometry = geometry->get();
    if (geometry != nullptr && !*geometry) throw Error(KVBM_ERR_INVALID, "the geometry is closed");
    units_ = geometry != nullptr ? geometry->units() : 1;
    kvbm_error_t err{};
    kvbm_namespace_t* out = nullptr;
    check(kvbm_namespace_open(manager, &options, &out, &err), err);
    take(out);
  }
  uint32_t units() const noexcept { return units_; }
  Id id() const {
    Id out{};
    kvbm_namespace_id(get(), out.data());
    return out;
  }
  void invalidate() {
    kvbm_error_t err{};
    check(kvbm_namespace_invalidate(get(), &err), err);
  }
  void reset() {
    kvbm_error_t err{};
    check(kvbm_namespace_reset(get(), &err), err);
  }
  void set_quota(uint64_t bytes, uint32_t mode) { check(kvbm_namespace_set_quota(get(), bytes, mode)); }

  // `extras` is empty or has an entry for each full block.
  Keys chain(Span<const uint32_t> tokens, uint32_t block_tokens, const kvbm_key_t* previous = nullptr,
             Span<const kvbm_extra_t> extras = {}) const {
    Keys out(full_blocks(tokens, block_tokens, extras));
    std::size_t n = 0;
    check(kvbm_key_chain(get(), previous, tokens.data(), tokens.size(), block_tokens, extras.data(), out.data(),
                         out.size(), &n));
    return out;
  }
  Keys content(Span<const uint32_t> tokens, uint32_t block_tokens, Span<const kvbm_extra_t> extras = {}) const {
    Keys out(full_blocks(tokens, block_tokens, extras));
    std::size_t n = 0;
    check(
        kvbm_key_content(get(), tokens.data(), tokens.size(), block_tokens, extras.data(), out.data(), out.size(), &n));
    return out;
  }
  // `hashes` is n hashes of `hash_bytes` bytes each; fewer than 16 bytes need options.weak_hashes.
  Keys from_hashes(Span<const uint8_t> hashes, std::size_t hash_bytes) const {
    if (hash_bytes == 0 || hashes.size() % hash_bytes != 0) throw Error(KVBM_ERR_INVALID, "hashes are cut off");
    Keys out(hashes.size() / hash_bytes);
    const kvbm_status_t made = kvbm_key_from_hashes(get(), hashes.data(), hash_bytes, out.size(), out.data());
    if (made == KVBM_ERR_INVALID && hash_bytes < 16) {
      throw Error(made, "hashes of fewer than 16 bytes are taken where the namespace has weak_hashes");
    }
    check(made);
    return out;
  }

 private:
  static std::size_t full_blocks(Span<const uint32_t> tokens, uint32_t block_tokens, Span<const kvbm_extra_t> extras) {
    if (block_tokens == 0) throw Error(KVBM_ERR_INVALID, "a block of no tokens");
    const std::size_t n = tokens.size() / block_tokens;
    if (!extras.empty()) detail::same_size(extras.size(), n, "extras and full blocks");
    return n;
  }
  uint32_t units_ = 1;
};

// Holds on blocks: all of a batch end together, at release() or at the end of the object. They keep the manager.
class Blocks {
 public:
  Blocks() = default;
  Blocks(ManagerPointer manager, std::vector<kvbm_block_t> ids) : manager_(std::move(manager)), ids_(std::move(ids)) {}
  Blocks(Blocks&& other) noexcept { swap(other); }
  Blocks& operator=(Blocks&& other) noexcept {
    Blocks(std::move(other)).swap(*this);
    return *this;
  }
  ~Blocks() {
    if (!ids_.empty()) (void)kvbm_block_release(manager_.get(), ids_.data(), ids_.size());
  }
  std::size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  const std::vector<kvbm_block_t>& ids() const { return ids_; }
  // Passes the holds to the caller, which releases them.
  std::vector<kvbm_block_t> detach() { return std::exchange(ids_, {}); }

  // Where the bytes are, without copying; valid while these holds are.
  void view(Span<kvbm_view_t> out) const {
    detail::same_size(out.size(), size(), "views and blocks");
    check(kvbm_block_view(manager_.get(), ids_.data(), size(), out.data()));
  }
  std::vector<kvbm_view_t> view() const {
    std::vector<kvbm_view_t> out(size());
    view(out);
    return out;
  }
  // The bytes are final. `bytes` is empty (whole blocks) or has the length of each.
  void complete(Span<const uint64_t> bytes = {}) {
    if (!bytes.empty()) detail::same_size(bytes.size(), size(), "lengths and blocks");
    check(kvbm_manager_complete(manager_.get(), ids_.data(), size(), bytes.data()));
  }
  // kvbm_manager_register: findable from now on.
  void publish(const Namespace& ns, Span<const kvbm_key_t> keys,
               const kvbm_register_options_t& options = register_options()) {
    detail::same_size(keys.size(), size(), "keys and blocks");
    check(kvbm_manager_register(manager_.get(), ns.get(), ids_.data(), keys.data(), size(), &options));
  }
  Blocks clone() const { return like(kvbm_block_clone); }
  Blocks downgrade() const { return like(kvbm_block_downgrade); }
  // 0 where the block has gone.
  Blocks upgrade() const { return like(kvbm_block_upgrade); }
  // Ends the holds, and says if one of them was no good; the destructor does not.
  void release() {
    const auto ids = detach();
    if (!ids.empty()) check(kvbm_block_release(manager_.get(), ids.data(), ids.size()));
  }

 private:
  using Call = kvbm_status_t (*)(kvbm_manager_t*, const kvbm_block_t*, std::size_t, kvbm_block_t*);
  Blocks like(Call call) const {
    std::vector<kvbm_block_t> out(size());
    check(call(manager_.get(), ids_.data(), size(), out.data()));
    return Blocks(manager_, std::move(out));
  }
  void swap(Blocks& other) noexcept {
    manager_.swap(other.manager_);
    ids_.swap(other.ids_);
  }
  ManagerPointer manager_;
  std::vector<kvbm_block_t> ids_;
};

// Result of a lookup; empty, with hits() 0, without a hit.
class Match : public detail::Handle<kvbm_match_t, kvbm_match_release> {
 public:
  Match(ManagerPointer manager, kvbm_match_t* match, std::size_t hits) : manager_(std::move(manager)), hits_(hits) {
    take(match);
  }
  std::size_t hits() const { return hits_; }
  std::size_t count() const { return get() ? kvbm_match_count(get()) : 0; }
  std::size_t units() const { return get() ? kvbm_match_units(get()) : 0; }
  std::vector<kvbm_match_item_t> items() const {
    std::vector<kvbm_match_item_t> out(count());
    if (!out.empty()) check(kvbm_match_items(get(), 0, out.size(), out.data()));
    return out;
  }
  // Predicted nanoseconds of loading the first of keys [first, first + n), the first two, and so on.
  std::vector<uint64_t> cost(std::size_t first, std::size_t n) const {
    std::vector<uint64_t> out(n);
    if (!out.empty()) check(kvbm_match_cost(get(), first, n, out.data()));
    return out;
  }
  // Holds on part `part` of keys [first, first + n); 0 where it is not in the host tier.
  Blocks blocks(std::size_t first, std::size_t n, uint32_t part = 0) const {
    std::vector<kvbm_block_t> out(n);
    check(kvbm_match_blocks(get(), part, first, n, out.data()));
    return Blocks(manager_, std::move(out));
  }

 private:
  ManagerPointer manager_;
  std::size_t hits_;
};

// ----------------------------------------------------------------------------------------------------------- manager

class Manager {
 public:
  explicit Manager(const Context& context, const kvbm_manager_options_t& options = manager_options()) {
    kvbm_error_t err{};
    kvbm_manager_t* out = nullptr;
    check(kvbm_manager_create(context.get(), &options, &out, &err), err);
    manager_ = ManagerPointer(out, kvbm_manager_release);
  }
  Manager(Manager&&) = default;
  Manager& operator=(Manager&&) = default;
  kvbm_manager_t* get() const noexcept { return manager_.get(); }
  const ManagerPointer& share_pointer() const noexcept { return manager_; }
  void close() noexcept { manager_.reset(); }

  Namespace open(const kvbm_namespace_options_t& options, const Geometry* geometry = nullptr) {
    return Namespace(get(), options, geometry);
  }
  void reset() {
    kvbm_error_t err{};
    check(kvbm_manager_reset(get(), &err), err);
  }
  kvbm_status_t flush(uint64_t timeout_ns) { return check(kvbm_manager_flush(get(), timeout_ns)); }
  // And what the disks then have survives the loss of power.
  kvbm_status_t flush_durable(uint64_t timeout_ns) { return check(kvbm_manager_flush_durable(get(), timeout_ns)); }

  // Partial blocks. `evicted` gets the keys of blocks that made room, as many as it has room for; `n_evicted` is how
  // many there were.
  Blocks allocate(const Namespace& ns, std::size_t n, Span<kvbm_key_t> evicted = {}, std::size_t* n_evicted = nullptr) {
    std::vector<kvbm_block_t> out(n);
    check(kvbm_manager_allocate(get(), ns.get(), n, out.data(), evicted.data(), evicted.size(), n_evicted));
    return Blocks(manager_, std::move(out));
  }
  Match lookup(const Namespace& ns, Span<const kvbm_key_t> keys, const kvbm_lookup_options_t* options = nullptr) {
    kvbm_match_t* match = nullptr;
    std::size_t hits = 0;
    check(kvbm_manager_lookup(get(), ns.get(), keys.data(), keys.size(), options, &match, &hits));
    return Match(manager_, match, hits);
  }

  // With a queue these are submitted, and its completion says what became of them.
  kvbm_status_t prefetch(const Namespace& ns, Span<const kvbm_key_t> keys, const kvbm_part_t* part = nullptr,
                         Queue* queue = nullptr, uint64_t user_data = 0) {
    return check(kvbm_manager_prefetch(get(), ns.get(), part, keys.data(), keys.size(), queue ? queue->get() : nullptr,
                                       user_data));
  }
  kvbm_status_t offload(const Namespace& ns, Span<const kvbm_key_t> keys, uint32_t tier,
                        const kvbm_part_t* part = nullptr, Queue* queue = nullptr, uint64_t user_data = 0) {
    return check(kvbm_manager_offload(get(), ns.get(), part, keys.data(), keys.size(), tier,
                                      queue ? queue->get() : nullptr, user_data));
  }
  std::size_t drop(const Namespace& ns, Span<const kvbm_key_t> keys, const kvbm_part_t* part = nullptr) {
    std::size_t n = 0;
    check(kvbm_manager_drop(get(), ns.get(), part, keys.data(), keys.size(), &n));
    return n;
  }
  void hint(const Namespace& ns, Span<const kvbm_key_t> keys, uint32_t priority, const kvbm_part_t* part = nullptr) {
    check(kvbm_manager_hint(get(), ns.get(), part, keys.data(), keys.size(), priority));
  }
  // A pin belongs to its owner, not to an object: it ends at its deadline or when it is unpinned. {0, 0}: nothing
  // there.
  std::pair<kvbm_pin_t, std::size_t> pin(const Namespace& ns, Span<const kvbm_key_t> keys, uint64_t owner,
                                         uint64_t timeout_ns, const kvbm_part_t* part = nullptr) {
    std::pair<kvbm_pin_t, std::size_t> out{0, 0};
    check(
        kvbm_manager_pin(get(), ns.get(), part, keys.data(), keys.size(), owner, timeout_ns, &out.first, &out.second));
    return out;
  }
  void unpin(kvbm_pin_t pin) { check(kvbm_manager_unpin(get(), pin)); }
  std::size_t unpin_owner(uint64_t owner) {
    std::size_t n = 0;
    check(kvbm_manager_unpin_owner(get(), owner, &n));
    return n;
  }

  kvbm_manager_stats_t stats() const {
    kvbm_manager_stats_t out{};
    out.struct_size = sizeof out;
    check(kvbm_manager_stats(get(), &out));
    return out;
  }
  std::string metrics() const {
    return detail::text(
        [this](char* out, std::size_t n, std::size_t* need) { return kvbm_manager_metrics(get(), out, n, need); });
  }
  // Waits until every address of node.peers is a connected node that has reported its contents. The first lookup that
  // asks nodes then asks all of them. The error names the missing addresses and the reasons.
  void wait_for_peers(uint64_t timeout_ns) {
    kvbm_error_t err{};
    check(kvbm_manager_wait_for_peers(get(), timeout_ns, &err), err);
  }
  // NULL = stop.
  void subscribe(Queue* queue) { check(kvbm_manager_subscribe(get(), queue ? queue->get() : nullptr)); }
  // Everything there is, read in pages.
  std::vector<kvbm_scan_row_t> scan(std::size_t page = 256) const {
    std::vector<kvbm_scan_row_t> out, rows(page);
    uint64_t cursor = 0;
    do {
      std::size_t n = 0;
      check(kvbm_manager_scan(get(), &cursor, rows.data(), rows.size(), &n));
      out.insert(out.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(n));
    } while (cursor != 0);
    return out;
  }
  std::vector<kvbm_node_row_t> nodes() const {
    std::vector<kvbm_node_row_t> out;
    std::size_t n = 16;
    do {
      out.resize(n);
      check(kvbm_manager_nodes(get(), out.data(), out.size(), &n));
    } while (n > out.size());
    out.resize(n);
    return out;
  }
  // The devices that caches of this manager were attached on.
  std::vector<kvbm_device_row_t> devices() const {
    std::vector<kvbm_device_row_t> out;
    std::size_t n = 4;
    do {
      out.resize(n);
      check(kvbm_manager_devices(get(), out.data(), out.size(), &n));
    } while (n > out.size());
    out.resize(n);
    return out;
  }
  std::string node_address() const {
    return detail::text(
        [this](char* out, std::size_t n, std::size_t* need) { return kvbm_manager_node_address(get(), out, n, need); });
  }
  // The status is KVBM_PARTIAL where a node has not answered in time.
  std::pair<kvbm_status_t, std::vector<kvbm_location_t>> locate(const Namespace& ns, Span<const kvbm_key_t> keys,
                                                                const kvbm_locate_options_t& options = locate_options(),
                                                                std::size_t capacity = 256) const {
    std::vector<kvbm_location_t> rows(capacity);
    std::size_t n = 0;
    const kvbm_status_t status =
        check(kvbm_manager_locate(get(), ns.get(), keys.data(), keys.size(), &options, rows.data(), rows.size(), &n));
    if (n < rows.size()) rows.resize(n);
    return {status, std::move(rows)};
  }
  kvbm_share_t share() const {
    kvbm_share_t out{};
    out.struct_size = sizeof out;
    check(kvbm_manager_share(get(), &out));
    return out;
  }

 private:
  ManagerPointer manager_;
};

// ---------------------------------------------------------------------------------------------------- attached caches

// The tensors stay the caller's, and outlive the cache. block_ids is [parts][ids], as in kvbm.h.
class Cache : public detail::Handle<kvbm_cache_t, kvbm_cache_release> {
 public:
  Cache(const Manager& manager, const Namespace& ns, const kvbm_cache_options_t& options)
      : manager_(manager.share_pointer()), parts_(options.n_parts), units_(ns.units()) {
    kvbm_error_t err{};
    kvbm_cache_t* out = nullptr;
    check(kvbm_cache_attach(manager.get(), ns.get(), &options, &out, &err), err);
    take(out);
  }
  Match lookup(Span<const kvbm_key_t> keys, const kvbm_lookup_options_t* options = nullptr) {
    kvbm_match_t* match = nullptr;
    std::size_t hits = 0;
    check(kvbm_cache_lookup(get(), keys.data(), keys.size(), options, &match, &hits));
    return Match(manager_, match, hits);
  }
  // Blocks until done.
  kvbm_status_t store(Span<const kvbm_key_t> keys, Span<const uint32_t> block_ids,
                      const kvbm_store_options_t* options = nullptr) {
    detail::same_size(block_ids.size(), keys.size() * units_ * parts_, "block ids and the engine blocks of the keys");
    return check(kvbm_cache_store(get(), keys.data(), block_ids.data(), keys.size(), options, nullptr, 0));
  }
  // Submitted: the tensors are in use until the completion was taken.
  Submission store(Span<const kvbm_key_t> keys, Span<const uint32_t> block_ids, Queue& queue, uint64_t user_data,
                   kvbm_store_options_t options = store_options()) {
    detail::same_size(block_ids.size(), keys.size() * units_ * parts_, "block ids and the engine blocks of the keys");
    return queue.submit(keys.size(), [&](kvbm_status_t* items, uint64_t* operation) {
      options.item_status = items;
      options.out_operation = operation;
      return kvbm_cache_store(get(), keys.data(), block_ids.data(), keys.size(), &options, queue.get(), user_data);
    });
  }
  kvbm_status_t load(const Match& match, Span<const uint32_t> block_ids, const kvbm_load_options_t* options = nullptr) {
    return check(kvbm_cache_load(get(), match.get(), block_ids.data(), per_part(block_ids), options, nullptr, 0));
  }
  Submission load(const Match& match, Span<const uint32_t> block_ids, Queue& queue, uint64_t user_data,
                  kvbm_load_options_t options = load_options()) {
    const std::size_t n = per_part(block_ids);
    return queue.submit((n + units_ - 1) / units_, [&](kvbm_status_t* items, uint64_t* operation) {
      options.item_status = items;
      options.out_operation = operation;
      return kvbm_cache_load(get(), match.get(), block_ids.data(), n, &options, queue.get(), user_data);
    });
  }
  // What is enqueued on `stream` from now on runs after that layer of a submitted load with wait_layers, by its number
  // (Submission::operation). That it runs does not say that the load was right: its completion does. With
  // KVBM_WAIT_LAYERS_ISSUED it blocks until the layer was given to the driver or the load has ended.
  void wait_layer(uint64_t operation, uint32_t layer, void* stream) {
    check(kvbm_cache_wait_layer(get(), operation, layer, stream));
  }
  // Encodes blocks of one part (options.part), on a device by its kernels, to the same bytes; namespace codec reads
  // them. `options`: stream, and for opaque parts the form of the pages.
  std::size_t code_room(std::size_t n_blocks, const kvbm_cache_code_options_t& options = code_options()) const {
    kvbm_error_t err{};
    uint64_t out = 0;
    check(kvbm_cache_code_room(get(), n_blocks, &options, &out, &err), err);
    return static_cast<std::size_t>(out);
  }
  std::size_t encode(Span<const uint32_t> block_ids, Span<uint8_t> into, uint32_t mode = KVBM_CODEC_DEFAULT,
                     const kvbm_cache_code_options_t& options = code_options()) {
    kvbm_error_t err{};
    std::size_t n = 0;
    check(kvbm_cache_encode(get(), block_ids.data(), block_ids.size(), mode, &options, into.data(), into.size(), &n,
                            &err),
          err);
    return n;
  }
  std::vector<uint8_t> encode(Span<const uint32_t> block_ids, uint32_t mode = KVBM_CODEC_DEFAULT,
                              const kvbm_cache_code_options_t& options = code_options()) {
    std::vector<uint8_t> out(code_room(block_ids.size(), options));
    out.resize(encode(block_ids, out, mode, options));
    return out;
  }
  // Every byte is verified before it is written. A lossy buffer needs KVBM_CODEC_ALLOW_LOSSY in options.flags. Do not
  // store such blocks under keys for which readers expect exact bytes.
  void decode(Span<const uint8_t> coded, Span<const uint32_t> block_ids,
              const kvbm_cache_code_options_t& options = code_options()) {
    kvbm_error_t err{};
    check(kvbm_cache_decode(get(), coded.data(), coded.size(), block_ids.data(), block_ids.size(), &options, &err),
          err);
  }
  std::size_t parts() const noexcept { return parts_; }
  // How many ids each part has.
  std::size_t per_part(Span<const uint32_t> block_ids) const {
    if (parts_ == 0 || block_ids.size() % parts_ != 0)
      throw Error(KVBM_ERR_INVALID, "block ids are not as many for every part");
    return block_ids.size() / parts_;
  }

 private:
  ManagerPointer manager_;
  std::size_t parts_;
  uint32_t units_;
};

// ----------------------------------------------------------------------------------------------------------- sessions

// How an offer or a session ends is what wait() throws, or nothing; false: it goes on.
class Offer : public detail::Handle<kvbm_offer_t, kvbm_offer_release> {
 public:
  Offer(Cache& cache, const kvbm_request_id_t& request, Span<const uint32_t> block_ids,
        const kvbm_offer_options_t& options = offer_options(), Queue* queue = nullptr, uint64_t user_data = 0) {
    kvbm_error_t err{};
    kvbm_offer_t* out = nullptr;
    check(kvbm_offer_open(cache.get(), &request, block_ids.data(), cache.per_part(block_ids), &options,
                          queue ? queue->get() : nullptr, user_data, &out, &err),
          err);
    take(out);
  }
  void publish(uint32_t component, uint32_t first_layer, uint32_t n_layers, uint64_t begin = 0, uint64_t end = 0) {
    kvbm_error_t err{};
    check(kvbm_offer_publish(get(), component, first_layer, n_layers, begin, end, &err), err);
  }
  // For a cache on a device, once `stream` (nullptr: the legacy one) has done what it holds now. It waits for nothing.
  void publish_on_stream(uint32_t component, uint32_t first_layer, uint32_t n_layers, uint64_t begin, uint64_t end,
                         void* stream) {
    kvbm_error_t err{};
    check(kvbm_offer_publish_on_stream(get(), component, first_layer, n_layers, begin, end, stream, &err), err);
  }
  void publish_all() {
    kvbm_error_t err{};
    check(kvbm_offer_publish_all(get(), &err), err);
  }
  void abort(const char* reason = nullptr) { check(kvbm_offer_abort(get(), reason)); }
  bool wait(uint64_t timeout_ns) {
    kvbm_error_t err{};
    const kvbm_status_t status = kvbm_offer_wait(get(), timeout_ns, &err);
    return status == KVBM_ERR_AGAIN ? false : (check(status, err), true);
  }
};

class Session : public detail::Handle<kvbm_session_t, kvbm_session_release> {
 public:
  Session(Cache& cache, const kvbm_request_id_t& request, Span<const uint32_t> block_ids,
          Span<const kvbm_source_t> sources, const kvbm_session_options_t& options = session_options(),
          Queue* queue = nullptr, uint64_t user_data = 0) {
    kvbm_error_t err{};
    kvbm_session_t* out = nullptr;
    check(kvbm_session_open(cache.get(), &request, block_ids.data(), cache.per_part(block_ids), sources.data(),
                            sources.size(), &options, queue ? queue->get() : nullptr, user_data, &out, &err),
          err);
    take(out);
  }
  bool wait(uint64_t timeout_ns) {
    kvbm_error_t err{};
    const kvbm_status_t status = kvbm_session_wait(get(), timeout_ns, &err);
    return status == KVBM_ERR_AGAIN ? false : (check(status, err), true);
  }
  bool wait_layer(uint32_t component, uint32_t layer, uint64_t timeout_ns) {
    kvbm_error_t err{};
    const kvbm_status_t status = kvbm_session_wait_layer(get(), component, layer, timeout_ns, &err);
    return status == KVBM_ERR_AGAIN ? false : (check(status, err), true);
  }
  void abort(const char* reason = nullptr) { check(kvbm_session_abort(get(), reason)); }
};

}  // namespace kvbm

#include <kvbm_codec.hpp>
#include <kvbm_text.hpp>

#endif  // KVBM_HPP
