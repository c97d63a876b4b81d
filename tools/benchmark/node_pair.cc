#include "benchmark/node_pair.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/crypto/random.h"
#include "benchmark/store.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kPairWaitNs = 10'000'000'000;
constexpr int kTries = 1000;
constexpr useconds_t kRetryUs = 5000;

uint32_t tokens_of(const NodePairOptions& size) {
  return !size.numbers.empty() ? static_cast<uint32_t>(size.block_bytes / NodePairOptions::kNumbersBytes) : 1;
}

Result<std::vector<kvbm_key_t>> keys_of(const kvbm_namespace_t* ns, const NodePairOptions& size) {
  const uint32_t n = size.blocks;
  std::vector<uint32_t> tokens(size_t{n} * tokens_of(size));
  std::iota(tokens.begin(), tokens.end(), 0U);
  std::vector<kvbm_key_t> keys(n);
  size_t made = 0;
  const kvbm_status_t status =
      kvbm_key_chain(ns, nullptr, tokens.data(), tokens.size(), tokens_of(size), nullptr, keys.data(), n, &made);
  if (status != KVBM_OK) return failed("keys could not be made", status);
  return keys;
}

}  // namespace

std::vector<std::byte> made_up_numbers(uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  SeededRandom random(7);
  for (size_t i = 0; i + 2 <= out.size(); i += 2) {
    const uint64_t bits = random.next();
    const auto noise =
        static_cast<int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48)) - 0x1FFFE;
    const float value = static_cast<float>(noise) * (1.0F + static_cast<float>(i / 2 % 128 % 7)) / 65536.0F;
    uint32_t as_bits = 0;
    std::memcpy(&as_bits, &value, sizeof as_bits);
    const auto half = static_cast<uint16_t>(as_bits >> 16);
    std::memcpy(out.data() + i, &half, sizeof half);
  }
  return out;
}

