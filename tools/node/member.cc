#include "node/member.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "codec/record/key.h"
#include "terminal/quantity.h"

namespace kvbm::node {

namespace {

// Header of a stored file: this text, its length and the SHA-256 of its bytes. It is in the first block. That block's
// key depends on the name alone. The keys of the other blocks depend on that hash too, so blocks of two files are never
// mixed up, whatever nodes store under a name.
constexpr char kMagic[8] = {'k', 'v', 'b', 'm', 'f', 'i', 'l', '2'};
constexpr std::chrono::seconds kOthersWait{1};
// Beginning of the state of a peer that refuses this one (cluster::Mesh::NodeRow).
constexpr char kRefused[] = "refused: ";
constexpr uint64_t kFlushNs = 60'000'000'000;
constexpr uint64_t kAskNs = 5'000'000'000;  // for the locations of blocks that were stored just now
constexpr size_t kHeadBytes = sizeof kMagic + sizeof(uint64_t) + sizeof(Member::Digest);

// Converts a `status` other than KVBM_OK to a Status. Partial success of a batch is no error of the call, but it is one
// here, because the file would be incomplete.
Status failed(const char* what, kvbm_status_t status, const kvbm_error_t* error = nullptr) {
  std::string detail = error != nullptr && error->message[0] != '\0' ? error->message : kvbm_status_text(status);
  return {status > 0 ? Code::no_room : static_cast<Code>(status), what, std::move(detail)};
}

// Formats bytes in the words of the options: 1048576 is "1 MiB".
std::string size_text(uint64_t bytes) { return terminal::format_binary_size(static_cast<double>(bytes)); }

// Returns whether the row is this member's own, not another node's.
bool is_here(const kvbm_location_t& row) {
  constexpr uint8_t kHere[sizeof row.node] = {};
  return std::memcmp(row.node, kHere, sizeof kHere) == 0;
}

}  // namespace

void Member::log_line(void* self, int32_t level, const char* component, const char* text) {
  auto& member = *static_cast<Member*>(self);
  if (member.log_) std::fprintf(stderr, "kvbm: %s: %s\n", component, text);
  const std::lock_guard lock(member.warning_mutex_);
  if (level <= KVBM_LOG_WARNING) member.warning_ = text;
}

std::string Member::last_warning() const {
  const std::lock_guard lock(warning_mutex_);
  return warning_;
}

Result<std::unique_ptr<Member>> Member::open(const MemberOptions& options) {
  auto made = std::unique_ptr<Member>(new Member());
  const std::string staging = std::to_string(std::max<uint64_t>(options.host_bytes / 2, 64ULL << 20));
  const std::string replicas = std::to_string(options.replicas);
  std::vector<kvbm_setting_t> settings = {{"node.listen", options.listen.c_str()},
                                          {"node.peers", options.peers.c_str()},
                                          {"node.key_file", options.key_file.c_str()},
                                          {"node.name", options.name.c_str()},
                                          {"node.pool", options.pool.c_str()},
                                          {"node.staging", staging.c_str()},
                                          {"node.peers_file", options.peers_file.c_str()},
                                          {"node.peers_file_join", options.join ? "true" : "false"},
                                          {"node.replicas", replicas.c_str()},
                                          {"node.transport", options.transport.c_str()},
                                          {"node.ucx_devices", options.ucx_devices.c_str()},
                                          {"share", options.share.empty() ? "off" : "on"},
                                          {"share_directory", options.disk_bytes == 0 ? options.share.c_str() : ""},
                                          {"node.local", options.local.c_str()},
                                          {"node.codec", options.codec.c_str()},
                                          {"seal.key_file", options.seal_key_file.c_str()}};
  if (!options.share_ask.empty()) settings.push_back({"share_ask", options.share_ask.c_str()});
  if (!options.admission.empty()) settings.push_back({"node.admission", options.admission.c_str()});
  if (!options.protect.empty()) settings.push_back({"node.protect", options.protect.c_str()});
  if (options.trusted_network) settings.push_back({"node.trusted_network", "on"});
  kvbm_context_options_t context;
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings.data();
  context.n_settings = settings.size();
  made->log_ = options.log;
  context.log = &Member::log_line;
  context.log_user = made.get();
  context.log_level = options.log ? KVBM_LOG_INFO : KVBM_LOG_WARNING;
  kvbm_error_t error{};
  kvbm_status_t status = kvbm_context_create(&context, &made->context_, &error);
  if (status != KVBM_OK) return failed("the library could not be started", status, &error);
  kvbm_tier_t disk{};
  disk.path = options.share.empty() ? options.disk_path.c_str() : options.share.c_str();
  disk.capacity_bytes = options.disk_bytes;
  disk.codec = options.disk_codec.c_str();
  kvbm_manager_options_t manager;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.block_bytes = options.block_bytes;
  manager.host_capacity_bytes = options.host_bytes;
  manager.tiers = &disk;
  manager.n_tiers = options.disk_bytes == 0 ? 0 : 1;
  status = kvbm_manager_create(made->context_, &manager, &made->manager_, &error);
  if (status != KVBM_OK) return failed("the node could not be started", status, &error);
  kvbm_namespace_options_t ns;
  kvbm_namespace_options_init(&ns, sizeof ns);
  ns.model = "files";
  ns.geometry = options.geometry;
  status = kvbm_namespace_open(made->manager_, &ns, &made->ns_, &error);
  if (status != KVBM_OK) return failed("the namespace could not be opened", status, &error);
  made->options_ = options;
  made->block_bytes_ = options.block_bytes;
  made->fetched_at_once_ = std::max<uint64_t>(options.host_bytes / options.block_bytes / 4, 1);
  made->shared_ = !options.share.empty();
  made->on_disk_ = options.disk_bytes != 0;
  made->peers_tier_ = static_cast<uint32_t>(manager.n_tiers) + 1 + (made->shared_ ? 1 : 0);
  return made;
}

Member::~Member() {
  kvbm_namespace_release(ns_);
  kvbm_manager_release(manager_);
  kvbm_context_release(context_);
}

std::string Member::address() const {
  char text[256] = {};
  size_t needed = 0;
  (void)kvbm_manager_node_address(manager_, text, sizeof text, &needed);
  return text;
}

std::vector<kvbm_node_row_t> Member::nodes() const {
  std::vector<kvbm_node_row_t> rows;
  for (size_t n = 16; rows.size() != n;) {
    rows.resize(n);
    if (kvbm_manager_nodes(manager_, rows.data(), rows.size(), &n) != KVBM_OK) n = 0;
    if (n < rows.size()) rows.resize(n);
  }
  return rows;
}

Status Member::wait_for_peers(uint64_t timeout_ns) const {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::nanoseconds(timeout_ns);
  auto settled = until;  // once one is ready, the others have until then
  std::vector<kvbm_node_row_t> rows;
  bool hopeless = false;
  do {
    rows = nodes();
    size_t ready = 0;
    size_t refused = 0;
    size_t failed = 0;
    size_t undecided = 0;
    for (const kvbm_node_row_t& row : rows) {
      const bool connected = std::strcmp(row.state, "ready") == 0;
      // The capacity is known after the node has reported its tiers.
      if (connected && row.capacity_bytes != 0) ++ready;
      if (connected && row.path[0] == '\0') ++undecided;
      if (!connected && std::strncmp(row.state, "connecting", std::strlen("connecting")) != 0) ++failed;
      if (std::strncmp(row.state, kRefused, std::strlen(kRefused)) == 0) ++refused;
    }
    hopeless = refused != 0 && refused == rows.size();
    if (hopeless) break;
    if (ready != 0) settled = std::min(settled, Clock::now() + kOthersWait);
    if (ready != 0 && ((ready + failed == rows.size() && undecided == 0) || Clock::now() >= settled)) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } while (Clock::now() < until);
  std::string why;
  for (const kvbm_node_row_t& row : rows) {
    why.append(why.empty() ? "" : "; ").append(row.address).append(": ").append(row.state);
  }
  return {Code::owner_gone, hopeless ? "no node lets this one in" : "no node answers", why};
}

kvbm_manager_stats_t Member::stats() const {
  kvbm_manager_stats_t out{};
  out.struct_size = sizeof out;
  (void)kvbm_manager_stats(manager_, &out);
  return out;
}

std::string Member::metrics() const {
  std::string text;
  for (size_t needed = 65536; text.size() < needed;) {  // the needed size counts a final zero byte
    text.resize(needed);
    if (kvbm_manager_metrics(manager_, text.data(), text.size(), &needed) != KVBM_OK && needed <= text.size())
      return {};
  }
  text.resize(std::strlen(text.c_str()));
  return text;
}

uint64_t Member::metric(const std::string& name) const {
  const std::string text = "\n" + metrics();
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 1 + name.size(), nullptr, 10);
}

