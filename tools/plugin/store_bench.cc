#include "plugin/store_bench.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/crypto/random.h"

namespace kvbm::plugin {

namespace {

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

std::string number_text(uint64_t number) { return std::to_string(number); }

}  // namespace

Data content_of(uint64_t number, size_t bytes) {
  Data out(bytes);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = mixed((number << 32) + at + bytes);
    std::memcpy(out.data() + at, &word, std::min<size_t>(8, bytes - at));
  }
  return out;
}

bool is_content_of(uint64_t number, const uint8_t* data, size_t bytes) {
  const Data wanted = content_of(number, bytes);
  return std::equal(wanted.begin(), wanted.end(), data);
}

StoreBench::StoreBench(const kvbm_store_table_t& table, const capi::StoreUrl& url, capi::StoreOptions options,
                       const CheckLimits& limits)
    : table_(table), url_(url), options_(std::move(options)), limits_(limits) {
  const uint64_t number = SystemRandom().next();
  char text[64];
  std::snprintf(text, sizeof text, "kvbm-check-%016llx", static_cast<unsigned long long>(number));
  prefix_ = text;
}

StoreBench::~StoreBench() = default;

std::string StoreBench::open() {
  if (runner_ != nullptr && !runner_->is_stuck()) return {};
  const bool again = runner_ != nullptr;
  runner_.reset();
  StoreRunner::Opened opened = open_another();
  runner_ = std::move(opened.runner);
  first_ = std::move(opened);
  if (runner_ != nullptr) return {};
  return (again ? "it could not be opened again: " : "it could not be opened: ") + first_.message;
}

StoreRunner::Opened StoreBench::open_another(const capi::StoreOptions* options) {
  return StoreRunner::open(table_, url_, options == nullptr ? options_ : *options, limits_.operations, misdeeds_);
}

std::string StoreBench::name(const std::string& tail) {
  std::string out = prefix_ + "/" + tail;
  written_.push_back(out);
  return out;
}

std::string StoreBench::put(const std::string& name, const Data& data, uint32_t flags) {
  Operation& put = store().run({.kind = KVBM_STORE_PUT, .name = name, .data = data, .flags = flags});
  put.forget_data();
  return put.ok() ? "" : "a put of " + number_text(data.size()) + " bytes: " + put.answer();
}

std::string StoreBench::expect_range(const std::string& name, const Data& data, uint64_t offset, uint64_t bytes) {
  Operation& get = store().run({.kind = KVBM_STORE_GET, .name = name, .bytes = bytes, .offset = offset});
  const std::string what = "a get of " + number_text(bytes) + " bytes at " + number_text(offset) + " of an object of " +
                           number_text(data.size());
  if (!get.ok()) return what + ": " + get.answer();
  const uint64_t wanted = offset >= data.size() ? 0 : std::min<uint64_t>(bytes, data.size() - offset);
  if (get.done() != wanted) return what + " gave " + number_text(get.done()) + " bytes, not " + number_text(wanted);
  const bool same = wanted == 0 || std::memcmp(get.data(), data.data() + offset, wanted) == 0;
  get.forget_data();
  return same ? "" : what + " gave other bytes than were put";
}

std::string StoreBench::expect_data(const std::string& name, const Data& data) {
  return expect_range(name, data, 0, data.size() + 100);
}

std::string StoreBench::expect_missing(const std::string& name) {
  const Operation& get = store().run({.kind = KVBM_STORE_GET, .name = name, .bytes = 100});
  if (get.is_finished() && get.status() == KVBM_ERR_MISS) return {};
  return "a get of an object that is not there: " + get.answer() + ", not KVBM_ERR_MISS";
}

std::string StoreBench::remove(const std::string& name, uint32_t flags) {
  const Operation& remove = store().run({.kind = KVBM_STORE_REMOVE, .name = name, .flags = flags});
  return remove.ok() ? "" : "a remove: " + remove.answer();
}

std::string StoreBench::list(StoreRunner& from, const std::string& prefix, const std::string& after, uint64_t room,
                             std::vector<std::string>& out, size_t* pages) {
  std::string last = after;
  for (size_t page = 0; page < 100'000; ++page) {
    Operation& list = from.run({.kind = KVBM_STORE_LIST, .name = prefix, .after = last, .bytes = room});
    if (!list.ok()) return "a list of \"" + prefix + "\": " + list.answer();
    if (pages != nullptr) *pages = page + 1;
    const auto* at = reinterpret_cast<const char*>(list.data());
    const char* const end = at + list.done();
    if (at != end && end[-1] != '\0') return "a list gave a last name without its zero byte";
    if (at == end && list.more()) return "a list gave no name and more = 1";
    for (; at != end; at += last.size() + 1) {
      const std::string name(at);
      if (name.size() > KVBM_STORE_NAME_BYTES) return "a list gave a name of " + number_text(name.size()) + " bytes";
      if (!name.starts_with(prefix)) return "a list of \"" + prefix + "\" gave \"" + name + "\"";
      if (name <= last) return "a list gave \"" + name + "\" behind \"" + last + "\"";
      out.push_back(name);
      last = name;
    }
    const bool more = list.more();
    list.forget_data();
    if (!more) return {};
  }
  return "a list does not end";
}

void StoreBench::remove_all() {
  if (!open().empty()) return;
  std::vector<std::string> listed;
  (void)list(store(), prefix_, "", KVBM_STORE_LIST_BYTES, listed);
  written_.insert(written_.end(), listed.begin(), listed.end());
  std::sort(written_.begin(), written_.end());
  written_.erase(std::unique(written_.begin(), written_.end()), written_.end());
  for (size_t at = 0; at < written_.size() && !store().is_stuck();) {
    std::vector<Request> some;
    for (; at < written_.size() && some.size() < 64; ++at) {
      some.push_back({.kind = KVBM_STORE_REMOVE, .name = written_[at], .flags = KVBM_STORE_LISTED});
    }
    for (Operation* one : store().start(std::move(some))) {
      if (store().is_stuck()) break;
      (void)store().wait(*one);
      if (one->status() == KVBM_ERR_AGAIN)
        (void)store().run({.kind = KVBM_STORE_REMOVE, .name = one->name(), .flags = KVBM_STORE_LISTED});
    }
  }
  written_.clear();
}

}  // namespace kvbm::plugin
