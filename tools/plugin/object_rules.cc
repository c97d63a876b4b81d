// Rules of single objects: a get returns the bytes of the put, in ranges, under any name; an object that does not
// exist is a miss.
#include <algorithm>
#include <array>

#include "plugin/store_bench.h"

namespace kvbm::plugin {

namespace {

constexpr uint64_t kMostTried = 256ULL << 20;  // larger objects are not tried

Outcome check_open(StoreBench& bench) {
  const auto& facts = bench.store().facts();
  if (!bench.first().fault.empty()) return failed(bench.first().fault);
  constexpr uint32_t kFeatures = KVBM_STORE_BLOCKS | KVBM_STORE_EXPIRES | KVBM_STORE_EVICTS;
  if ((facts.features & ~kFeatures) != 0) return failed("features has bits that this version does not know");
  if (facts.concurrency > 1024)
    return failed("concurrency is " + std::to_string(facts.concurrency) + ", and 1024 is the most");
  if (facts.struct_size != sizeof facts || facts.reserved != 0)
    return failed("struct_size or reserved of the facts was changed");
  const auto* end = std::find(std::begin(facts.description), std::end(facts.description), '\0');
  if (end == std::end(facts.description) || end == facts.description)
    return failed("the description is empty or has no end");
  const std::string_view words(facts.description);
  if (std::any_of(words.begin(), words.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
    return failed("the description has control characters");
  }
  return passed(std::to_string(bench.store().concurrency()) + " operations at a time, objects of " +
                std::to_string(bench.store().object_bytes()) + " bytes");
}

// Uses a value that no option has. Some options take any text; the others must refuse it in a sentence.
Outcome check_wrong_options(StoreBench& bench) {
  size_t refused = 0;
  for (size_t i = 0; i < bench.table().n_options; ++i) {
    const std::string_view name = bench.table().options[i].name;
    capi::StoreOptions options = bench.options();
    std::erase_if(options.of_store, [&](const kvbm_store_option_t& given) { return given.name == name; });
    options.of_store.push_back({bench.table().options[i].name, "no such value!"});
    const StoreRunner::Opened opened = bench.open_another(&options);
    const std::string with = "open() with a wrong " + std::string(name);
    if (!opened.fault.empty()) return failed(opened.fault);
    if (opened.status == KVBM_OK) continue;
    const bool known = opened.status == KVBM_ERR_CONFIG || opened.status == KVBM_ERR_PERMISSION ||
                       opened.status == KVBM_ERR_UNSUPPORTED || opened.status == KVBM_ERR_NO_MEMORY;
    if (!known) return failed(with + " gave status " + std::to_string(opened.status));
    if (opened.message.empty()) return failed(with + " was refused without a message");
    ++refused;
  }
  return passed(std::to_string(refused) + " of " + std::to_string(bench.table().n_options) +
                " options refused a wrong value");
}

Outcome check_sizes(StoreBench& bench) {
  const uint64_t most = bench.store().facts().max_object_bytes;
  std::vector<uint64_t> sizes = {0, 1, 7, 4096, 100'003, std::min(bench.store().object_bytes(), kMostTried)};
  if (most != 0) sizes.push_back(std::min(most, kMostTried));
  for (const uint64_t size : sizes) {
    if (most != 0 && size > most) continue;
    const std::string name = bench.name("sizes/" + std::to_string(size));
    const Data data = content_of(size, size);
    if (std::string wrong = bench.put(name, data); !wrong.empty()) return failed(wrong);
    if (std::string wrong = bench.expect_data(name, data); !wrong.empty()) return failed(wrong);
    if (std::string wrong = bench.remove(name); !wrong.empty()) return failed(wrong);
  }
  return passed("0 to " + std::to_string(sizes.back()) + " bytes");
}

Outcome check_too_large(StoreBench& bench) {
  const uint64_t most = bench.store().facts().max_object_bytes;
  if (most == 0) return skipped("its facts allow objects of any size");
  if (most >= kMostTried) return skipped("the largest object is too large to be tried");
  const std::string name = bench.name("large");
  const Operation& put = bench.store().run({.kind = KVBM_STORE_PUT, .name = name, .data = Data(most + 1)});
  if (!put.is_finished() || put.ok()) return failed("a put of one byte more than max_object_bytes: " + put.answer());
  const std::string wrong = bench.expect_missing(name);
  return wrong.empty() ? passed(put.answer()) : failed(wrong);
}

Outcome check_ranges(StoreBench& bench) {
  const std::string name = bench.name("ranges");
  const std::string empty = bench.name("empty");
  const Data data = content_of(3, 10'000);
  for (const auto& wrong : {bench.put(name, data), bench.put(empty, {})}) {
    if (!wrong.empty()) return failed(wrong);
  }
  constexpr std::array<std::array<uint64_t, 2>, 10> kRanges = {{{0, 1},
                                                                {0, 9999},
                                                                {1, 1},
                                                                {4095, 4098},
                                                                {9999, 1},
                                                                {9999, 50},
                                                                {5000, 9000},
                                                                {10'000, 10},
                                                                {10'001, 1},
                                                                {1ULL << 40, 4096}}};
  for (const auto& [offset, bytes] : kRanges) {
    if (std::string wrong = bench.expect_range(name, data, offset, bytes); !wrong.empty()) return failed(wrong);
  }
  for (const uint64_t offset : {0, 1}) {
    if (std::string wrong = bench.expect_range(empty, {}, offset, 10); !wrong.empty()) return failed(wrong);
  }
  return passed();
}

Outcome check_missing(StoreBench& bench) {
  const std::string name = bench.name("missing/a");
  if (std::string wrong = bench.expect_missing(name); !wrong.empty()) return failed(wrong);
  if (std::string wrong = bench.remove(name); !wrong.empty()) return failed(wrong + ", of an object that is not there");
  if (std::string wrong = bench.put(name, content_of(1, 100)); !wrong.empty()) return failed(wrong);
  // Names that begin like the object's, or lie beneath it, do not exist either.
  for (const char* tail : {"missing/aa", "missing", "missing/a/b"}) {
    if (std::string wrong = bench.expect_missing(bench.prefix() + "/" + tail); !wrong.empty()) return failed(wrong);
    if (std::string wrong = bench.remove(bench.prefix() + "/" + tail); !wrong.empty()) return failed(wrong);
  }
  for (const auto& wrong : {bench.expect_data(name, content_of(1, 100)), bench.remove(name), bench.expect_missing(name),
                            bench.remove(name)}) {
    if (!wrong.empty()) return failed(wrong);
  }
  return passed();
}

Outcome check_replaced(StoreBench& bench) {
  const std::string name = bench.name("replaced");
  for (const size_t size : {5000U, 9000U, 10U, 0U, 300'000U, 1U}) {
    if (std::string wrong = bench.put(name, content_of(size, size)); !wrong.empty()) return failed(wrong);
    if (std::string wrong = bench.expect_data(name, content_of(size, size)); !wrong.empty()) {
      return failed("after it was replaced, " + wrong);
    }
  }
  return passed();
}

Outcome check_names(StoreBench& bench) {
  const std::string base = bench.prefix() + "/names/";
  std::vector<std::string> tails = {"a", "a-", "a-b", "a.b", "a0", "ab", "b/a", "b/a.", "b-/a", "0", "-", "a--..--a"};
  tails.push_back("long/" + std::string(KVBM_STORE_NAME_BYTES - base.size() - 5, 'x'));
  std::string deep = "d";
  while (base.size() + deep.size() + 2 <= KVBM_STORE_NAME_BYTES) deep += "/d";
  tails.push_back(deep);
  for (size_t i = 0; i < tails.size(); ++i) {
    if (std::string wrong = bench.put(bench.name("names/" + tails[i]), content_of(i, 50 + i)); !wrong.empty()) {
      return failed("of the name names/" + tails[i] + ": " + wrong);
    }
  }
  for (size_t i = 0; i < tails.size(); ++i) {
    if (std::string wrong = bench.expect_data(base + tails[i], content_of(i, 50 + i)); !wrong.empty()) {
      return failed("of the name names/" + tails[i] + ": " + wrong);
    }
  }
  for (const std::string& tail : tails) {
    if (std::string wrong = bench.remove(base + tail); !wrong.empty())
      return failed("of the name names/" + tail + ": " + wrong);
  }
  return passed("up to " + std::to_string(KVBM_STORE_NAME_BYTES) + " bytes");
}

Outcome check_another_host(StoreBench& bench) {
  const std::string name = bench.name("two/a");
  const StoreRunner::Opened other = bench.open_another();
  if (other.runner == nullptr) return failed("it could not be opened twice: " + other.message);
  const Data data = content_of(9, 2000);
  if (std::string wrong = bench.put(name, data); !wrong.empty()) return failed(wrong);
  Operation& get = other.runner->run({.kind = KVBM_STORE_GET, .name = name, .bytes = 3000});
  if (!get.ok() || get.done() != data.size() || !is_content_of(9, get.data(), data.size())) {
    return failed("what was put through one store is not there in a second one of the same URL: " + get.answer());
  }
  const Operation& remove = other.runner->run({.kind = KVBM_STORE_REMOVE, .name = name});
  if (!remove.ok()) return failed("a remove: " + remove.answer());
  const std::string wrong = bench.expect_missing(name);
  return wrong.empty() ? passed() : failed(wrong);
}

constexpr Rule kObjectRules[] = {
    {"open", "open() fills the facts as kvbm_store_facts_t says", check_open},
    {"wrong_options", "a wrong value of an option is refused with a status of open() and a sentence",
     check_wrong_options},
    {"sizes", "objects of 0 bytes to object_bytes are got as they were put", check_sizes},
    {"too_large", "an object of more than max_object_bytes is refused, and not there", check_too_large},
    {"ranges", "a get reads from its offset, and gives fewer bytes only at the end of the object", check_ranges},
    {"missing", "a get of what is not there is KVBM_ERR_MISS, a remove of it KVBM_OK", check_missing},
    {"replaced", "a put replaces the object, whatever its size was", check_replaced},
    {"names", "names of all allowed characters, of up to 160 bytes, are different objects", check_names},
    {"two_hosts", "a second store of the same URL has the same objects", check_another_host},
};

}  // namespace

std::span<const Rule> object_rules() { return kObjectRules; }

}  // namespace kvbm::plugin