std::string Member::share_role() const {
  kvbm_share_t share{};
  share.struct_size = sizeof share;
  (void)kvbm_manager_share(manager_, &share);
  if (share.role == KVBM_SHARE_OWNER) return "the owner";
  if (share.role == KVBM_SHARE_CLIENT) return "a client of process " + std::to_string(share.owner_pid);
  return "without an owner";
}

// Derives the first key from the name's bytes. The keys of the other blocks are chained from it and the hash.
Result<std::vector<kvbm_key_t>> Member::keys_of(const std::string& name, size_t n, const Digest& digest) const {
  std::vector<uint32_t> tokens;
  for (const char c : name) tokens.push_back(static_cast<unsigned char>(c));
  std::vector<kvbm_key_t> keys(n);
  size_t made = 0;
  kvbm_status_t status = kvbm_key_chain(ns_, nullptr, tokens.data(), tokens.size(),
                                        static_cast<uint32_t>(tokens.size()), nullptr, keys.data(), 1, &made);
  if (status != KVBM_OK || made != 1) return failed("no key can be made of the name", status);
  if (n == 1) return keys;
  const std::vector<uint32_t> of_bytes(digest.begin(), digest.end());
  kvbm_key_t root{};
  status = kvbm_key_chain(ns_, keys.data(), of_bytes.data(), of_bytes.size(), static_cast<uint32_t>(of_bytes.size()),
                          nullptr, &root, 1, &made);
  std::vector<uint32_t> numbers(n - 1);
  std::iota(numbers.begin(), numbers.end(), 1U);
  if (status == KVBM_OK) {
    status = kvbm_key_chain(ns_, &root, numbers.data(), n - 1, 1, nullptr, keys.data() + 1, n - 1, &made);
  }
  if (status != KVBM_OK || made != n - 1) return failed("no keys can be made of the name", status);
  return keys;
}

