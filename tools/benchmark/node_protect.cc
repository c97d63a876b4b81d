#include "benchmark/node_protect.h"

#include <sys/stat.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "base/crypto/random.h"
#include "base/memory/memory.h"
#include "benchmark/node_pair.h"
#include "benchmark/scratch.h"
#include "benchmark/socket_child.h"
#include "benchmark/statistics.h"
#include "cluster/admission/pool_key.h"
#include "terminal/progress.h"
#include "terminal/temp_directory.h"

namespace kvbm::benchmark {

namespace {

using copy::Protection;

constexpr uint64_t kGuardedSample = 64ULL << 20;
constexpr uint64_t kOpenSslPiece = 128U << 10;
constexpr std::array<Protection, 3> kModes = {Protection::off, Protection::authenticate, Protection::encrypt};

struct GuardedSize {
  const char* name;
  uint64_t bytes;
};
constexpr GuardedSize kGuardedSizes[] = {{"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}, {"16MiB", 16ULL << 20}};

Result<std::string> make_key_file(const Scratch& scratch) {
  SystemRandom random;
  if (Status ready = random.ready(); !ready.ok()) return ready;
  const auto text = cluster::pool_key_text(cluster::new_pool_key(random));
  const std::string path = scratch.path() + "/key";
  std::ofstream(path).write(text.data(), static_cast<std::streamsize>(text.size()));
  if (::chmod(path.c_str(), 0600) != 0) return Status(Code::io_error, "no key file could be made", path);
  return path;
}

// One pair of nodes, and the seconds of its loads.
struct GuardedPair {
  NodePairOptions options;
  std::unique_ptr<NodeOwner> owner;
  std::unique_ptr<NodeReader> reader;
  std::vector<double> seconds;

  Status load() {
    const Stopwatch watch;
    if (Status s = reader->load(0, options.blocks); !s.ok()) return s;
    seconds.push_back(watch.seconds());
    return reader->check(0, options.blocks);
  }
};

// Makes all processes first, while this one has no threads of nodes.
Result<std::vector<GuardedPair>> make_pairs(const GuardedSize& size, const std::string& key_file) {
  std::vector<GuardedPair> pairs(kModes.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    NodePairOptions& options = pairs[i].options;
    options.block_bytes = size.bytes;
    options.blocks = static_cast<uint32_t>(kGuardedSample / size.bytes);
    options.key_file = key_file;
    options.protect = copy::protection_name(kModes[i]);
    auto owner = NodeOwner::prepare(options);
    if (!owner.ok()) return owner.status();
    pairs[i].owner = std::move(owner).value();
  }
  for (GuardedPair& pair : pairs) {
    if (Status s = pair.owner->begin("127.0.0.1:0"); !s.ok()) return s;
    auto reader = NodeReader::open(pair.options, pair.owner->address());
    if (!reader.ok()) return reader.status();
    pair.reader = std::move(reader).value();
  }
  return pairs;
}

// Sockets, unprotected and with OpenSSL in their threads, and their seconds.
struct GuardedSockets {
  std::array<std::unique_ptr<Asker>, kModes.size()> askers;
  std::array<std::vector<double>, kModes.size()> seconds;

  Status start() {
    for (size_t i = 0; i < kModes.size(); ++i) {
      auto asker =
          kModes[i] == Protection::off ? plain_asker(kGuardedSample) : guarded_asker(kGuardedSample, kModes[i]);
      if (!asker.ok()) return asker.status();
      askers[i] = std::move(asker).value();
    }
    return {};
  }
};

Result<std::vector<Row>> rows_of(const GuardedSize& size, GuardedSockets& sockets, const std::string& key_file,
                                 MutableBytes memory, int rounds, terminal::Progress& progress) {
  auto made = make_pairs(size, key_file);
  if (!made.ok()) return made.status();
  std::vector<GuardedPair>& pairs = made.value();
  for (auto& seconds : sockets.seconds) seconds.clear();
  constexpr size_t kTurns = 2 * kModes.size();
  for (int round = -1; round < rounds; ++round) {
    for (size_t turn = 0; turn < kTurns; ++turn) {
      // Begins each round with another kind, so that none is always first.
      const size_t which = (turn + static_cast<size_t>(round + 1)) % kTurns;
      const size_t mode = which / 2;
      const Status s = which % 2 == 0 ? pairs[mode].load()
                                      : time_answer(*sockets.askers[mode], pairs[mode].options.blocks, size.bytes,
                                                    memory, sockets.seconds[mode]);
      if (!s.ok()) return s;
    }
    if (round < 0) {  // the first round looks up locations and touches memory
      for (size_t mode = 0; mode < kModes.size(); ++mode) pairs[mode].seconds.clear(), sockets.seconds[mode].clear();
    }
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kGuardedSample) / 1e9;
  const auto speed = [gigabytes](const std::vector<double>& seconds) { return gigabytes / median(seconds); };
  const double off = speed(pairs[0].seconds);
  const double plain = speed(sockets.seconds[0]);
  std::vector<Row> rows;
  for (size_t mode = 0; mode < kModes.size(); ++mode) {
    const std::string name = std::string("node.tcp.") + copy::protection_name(kModes[mode]);
    const double value = speed(pairs[mode].seconds);
    rows.push_back(more_is_better(name + "." + size.name, value, "GB/s", plain, "plain socket, unverified"));
    if (kModes[mode] == Protection::off) continue;
    rows.push_back(more_is_better(name + "_to_off." + size.name, value, "GB/s", off, "node.protect=off"));
    rows.push_back(more_is_better(name + "_to_openssl." + size.name, value, "GB/s", speed(sockets.seconds[mode]),
                                  kModes[mode] == Protection::encrypt ? "plain socket with OpenSSL's AES-256-GCM"
                                                                      : "plain socket with OpenSSL's GMAC"));
  }
  return rows;
}

// Measures OpenSSL alone, over memory that is read and not in a cache.
Result<Row> openssl_alone(Protection how, MutableBytes memory, int rounds) {
  const std::array<uint8_t, copy::FrameGuard::kKeyBytes> key{1};
  auto guard = copy::FrameGuard::make(how, key.data());
  if (!guard.ok()) return guard.status();
  std::vector<std::byte> out(kOpenSslPiece);
  std::byte tag[copy::FrameGuard::kTagBytes];
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const Stopwatch watch;
    for (uint64_t at = 0; at < memory.size(); at += kOpenSslPiece) {
      const bool good = guard.value()->begin({}, kOpenSslPiece, codec::AesGcm::Use::seal) == Code::ok &&
                        guard.value()->seal(memory.subspan(at, kOpenSslPiece), out.data()) &&
                        guard.value()->finish(tag);
      if (!good) return Status(Code::internal, "libcrypto refuses to work");
    }
    seconds.push_back(watch.seconds());
  }
  Row row;
  row.name = how == Protection::encrypt ? "node.openssl.aes_256_gcm" : "node.openssl.gmac";
  row.value = static_cast<double>(memory.size()) / 1e9 / median(seconds);
  row.unit = "GB/s";
  return row;
}

}  // namespace

Result<std::vector<Row>> bench_node_protect(const NodeProtectOptions& options) {
  const Scratch scratch(terminal::temp_directory());
  if (scratch.path().empty()) return Status(Code::io_error, "no directory for a key file", terminal::temp_directory());
  const auto key_file = make_key_file(scratch);
  if (!key_file.ok()) return key_file.status();
  GuardedSockets sockets;
  if (Status s = sockets.start(); !s.ok()) return s;
  ArenaOptions arena;
  arena.bytes = kGuardedSample;
  const auto target = Arena::map(arena);
  if (!target.ok()) return target.status();
  const MutableBytes memory(target.value()->data(), kGuardedSample);
  terminal::Progress progress("loading over protected links",
                              std::size(kGuardedSizes) * (static_cast<uint64_t>(options.rounds) + 1),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const GuardedSize& size : kGuardedSizes) {
    auto some = rows_of(size, sockets, key_file.value(), memory, options.rounds, progress);
    if (!some.ok()) return some.status();
    rows.insert(rows.end(), some.value().begin(), some.value().end());
  }
  for (const Protection how : {Protection::authenticate, Protection::encrypt}) {
    auto alone = openssl_alone(how, memory, options.rounds);
    if (!alone.ok()) return alone.status();
    rows.push_back(std::move(alone).value());
  }
  return rows;
}

}  // namespace kvbm::benchmark