namespace {

// Null if blocks are opaque.
struct Geometry {
  explicit Geometry(const NodePairOptions& size) {
    if (size.numbers.empty()) return;
    const kvbm_component_t component{KVBM_COMPONENT_ATTENTION, KVBM_ELEMENT_BF16, 1, 8, 128, 0, 0, {0, 0}};
    (void)kvbm_geometry_create(tokens_of(size), 1, &component, 1, &of, nullptr);
  }
  ~Geometry() { kvbm_geometry_release(of); }
  Geometry(const Geometry&) = delete;
  Geometry& operator=(const Geometry&) = delete;
  kvbm_geometry_t* of = nullptr;
};

// Runs in the child: makes blocks in host memory, writes the address, and then waits.
Status serve(const NodePairOptions& size, const char* listen, int out) {
  node::MemberOptions options;
  options.listen = size.share.empty() ? listen : "";
  options.share = size.share;
  options.host_bytes = size.host_bytes;
  options.block_bytes = size.block_bytes;
  options.local = size.local;
  options.codec = size.codec;
  options.key_file = size.key_file;
  options.protect = size.protect;
  const Geometry geometry(size);
  options.geometry = geometry.of;
  const std::vector<std::byte>& numbers = size.numbers;
  auto member = node::Member::open(options);
  // A client that tries to connect may hold the port of a killed node for a moment.
  for (int tries = 0; !member.ok() && member.status().code() == Code::in_use && tries < kTries; ++tries) {
    ::usleep(kRetryUs);
    member = node::Member::open(options);
  }
  if (!member.ok()) return member.status();
  kvbm_manager_t* manager = member.value()->manager();
  kvbm_namespace_t* ns = member.value()->ns();
  auto keys = keys_of(ns, size);
  if (!keys.ok()) return keys.status();
  std::vector<kvbm_block_t> blocks(size.blocks);
  std::vector<kvbm_view_t> views(size.blocks);
  kvbm_status_t status = kvbm_manager_allocate(manager, ns, size.blocks, blocks.data(), nullptr, 0, nullptr);
  if (status == KVBM_OK) status = kvbm_block_view(manager, blocks.data(), size.blocks, views.data());
  for (size_t i = 0; i < views.size() && status == KVBM_OK; ++i) {
    std::memset(views[i].data, static_cast<int>(i), size.block_bytes);
    if (numbers.empty()) continue;
    std::memcpy(views[i].data, numbers.data(), numbers.size());
    std::memcpy(views[i].data, &i, sizeof i);
  }
  if (status == KVBM_OK) status = kvbm_manager_complete(manager, blocks.data(), size.blocks, nullptr);
  if (status == KVBM_OK)
    status = kvbm_manager_register(manager, ns, blocks.data(), keys.value().data(), size.blocks, nullptr);
  if (status != KVBM_OK) return failed("blocks could not be made", status);
  const std::string line = std::to_string(::getpid()) + " " + member.value()->address() + "\n";
  if (::write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return {Code::io_error, "the pipe is gone"};
  for (;;) ::pause();
}

}  // namespace

Result<std::unique_ptr<NodeOwner>> NodeOwner::prepare(const NodePairOptions& size) {
  int said[2];
  int to_child[2];
  if (::pipe2(said, O_CLOEXEC) != 0) return Status(Code::io_error, "no pipe could be made");
  auto made = std::unique_ptr<NodeOwner>(new NodeOwner());
  made->said_ = Fd(said[0]);
  const Fd says(said[1]);
  if (::pipe2(to_child, O_CLOEXEC) != 0) return Status(Code::io_error, "no pipe could be made");
  made->to_child_ = Fd(to_child[1]);
  const Fd hears(to_child[0]);
  auto child = Child::start([&] {
    char listen[128] = {};
    if (::read(hears.get(), listen, sizeof listen - 1) > 0) (void)serve(size, listen, says.get()).ok();
  });
  if (!child.ok()) return child.status();
  made->child_ = std::move(child).value();
  return made;
}

Status NodeOwner::begin(const std::string& listen) {
  if (::write(to_child_.get(), listen.data(), listen.size()) != static_cast<ssize_t>(listen.size())) {
    return {Code::io_error, "the other node is gone"};
  }
  char text[128] = {};
  const ssize_t n = ::read(said_.get(), text, sizeof text - 1);
  if (n <= 1) return {Code::io_error, "the other node did not start"};
  text[n - 1] = '\0';
  char* address = nullptr;
  pid_ = static_cast<pid_t>(std::strtol(text, &address, 10));
  address_ = address + 1;
  return {};
}

Result<std::unique_ptr<NodeOwner>> NodeOwner::start(const NodePairOptions& size) {
  auto made = prepare(size);
  if (!made.ok()) return made;
  if (Status s = made.value()->begin("127.0.0.1:0"); !s.ok()) return s;
  return made;
}

Result<std::unique_ptr<NodeReader>> NodeReader::open(const NodePairOptions& size, const std::string& address) {
  auto made = std::unique_ptr<NodeReader>(new NodeReader());
  made->block_bytes_ = size.block_bytes;
  node::MemberOptions options;
  options.peers = address;
  options.share = size.share;
  options.host_bytes = size.reader_host_bytes;
  options.block_bytes = size.block_bytes;
  options.local = size.local;
  options.codec = size.codec;
  options.key_file = size.key_file;
  options.protect = size.protect;
  const Geometry geometry(size);
  options.geometry = geometry.of;
  made->numbers_ = size.numbers;
  auto member = node::Member::open(options);
  if (!member.ok()) return member.status();
  made->member_ = std::move(member).value();
  if (size.share.empty()) {
    if (Status s = made->member_->wait_for_peers(kPairWaitNs); !s.ok()) return s;
  }
  auto keys = keys_of(made->member_->ns(), size);
  if (!keys.ok()) return keys.status();
  made->keys_ = std::move(keys).value();
  made->ids_.resize(size.blocks);
  made->item_status_.resize(size.blocks);
  std::iota(made->ids_.begin(), made->ids_.end(), 0U);
  ArenaOptions arena;
  arena.bytes = size.blocks * size.block_bytes;
  arena.touch_threads = 2;
  auto engine = Arena::map(arena);
  if (!engine.ok()) return engine.status();
  made->engine_ = std::move(engine).value();
  kvbm_tensor_t tensor{made->engine_->data(), arena.bytes, 0, size.block_bytes};
  kvbm_cache_part_t part{};
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_t cache;
  kvbm_cache_options_init(&cache, sizeof cache);
  cache.n_blocks = size.blocks;
  cache.parts = &part;
  cache.n_parts = 1;
  kvbm_error_t error{};
  const kvbm_status_t status =
      kvbm_cache_attach(made->member_->manager(), made->member_->ns(), &cache, &made->cache_, &error);
  if (status != KVBM_OK) return failed("the engine's cache could not be attached", status, &error);
  return made;
}

Status NodeReader::load(size_t first, size_t n) {
  Status s = find(first, n);
  return s.ok() ? fetch() : s;
}

Status NodeReader::find(size_t first, size_t n) {
  kvbm_match_release(std::exchange(match_, nullptr));
  first_ = first;
  n_ = n;
  kvbm_lookup_options_t lookup;
  kvbm_lookup_options_init(&lookup, sizeof lookup);
  lookup.ask_nodes_ns = kPairWaitNs;
  size_t hits = 0;
  const kvbm_status_t status = kvbm_cache_lookup(cache_, keys_.data() + first, n, &lookup, &match_, &hits);
  if (hits == n && status == KVBM_OK) return {};
  return failed("blocks of the other node were not found", hits != n ? KVBM_ERR_MISS : status);
}

Status NodeReader::fetch() {
  kvbm_load_options_t options;
  kvbm_load_options_init(&options, sizeof options);
  options.keep_below = 1;
  options.item_status = item_status_.data();
  const kvbm_status_t status = kvbm_cache_load(cache_, match_, ids_.data() + first_, n_, &options, nullptr, 0);
  if (status == KVBM_OK) return {};
  for (size_t i = 0; i < n_; ++i) {
    if (item_status_[i] != KVBM_OK) return failed("blocks of the other node did not come", item_status_[i]);
  }
  return failed("blocks of the other node did not come", status);
}

Status NodeReader::check(size_t first, size_t n) const {
  for (size_t i = first; i < first + n; ++i) {
    const auto byte = static_cast<std::byte>(i);
    const std::byte* block = engine_->data() + i * block_bytes_;
    if (!numbers_.empty()) {
      const bool same = std::memcmp(block, &i, sizeof i) == 0 &&
                        std::memcmp(block + sizeof i, numbers_.data() + sizeof i, block_bytes_ - sizeof i) == 0;
      if (!same) return {Code::damaged, "a block has other bytes than were stored"};
      continue;
    }
    if (block[0] != byte || block[block_bytes_ - 1] != byte) {
      return {Code::damaged, "a block has other bytes than were stored"};
    }
  }
  return {};
}

}  // namespace kvbm::benchmark