size_t Member::blocks_of(uint64_t length) const noexcept {
  return (kHeadBytes + length + block_bytes_ - 1) / block_bytes_;
}

// Refuses another file under a name that is in use. A stored file remains until it is evicted, because it cannot be
// removed from all nodes.
Status Member::check_name(const std::string& name, uint64_t length, const Digest& digest) {
  const auto there = head_of(name, kAskNs);
  if (!there.ok()) return there.status().code() == Code::miss ? Status() : there.status();
  if (there.value().length == length && there.value().digest == digest) return {};
  return {Code::exists, "another file is stored under that name",
          name + ", " + terminal::format_size(static_cast<double>(there.value().length))};
}

Result<Member::Kept> Member::put(const std::string& name, const std::string& bytes, bool durable) {
  const uint64_t total = kHeadBytes + bytes.size();
  const size_t n = blocks_of(bytes.size());
  if (Status s = shared_ ? Status() : check_room(name, total); !s.ok()) return s;
  const Digest digest = codec::sha256(std::as_bytes(std::span(bytes)));
  if (Status s = check_name(name, bytes.size(), digest); !s.ok()) return s;
  auto keys = keys_of(name, n, digest);
  if (!keys.ok()) return keys.status();
  std::string all(kMagic, sizeof kMagic);
  const uint64_t length = bytes.size();
  all.append(reinterpret_cast<const char*>(&length), sizeof length);
  all.append(reinterpret_cast<const char*>(digest.data()), digest.size()).append(bytes);
  kvbm_status_t status = KVBM_OK;
  for (size_t first = 0; first < n && status >= 0;) {
    const kvbm_status_t before = status;
    status = put_some(keys.value(), all, first);
    if (status >= 0) status = std::max(before, status);  // a partial result remains partial
  }
  if (status >= 0 && shared_) {
    status = durable ? kvbm_manager_flush_durable(manager_, kFlushNs) : kvbm_manager_flush(manager_, kFlushNs);
  }
  if (const std::string why = last_warning(); status == KVBM_ERR_MISMATCH && !why.empty()) {
    return Status(Code::mismatch, "the pool did not take all of it", why);
  }
  // The blocks before it are stored.
  if (status < 0 && status != KVBM_ERR_NO_ROOM) {
    return failed(shared_ ? "the shared tier set did not take all of it" : "the pool did not take all of it", status);
  }
  if (!shared_) return ask_kept(keys.value());
  if (share_role() == "the owner") return Kept{on_disk_ ? on_disk(keys.value()) : 0, n};
  // The flushes asked the owner for each block. It may have evicted the first ones for the last ones since, and what
  // this member learned of them then is out of date. A member that has learned nothing asks the owner again.
  const size_t not_kept = status == KVBM_OK ? 0 : std::min<uint64_t>(n, metric("kvbm_share_not_kept_total"));
  const auto other = open(options_);
  const auto there = other.ok() ? other.value()->find(keys.value(), false, kAskNs, nullptr) : other.status();
  if (!there.ok()) return there.status();
  return Kept{std::min(n - not_kept, there.value()), n};
}

