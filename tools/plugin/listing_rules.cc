// Rules of listings: complete, in order, page by page, and soon.
#include <algorithm>
#include <thread>

#include "plugin/store_bench.h"

namespace kvbm::plugin {

namespace {

constexpr auto kVisible = std::chrono::seconds(1);
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr size_t kAtOnce = 64;

std::string number_name(size_t i) {
  std::string digits = std::to_string(i);
  return std::string(6 - std::min<size_t>(6, digits.size()), '0') + digits;
}

// Spreads names over a few folders, beside each other and nested, so that their order is that of bytes and not of
// folders.
std::string tail_of(size_t i) {
  constexpr const char* kFolders[] = {"m/", "m-1/", "m.1/", "m/z/", "m0/", ""};
  return std::string("list/") + kFolders[i % 6] + number_name(i);
}

// Puts objects, many at a time. `out` gets the sorted names.
std::string put_many(StoreBench& bench, size_t n, std::vector<std::string>& out) {
  for (size_t at = 0; at < n;) {
    std::vector<Request> some;
    for (; at < n && some.size() < kAtOnce; ++at) {
      out.push_back(bench.name(tail_of(at)));
      some.push_back(
          {.kind = KVBM_STORE_PUT, .name = out.back(), .data = content_of(at, 20), .flags = KVBM_STORE_LISTED});
    }
    for (Operation* one : bench.store().start(std::move(some))) {
      (void)bench.store().wait(*one);
      if (one->is_finished() && one->status() == KVBM_ERR_AGAIN) {
        if (std::string wrong = bench.put(one->name(), content_of(0, 20), KVBM_STORE_LISTED); !wrong.empty())
          return wrong;
      } else if (!one->ok()) {
        return "a put of 20 bytes: " + one->answer();
      }
    }
  }
  std::sort(out.begin(), out.end());
  return {};
}

// Returns how `got` differs from `wanted`.
std::string difference(const std::string& what, const std::vector<std::string>& wanted,
                       const std::vector<std::string>& got) {
  std::vector<std::string> missing;
  std::set_difference(wanted.begin(), wanted.end(), got.begin(), got.end(), std::back_inserter(missing));
  const std::string counts =
      " (" + std::to_string(got.size()) + " names, and " + std::to_string(wanted.size()) + " objects are there)";
  if (!missing.empty()) return what + " lacks " + missing.front() + counts;
  if (got != wanted) return what + " has names of no object" + counts;
  return {};
}

std::string expect_list(StoreBench& bench, const std::vector<std::string>& all, const std::string& prefix,
                        const std::string& after, uint64_t room, size_t* pages = nullptr) {
  std::vector<std::string> wanted;
  std::copy_if(all.begin(), all.end(), std::back_inserter(wanted),
               [&](const std::string& name) { return name.starts_with(prefix) && name > after; });
  std::vector<std::string> got;
  if (std::string wrong = bench.list(bench.store(), prefix, after, room, got, pages); !wrong.empty()) return wrong;
  return difference("the list of \"" + prefix + "\"" + (after.empty() ? "" : " after \"" + after + "\""), wanted, got);
}

Outcome check_listing(StoreBench& bench) {
  std::vector<std::string> all;
  if (std::string wrong = put_many(bench, bench.limits().listed_objects, all); !wrong.empty()) return failed(wrong);
  std::this_thread::sleep_for(kVisible);
  const std::string base = bench.prefix() + "/list/";
  size_t pages = 0;
  std::string wrong = expect_list(bench, all, base, "", KVBM_STORE_LIST_BYTES, &pages);
  if (wrong.empty()) wrong = expect_list(bench, all, base, "", 1 << 20);
  // A prefix need not end with a part, and the name to begin behind need not be an object.
  for (const char* tail : {"m", "m/", "m/z", "m/z/0001", "m.", "0", "nothing", "m/000000"}) {
    if (wrong.empty()) wrong = expect_list(bench, all, base + tail, "", KVBM_STORE_LIST_BYTES);
  }
  for (const std::string& after :
       {all[all.size() / 2], all.back(), all[7] + "0", base + "m", base + "m/", base + "m/z", base + "zzz", base}) {
    if (wrong.empty()) wrong = expect_list(bench, all, base, after, KVBM_STORE_LIST_BYTES);
    if (wrong.empty()) wrong = expect_list(bench, all, base + "m/", after, KVBM_STORE_LIST_BYTES);
  }
  return wrong.empty() ? passed(std::to_string(all.size()) + " names in " + std::to_string(pages) + " pages")
                       : failed(wrong);
}

Outcome check_listing_of_nothing(StoreBench& bench) {
  std::vector<std::string> got;
  const std::string wrong = bench.list(bench.store(), bench.prefix() + "/nothing/", "", KVBM_STORE_LIST_BYTES, got);
  if (!wrong.empty()) return failed(wrong);
  return got.empty() ? passed() : failed("a list of a place without objects gave " + got.front());
}

// Measures from the end of the put until it is listed, by the store itself and by another host's.
Outcome check_visible(StoreBench& bench) {
  const StoreRunner::Opened other = bench.open_another();
  if (other.runner == nullptr) return failed("it could not be opened twice: " + other.message);
  double slowest = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string name = bench.name("soon/" + number_name(static_cast<size_t>(i)));
    StoreRunner& lister = i % 2 == 0 ? bench.store() : *other.runner;
    if (i >= 2) {
      // A store may cache that an object was missing.
      std::vector<std::string> before;
      if (std::string wrong = bench.list(lister, name, "", KVBM_STORE_LIST_BYTES, before); !wrong.empty())
        return failed(wrong);
    }
    const Operation& put = bench.store().run(
        {.kind = KVBM_STORE_PUT, .name = name, .data = content_of(1, 50), .flags = KVBM_STORE_LISTED});
    if (!put.ok()) return failed("a put of 50 bytes: " + put.answer());
    for (bool seen = false; !seen;) {
      const auto begun = Clock::now();
      std::vector<std::string> got;
      if (std::string wrong = bench.list(lister, name, "", KVBM_STORE_LIST_BYTES, got); !wrong.empty())
        return failed(wrong);
      seen = got.size() == 1 && got[0] == name;
      const double late = std::chrono::duration<double>(begun - put.ended()).count();
      if (seen) slowest = std::max(slowest, late);
      if (!seen && begun - put.ended() > kVisible) {
        return failed("an object was not in a list that began " + std::to_string(late) + " s after its put finished" +
                      (i % 2 == 0 ? "" : ", by a second store of the same URL"));
      }
      if (!seen) std::this_thread::sleep_for(kPause);
    }
  }
  return passed("in " + std::to_string(static_cast<int>(slowest * 1000)) + " ms");
}

Outcome check_removed(StoreBench& bench) {
  std::vector<std::string> names;
  for (size_t i = 0; i < 3; ++i) {
    names.push_back(bench.name("gone/" + number_name(i)));
    if (std::string wrong = bench.put(names.back(), content_of(i, 10), KVBM_STORE_LISTED); !wrong.empty())
      return failed(wrong);
  }
  if (std::string wrong = bench.remove(names[1], KVBM_STORE_LISTED); !wrong.empty()) return failed(wrong);
  names.erase(names.begin() + 1);
  const auto removed = Clock::now();
  for (;;) {
    const bool late = Clock::now() - removed > kVisible;
    const std::string wrong = expect_list(bench, names, bench.prefix() + "/gone/", "", KVBM_STORE_LIST_BYTES);
    if (wrong.empty()) return passed();
    if (late) return failed("one second after an object was removed, " + wrong);
    std::this_thread::sleep_for(kPause);
  }
}

constexpr Rule kListingRules[] = {
    {"listing",
     "a list has all objects once, in the order of their bytes, behind `after`, with `more` while some are left",
     check_listing},
    {"listing_empty", "a list of a prefix that no object has is empty", check_listing_of_nothing},
    {"visible", "an object is in lists one second after its put finished", check_visible},
    {"removed", "an object that was removed leaves lists", check_removed},
};

}  // namespace

std::span<const Rule> listing_rules() { return kListingRules; }

}  // namespace kvbm::plugin
