// Runs a fuzz target without libFuzzer: every file of its corpus, then mutations of them from a seed.
//   fuzz TARGET CORPUS_DIRECTORY
// KVBMTEST_FUZZ_MUTATIONS says how many mutations of each file (default 2,000), KVBMTEST_FUZZ_SEED where they begin.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "../support/counts.h"
#include "target.h"

namespace {

using Bytes = std::vector<uint8_t>;

uint64_t number(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

void run(kvbm::test::FuzzFunction target, const Bytes& bytes) {
  // A copy of exactly this size, so that a sanitizer sees a read past its end.
  const Bytes exact(bytes);
  target(exact.data(), exact.size());
}

void mutate(Bytes& bytes, std::mt19937_64& random) {
  static constexpr uint8_t kEdges[] = {0, 1, 0x7F, 0x80, 0xFF};
  for (uint64_t n = 1 + random() % 4; n != 0; --n) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 6) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1U << random() % 8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = kEdges[random() % std::size(kEdges)];
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), random() % 32, static_cast<uint8_t>(random()));
        break;
      case 4:
        for (size_t i = at; i < bytes.size() && i < at + 4; ++i) bytes[i] = 0xFF;
        break;
      default:
        if (!bytes.empty()) std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Makes the allocator reuse freed memory for the next input instead of returning it to the system
  // (support/main.cc).
  (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
  (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const auto& targets = kvbm::test::fuzz_targets();
  const auto found = argc == 3 ? targets.find(argv[1]) : targets.end();
  if (found == targets.end()) {
    std::fprintf(stderr, "usage: fuzz TARGET CORPUS_DIRECTORY; the targets are");
    for (const auto& [name, function] : targets) std::fprintf(stderr, " %s", std::string(name).c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const kvbm::test::FuzzFunction target = found->second;
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2], missing)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  const uint64_t mutations = number("KVBMTEST_FUZZ_MUTATIONS", 2000);
  const uint64_t seed = number("KVBMTEST_FUZZ_SEED", 1);
  run(target, {});
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const Bytes bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    run(target, bytes);
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < mutations; ++i) {
      Bytes changed = bytes;
      mutate(changed, random);
      run(target, changed);
    }
  }
  kvbm::test::counted(mutations * files.size(), "mutations of inputs");
  std::printf("%zu files, %llu mutations of each from seed %llu\n", files.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed));
  return files.empty() ? 1 : 0;
}