// Stores the blocks from `first` on that fit this member's host, and moves them to their destination. They may then
// leave the host for the next ones.
kvbm_status_t Member::put_some(const std::vector<kvbm_key_t>& keys, const std::string& all, size_t& first) {
  const size_t n = keys.size();
  size_t some = n - first;
  std::vector<kvbm_block_t> blocks(some);
  kvbm_status_t status = KVBM_ERR_NO_ROOM;
  for (;; some = (some + 1) / 2) {
    status = kvbm_manager_allocate(manager_, ns_, some, blocks.data(), nullptr, 0, nullptr);
    if (status != KVBM_ERR_NO_ROOM || some == 1) break;
  }
  if (status != KVBM_OK) return status;
  std::vector<kvbm_view_t> views(some);
  std::vector<uint64_t> sizes(some, block_bytes_);
  (void)kvbm_block_view(manager_, blocks.data(), some, views.data());
  for (size_t i = 0; i < some; ++i) {
    const uint64_t at = (first + i) * block_bytes_;
    sizes[i] = std::min<uint64_t>(block_bytes_, all.size() - at);
    std::memcpy(views[i].data, all.data() + at, sizes[i]);
  }
  kvbm_register_options_t options;
  kvbm_register_options_init(&options, sizeof options);
  if (first != 0) options.parent = &keys[first - 1];
  status = kvbm_manager_complete(manager_, blocks.data(), some, sizes.data());
  if (status == KVBM_OK) {
    status = kvbm_manager_register(manager_, ns_, blocks.data(), keys.data() + first, some, &options);
  }
  if (status == KVBM_OK && !shared_) {
    // The first block is as large as any. If it is refused for its size, nothing of the file remains anywhere.
    const size_t alone = first == 0 ? 1 : 0;
    if (alone != 0) status = kvbm_manager_offload(manager_, ns_, nullptr, keys.data(), 1, peers_tier_, nullptr, 0);
    if (status >= 0 && some > alone) {
      status = kvbm_manager_offload(manager_, ns_, nullptr, keys.data() + first + alone, some - alone, peers_tier_,
                                    nullptr, 0);
    }
  }
  kvbm_block_release(manager_, blocks.data(), some);
  if (status == KVBM_OK && shared_ && first + some < n) status = kvbm_manager_flush(manager_, kFlushNs);
  first += some;
  return status;
}

