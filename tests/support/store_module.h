// Drives a store's library through its table alone, as libkvbm does.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kvbm_plugin.h"

namespace kvbm::test {

// Parts of a URL.
struct StoreUrl {
  std::string scheme;
  std::string authority;
  std::string path;
  std::map<std::string, std::string> options;
  std::string user = {};
  std::string password = {};
};

class StoreModule {
 public:
  struct Done {
    kvbm_status_t status = KVBM_OK;
    uint64_t bytes = 0;  // of a get
    bool more = false;
    std::vector<std::string> names;  // of a listing
    std::string message;
    double seconds = 0;
  };
  // An operation that was started and is waited for later.
  struct Started {
    kvbm_store_op_t op = {};
    std::string name;
    std::string after;
    kvbm_status_t status = KVBM_OK;
    int times = 0;  // that it was finished
    std::chrono::steady_clock::time_point begun;
    double seconds = 0;
  };

  explicit StoreModule(const char* file) : library_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ != nullptr) table_ = static_cast<const kvbm_store_table_t*>(::dlsym(library_, "kvbm_store_table"));
  }
  ~StoreModule() { close(); }  // the library stays loaded
  StoreModule(const StoreModule&) = delete;
  StoreModule& operator=(const StoreModule&) = delete;

  uint64_t expire_s = 0;  // of the puts that follow

  [[nodiscard]] const kvbm_store_table_t* table() const { return table_; }
  [[nodiscard]] const kvbm_store_facts_t& facts() const { return facts_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  // Lines of the log so far.
  std::vector<std::string> log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return log_;
  }

  kvbm_status_t open(const StoreUrl& url, uint64_t timeout_ns = 10'000'000'000) {
    close();
    if (table_ == nullptr) return KVBM_ERR_UNSUPPORTED;
    url_ = url;
    options_.clear();
    for (const auto& [name, value] : url_.options) options_.push_back({name.c_str(), value.c_str()});
    config_ = {};
    config_.struct_size = sizeof config_;
    config_.scheme = url_.scheme.c_str();
    config_.authority = url_.authority.c_str();
    config_.user = url_.user.c_str();
    config_.password = url_.password.c_str();
    config_.path = url_.path.c_str();
    config_.options = options_.data();
    config_.n_options = options_.size();
    config_.context = this;
    config_.finished = [](void* self, kvbm_store_op_t* op, kvbm_status_t status) {
      static_cast<StoreModule*>(self)->finished(op, status);
    };
    config_.log = [](void* self, int32_t, const char* text) { static_cast<StoreModule*>(self)->logged(text); };
    facts_ = {};
    facts_.struct_size = sizeof facts_;
    char text[256] = {};
    const kvbm_status_t status = table_->open(&config_, timeout_ns, &facts_, &store_, text);
    message_ = text;
    return status;
  }
  void close() {
    if (store_ != nullptr) table_->close(store_);
    store_ = nullptr;
  }

  std::unique_ptr<Started> start(uint32_t kind, const std::string& name, void* data, uint64_t bytes,
                                 uint64_t offset = 0, double seconds = 10, const std::string& after = "") {
    auto one = std::make_unique<Started>();
    one->name = name;
    one->after = after;
    one->op.kind = kind;
    one->op.flags = kind == KVBM_STORE_PUT || kind == KVBM_STORE_REMOVE ? KVBM_STORE_LISTED : 0;
    one->op.name = one->name.c_str();
    one->op.after = kind == KVBM_STORE_LIST ? one->after.c_str() : nullptr;
    one->op.data = data;
    one->op.bytes = bytes;
    one->op.offset = offset;
    one->op.timeout_ns = static_cast<uint64_t>(seconds * 1e9);
    one->op.expire_s = kind == KVBM_STORE_PUT ? expire_s : 0;
    one->op.library_private = one.get();
    one->begun = std::chrono::steady_clock::now();
    kvbm_store_op_t* op = &one->op;
    table_->start(store_, &op, 1);
    return one;
  }
  void cancel(Started& one) { table_->cancel(store_, &one.op); }
  Done wait(Started& one) {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&] { return one.times > 0; });
    return {one.status, one.op.done, one.op.more != 0, {}, one.op.message, one.seconds};
  }

  Done put(const std::string& name, std::string data, double seconds = 10) {
    return wait(*start(KVBM_STORE_PUT, name, data.data(), data.size(), 0, seconds));
  }
  // Reads up to `bytes` bytes of an object from `offset` on into *out.
  Done get(const std::string& name, std::string* out, uint64_t bytes, uint64_t offset = 0, double seconds = 10) {
    out->assign(bytes, '\0');
    Done done = wait(*start(KVBM_STORE_GET, name, out->data(), bytes, offset, seconds));
    out->resize(std::min<uint64_t>(done.bytes, bytes));
    return done;
  }
  Done remove(const std::string& name, double seconds = 10) {
    return wait(*start(KVBM_STORE_REMOVE, name, nullptr, 0, 0, seconds));
  }
  Done list(const std::string& prefix, const std::string& after = "", size_t room = KVBM_STORE_LIST_BYTES,
            double seconds = 10) {
    std::string names(room, '\0');
    Done done = wait(*start(KVBM_STORE_LIST, prefix, names.data(), room, 0, seconds, after));
    for (size_t at = 0; at < done.bytes;) {
      done.names.emplace_back(names.c_str() + at);
      at += done.names.back().size() + 1;
    }
    return done;
  }
  // Lists page after page until the end. Returns the status of the last page.
  Done list_all(const std::string& prefix, size_t room = KVBM_STORE_LIST_BYTES) {
    Done all = list(prefix, "", room);
    while (all.status == KVBM_OK && all.more && !all.names.empty()) {
      Done next = list(prefix, all.names.back(), room);
      all.status = next.status;
      all.message = next.message;
      all.more = next.more;
      all.names.insert(all.names.end(), next.names.begin(), next.names.end());
    }
    return all;
  }

 private:
  void finished(kvbm_store_op_t* op, kvbm_status_t status) {
    auto* one = static_cast<Started*>(op->library_private);
    const std::lock_guard<std::mutex> lock(mutex_);
    one->status = status;
    one->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - one->begun).count();
    ++one->times;
    finished_.notify_all();
  }
  void logged(const char* text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    log_.emplace_back(text);
  }

  void* library_ = nullptr;
  const kvbm_store_table_t* table_ = nullptr;
  void* store_ = nullptr;
  StoreUrl url_;
  std::vector<kvbm_store_option_t> options_;
  kvbm_store_config_t config_ = {};
  kvbm_store_facts_t facts_ = {};
  std::string message_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::vector<std::string> log_;
};

}  // namespace kvbm::test
