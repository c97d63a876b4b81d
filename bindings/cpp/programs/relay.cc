// Passes blocks to programs in other languages: one process stores, another fetches and compares every byte.
//   relay store|fetch --seed S --blocks N [--tier DIRECTORY] KEY=VALUE...
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <kvbm.hpp>
#include <optional>
#include <thread>

namespace {

constexpr uint32_t kTokens = 16;
constexpr uint64_t kBlockBytes = 65536, kSecond = 1000000000;

struct Order {
  bool store = false;
  uint64_t seed = 0, blocks = 0;
  std::string tier;
  std::vector<std::pair<std::string, std::string>> settings;
};

// Returns nothing if the arguments are wrong.
std::optional<Order> parse(int argc, char** argv) {
  Order out;
  if (argc < 2) return std::nullopt;
  out.store = std::strcmp(argv[1], "store") == 0;
  if (!out.store && std::strcmp(argv[1], "fetch") != 0) return std::nullopt;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (word.rfind("--", 0) == 0) {
      if (i + 1 == argc) return std::nullopt;
      const std::string value = argv[++i];
      if (word == "--seed")
        out.seed = std::stoull(value);
      else if (word == "--blocks")
        out.blocks = std::stoull(value);
      else if (word == "--tier")
        out.tier = value;
      else
        return std::nullopt;
    } else {
      if (equals == std::string::npos) return std::nullopt;
      out.settings.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
  }
  return out.blocks > 0 ? std::optional<Order>(out) : std::nullopt;
}

uint8_t byte_of(uint64_t seed, uint64_t block, uint64_t j) {
  return static_cast<uint8_t>(seed + 31 * block + 7 * j + (j >> 8));
}

kvbm::Context context_of(const Order& order) {
  std::vector<kvbm_setting_t> settings;
  for (const auto& [key, value] : order.settings) settings.push_back({key.c_str(), value.c_str()});
  return kvbm::Context(settings);
}

kvbm::Manager manager_of(const kvbm::Context& context, const Order& order) {
  auto options = kvbm::manager_options();
  kvbm_tier_t tier{};
  tier.path = order.tier.c_str();
  tier.capacity_bytes = 256u << 20;
  tier.admission = KVBM_ADMIT_ALL;
  options.block_bytes = kBlockBytes;
  if (!order.tier.empty()) options.tiers = &tier, options.n_tiers = 1;
  return kvbm::Manager(context, options);
}

kvbm::Namespace namespace_of(kvbm::Manager& manager) {
  uint8_t secret[32];
  std::memset(secret, 7, sizeof secret);
  auto options = kvbm::namespace_options();
  options.tenant = "relay";
  options.model = "relay-model";
  options.secret = secret;
  return manager.open(options);
}

kvbm::Keys keys_of(const kvbm::Namespace& ns, const Order& order) {
  std::vector<uint32_t> tokens(order.blocks * kTokens);
  for (uint64_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(order.seed * 1000003 + i);
  return ns.chain(tokens, kTokens);
}

int store(kvbm::Manager& manager, const kvbm::Namespace& ns, const Order& order) {
  const kvbm::Keys keys = keys_of(ns, order);
  kvbm::Blocks blocks = manager.allocate(ns, order.blocks);
  uint64_t i = 0;
  for (const kvbm_view_t& view : blocks.view()) {
    for (uint64_t j = 0; j < view.bytes; ++j) static_cast<uint8_t*>(view.data)[j] = byte_of(order.seed, i, j);
    ++i;
  }
  blocks.complete();
  blocks.publish(ns, keys);
  manager.flush(30 * kSecond);
  std::cout << "stored " << order.blocks << "\n";
  const std::string address = manager.node_address();
  if (!address.empty()) std::cout << "node " << address << "\n";
  std::cout << "ready" << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  return 0;
}

int fetch(kvbm::Manager& manager, const kvbm::Namespace& ns, const Order& order) {
  const kvbm::Keys keys = keys_of(ns, order);
  auto options = kvbm::lookup_options();
  options.ask_nodes_ns = 2 * kSecond;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (manager.lookup(ns, keys, &options).hits() < order.blocks && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  manager.prefetch(ns, keys);
  const kvbm::Match match = manager.lookup(ns, keys);
  uint64_t verified = 0;
  if (match) {
    const kvbm::Blocks blocks = match.blocks(0, match.hits());
    for (uint64_t i = 0; i < blocks.size(); ++i) {
      if (blocks.ids()[i] == 0) continue;  // not in the host tier
      kvbm_view_t view{};
      kvbm::check(kvbm_block_view(manager.get(), &blocks.ids()[i], 1, &view));
      uint64_t j = 0;
      while (j < view.bytes && static_cast<const uint8_t*>(view.data)[j] == byte_of(order.seed, i, j)) ++j;
      verified += j == kBlockBytes;
    }
  }
  std::cout << "verified " << verified << " of " << order.blocks << std::endl;
  return verified == order.blocks ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto order = parse(argc, argv);
  if (!order) {
    std::cerr << "relay store|fetch --seed S --blocks N [--tier DIRECTORY] KEY=VALUE...\n";
    return 2;
  }
  const kvbm::Context context = context_of(*order);
  kvbm::Manager manager = manager_of(context, *order);
  const kvbm::Namespace ns = namespace_of(manager);
  return order->store ? store(manager, ns, *order) : fetch(manager, ns, *order);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