Result<size_t> Member::find(const std::vector<kvbm_key_t>& keys, bool fetch, uint64_t timeout_ns, std::string* bytes) {
  kvbm_lookup_options_t options;
  kvbm_lookup_options_init(&options, sizeof options);
  options.ask_nodes_ns = timeout_ns;
  kvbm_match_t* match = nullptr;
  size_t hits = 0;
  kvbm_status_t status = kvbm_manager_lookup(manager_, ns_, keys.data(), keys.size(), &options, &match, &hits);
  kvbm_match_release(match);
  if (status != KVBM_OK) return failed("the pool could not be asked", status);
  if (!fetch || hits == 0) return hits;
  const uint64_t damage = damaged();
  // Fetches a part of the host's size at a time.
  for (size_t first = 0; first < hits;) {
    const auto got = fetch_some(std::span(keys).subspan(first, std::min(hits - first, fetched_at_once_)), bytes);
    if (!got.ok()) return got.status();
    first += got.value();
    if (got.value() != 0) continue;
    if (damaged() == damage) return first;
    return Status(Code::damaged, "what a node sent was changed on its way, and was not taken",
                  std::to_string(hits - first) + " of " + std::to_string(hits) + " blocks are missing");
  }
  return hits;
}

// Fetches blocks. Returns how many leading ones arrived.
Result<size_t> Member::fetch_some(std::span<const kvbm_key_t> keys, std::string* bytes) {
  kvbm_status_t status = kvbm_manager_prefetch(manager_, ns_, nullptr, keys.data(), keys.size(), nullptr, 0);
  if (status != KVBM_OK) return failed("blocks could not be fetched", status);
  kvbm_lookup_options_t options;
  kvbm_lookup_options_init(&options, sizeof options);
  options.host_only = 1;
  kvbm_match_t* match = nullptr;
  size_t hits = 0;
  status = kvbm_manager_lookup(manager_, ns_, keys.data(), keys.size(), &options, &match, &hits);
  if (status != KVBM_OK) return failed("fetched blocks were not found", status);
  std::vector<kvbm_block_t> blocks(hits);
  std::vector<kvbm_view_t> views(hits);
  if (hits != 0) status = kvbm_match_blocks(match, 0, 0, hits, blocks.data());
  if (status == KVBM_OK) status = kvbm_block_view(manager_, blocks.data(), hits, views.data());
  for (size_t i = 0; i < hits && status == KVBM_OK; ++i)
    bytes->append(static_cast<const char*>(views[i].data), views[i].bytes);
  kvbm_block_release(manager_, blocks.data(), hits);
  kvbm_match_release(match);
  if (status != KVBM_OK) return failed("fetched blocks could not be read", status);
  return hits;
}

// Returns how much of the data from other nodes was wrong.
uint64_t Member::damaged() const { return metric("kvbm_node_violations_total") + metric("kvbm_node_damaged_total"); }

// Looks up each key separately, on other nodes, not on this member.
Result<std::vector<kvbm_location_t>> Member::places(const std::vector<kvbm_key_t>& keys, uint64_t timeout_ns) const {
  const std::vector<size_t> one_each(keys.size(), 1);
  kvbm_locate_options_t options;
  kvbm_locate_options_init(&options, sizeof options);
  options.ask_nodes_ns = timeout_ns;
  options.request_keys = one_each.data();
  options.n_requests = one_each.size();
  std::vector<kvbm_location_t> rows;
  size_t found = keys.size();
  do {
    rows.resize(found);
    const kvbm_status_t status =
        kvbm_manager_locate(manager_, ns_, keys.data(), keys.size(), &options, rows.data(), rows.size(), &found);
    if (status < 0) return failed("the pool could not be asked", status);
  } while (found > rows.size());
  rows.resize(found);
  std::erase_if(rows, [](const kvbm_location_t& row) { return is_here(row); });
  return rows;
}

std::optional<kvbm_location_t> Member::where(const std::vector<kvbm_key_t>& keys, uint64_t timeout_ns) const {
  const auto rows = places({keys.front()}, timeout_ns);
  if (!rows.ok() || rows.value().empty()) return std::nullopt;
  return rows.value().front();
}

Status Member::check_room(const std::string& name, uint64_t bytes) const {
  uint64_t room = 0;
  std::string whose;
  for (const kvbm_node_row_t& row : nodes()) {
    if (std::strcmp(row.state, "ready") != 0) continue;
    room += row.capacity_bytes;
    whose.append(whose.empty() ? "" : ", ").append(row.address).append(" has ").append(size_text(row.capacity_bytes));
  }
  if (bytes <= room) return {};
  return {Code::no_room, "the pool is smaller than the file, and nothing was stored",
          name + " takes " + size_text(bytes) + ", " + whose + ": raise --host of a node, or name more nodes"};
}

// Counts blocks on the disk only, because the host of an owner ends with it, as soon as this call is over.
size_t Member::on_disk(const std::vector<kvbm_key_t>& keys) const {
  std::set<std::string> there;
  const auto text = [](const kvbm_key_t& key) {
    return std::string(reinterpret_cast<const char*>(key.bytes), sizeof key.bytes);
  };
  std::vector<kvbm_scan_row_t> rows(1024);
  uint64_t cursor = 0;
  do {
    size_t n = 0;
    if (kvbm_manager_scan(manager_, &cursor, rows.data(), rows.size(), &n) != KVBM_OK) break;
    for (size_t i = 0; i < n; ++i) {
      if (rows[i].tier == 1) there.insert(text(rows[i].key));
    }
  } while (cursor != 0);
  return static_cast<size_t>(
      std::count_if(keys.begin(), keys.end(), [&](const kvbm_key_t& key) { return there.count(text(key)) != 0; }));
}

// Asks the nodes again, because a node that takes the last blocks may have evicted the first ones for them.
Result<Member::Kept> Member::ask_kept(const std::vector<kvbm_key_t>& keys) const {
  const auto rows = places(keys, kAskNs);
  if (!rows.ok()) return rows.status();
  std::vector<bool> kept(keys.size());
  for (const kvbm_location_t& row : rows.value()) kept[row.request] = true;
  return Kept{static_cast<size_t>(std::count(kept.begin(), kept.end(), true)), keys.size()};
}

Status Member::other_blocks(const std::string& name, uint64_t bytes, const std::optional<kvbm_location_t>& at) const {
  std::string whose;
  for (const kvbm_node_row_t& row : nodes()) {
    if (at.has_value() && std::memcmp(row.node, at->node, sizeof row.node) == 0)
      whose = " at " + std::string(row.address);
  }
  return {Code::mismatch, "it was stored in blocks of another size",
          name + whose + " is in blocks of " + std::to_string(bytes) + " bytes, this member's are of " +
              std::to_string(block_bytes_) + ": give --block-bytes " + std::to_string(bytes)};
}

// Returns miss or mismatch. A block that is larger than this member's cannot be fetched from any node.
Status Member::nobody_has(const std::string& name, uint64_t timeout_ns) const {
  const auto first = keys_of(name, 1, {});
  const auto at = first.ok() ? where(first.value(), timeout_ns) : std::nullopt;
  if (at.has_value() && at->bytes > block_bytes_) return other_blocks(name, at->bytes, at);
  return {Code::miss, "no node has it", name};
}

Result<Member::Head> Member::head_of(const std::string& name, uint64_t timeout_ns) {
  const auto first = keys_of(name, 1, {});
  if (!first.ok()) return first.status();
  Head head;
  const auto hits = find(first.value(), true, timeout_ns, &head.bytes);
  if (!hits.ok()) return hits.status();
  if (head.bytes.size() < kHeadBytes || std::memcmp(head.bytes.data(), kMagic, sizeof kMagic) != 0) {
    return nobody_has(name, timeout_ns);
  }
  std::memcpy(&head.length, head.bytes.data() + sizeof kMagic, sizeof head.length);
  std::memcpy(head.digest.data(), head.bytes.data() + sizeof kMagic + sizeof head.length, head.digest.size());
  if (head.bytes.size() != std::min(block_bytes_, kHeadBytes + head.length)) {
    return other_blocks(name, head.bytes.size(), where(first.value(), timeout_ns));
  }
  return head;
}

Result<std::string> Member::get(const std::string& name, uint64_t timeout_ns) {
  auto head = head_of(name, timeout_ns);
  if (!head.ok()) return head.status();
  const uint64_t length = head.value().length;
  const Digest digest = head.value().digest;
  std::string bytes = std::move(head.value().bytes);
  const uint64_t n = blocks_of(length);
  const uint64_t batch = std::max<uint64_t>(1, stats().tiers[0].capacity_bytes / block_bytes_ / 4);
  auto keys = keys_of(name, n, digest);
  if (!keys.ok()) return keys.status();
  // Rounds that fit this member's host memory.
  for (uint64_t at = 1; at < n; at += batch) {
    const std::vector<kvbm_key_t> some(keys.value().begin() + static_cast<ptrdiff_t>(at),
                                       keys.value().begin() + static_cast<ptrdiff_t>(std::min(n, at + batch)));
    const auto hits = find(some, true, timeout_ns, &bytes);
    if (!hits.ok()) return hits.status();
    if (hits.value() != some.size()) return Status(Code::miss, "the pool has lost a part of it", name);
  }
  if (bytes.size() != kHeadBytes + length) return Status(Code::damaged, "it has another length than it says", name);
  bytes.erase(0, kHeadBytes);
  if (codec::sha256(std::as_bytes(std::span(bytes))) != digest) {
    return Status(Code::damaged, "its bytes are not those that were stored", name);
  }
  return bytes;
}

Result<Member::Extent> Member::exists(const std::string& name, uint64_t timeout_ns) {
  const auto head = head_of(name, timeout_ns);
  if (!head.ok()) return head.status().code() == Code::miss ? Result<Extent>(Extent::none) : head.status();
  const auto keys = keys_of(name, blocks_of(head.value().length), head.value().digest);
  if (!keys.ok()) return keys.status();
  const auto hits = find(keys.value(), false, timeout_ns, nullptr);
  if (!hits.ok()) return hits.status();
  return hits.value() == keys.value().size() ? Extent::all : Extent::part;
}

Result<std::vector<kvbm_location_t>> Member::locate(const std::string& name, uint64_t timeout_ns) {
  std::vector<kvbm_location_t> rows;
  const auto head = head_of(name, timeout_ns);
  if (!head.ok())
    return head.status().code() == Code::miss ? Result<std::vector<kvbm_location_t>>(rows) : head.status();
  const auto keys = keys_of(name, blocks_of(head.value().length), head.value().digest);
  if (!keys.ok()) return keys.status();
  kvbm_locate_options_t options;
  kvbm_locate_options_init(&options, sizeof options);
  options.ask_nodes_ns = timeout_ns;
  size_t found = 1024;
  do {
    rows.resize(found);
    const kvbm_status_t status = kvbm_manager_locate(manager_, ns_, keys.value().data(), keys.value().size(), &options,
                                                     rows.data(), rows.size(), &found);
    if (status < 0) return failed("the pool could not be asked", status);
  } while (found > rows.size());
  rows.resize(found);
  // The first block was brought here only to be read, so this member does not count as a location.
  if (!shared_) std::erase_if(rows, [](const kvbm_location_t& row) { return is_here(row); });
  return rows;
}

}  // namespace kvbm::node
