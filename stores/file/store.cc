// The table of the store for file:///directory?shared=on: objects are files, and '/' in a name is a folder.
//
// A put writes a temporary file beside the object, makes it durable and renames it, so an object is whole or not there,
// on every host and after a crash. Nothing is locked. Hosts that put the same name at once both succeed, and one of
// them was last. Every call is a few calls of the system on the library's own threads (KVBM_STORE_BLOCKS).
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "directory.h"
#include "kvbm_plugin.h"
#include "listing.h"
#include "place.h"

namespace kvbm_file {

namespace {

// Bytes between two checks of the clock. The kernel takes more in one call, and would then not stop for minutes.
constexpr uint64_t kPieceBytes = 64ULL << 20;
// Limit on attempts of a put. Another host may remove the folder between two system calls a few times, but hardly this
// often.
constexpr int kAttempts = 100;
// Limit on attempts of a get or a listing, which may read much each time: handles may stay stale.
constexpr int kReads = 4;
// Value beside the errno values: the library asked for something that is not allowed.
constexpr int kNotAnOperation = -1;

struct Settings {
  bool shared = false;
  bool sync = true;
  uint32_t threads = 8;
};

class Store {
 public:
  Store(const kvbm_store_config_t& config, std::string path, const Settings& settings)
      : config_(config), settings_(settings), place_(std::move(path), settings.shared) {
    if (::getrandom(&seed_, sizeof seed_, 0) != static_cast<ssize_t>(sizeof seed_)) seed_ = monotonic_ns();
  }
  Place& place() { return place_; }
  void run(kvbm_store_op_t& op);

 private:
  int put(const kvbm_store_op_t& op, uint64_t deadline_ns);
  int put_once(const kvbm_store_op_t& op, uint64_t deadline_ns);
  int get(kvbm_store_op_t& op, uint64_t deadline_ns);
  int get_once(kvbm_store_op_t& op, uint64_t deadline_ns);
  int remove(const kvbm_store_op_t& op);
  int list(kvbm_store_op_t& op, uint64_t deadline_ns);
  int perform(kvbm_store_op_t& op);
  std::string temporary_name();

  const kvbm_store_config_t& config_;
  const Settings settings_;
  Place place_;
  uint64_t seed_ = 0;
  std::atomic<uint64_t> counter_{0};
};

// Returns a unique name: no other process has the seed, and no other put of this process has the number.
std::string Store::temporary_name() {
  char text[64];
  std::snprintf(text, sizeof text, "%s%016" PRIx64 "-%" PRIx64, std::string(kTemporary).c_str(), seed_,
                counter_.fetch_add(1, std::memory_order_relaxed));
  return text;
}

int write_all(int fd, const char* data, uint64_t bytes, uint64_t deadline_ns) {
  for (uint64_t at = 0; at < bytes;) {
    if (monotonic_ns() > deadline_ns) return ETIMEDOUT;
    const ssize_t n = ::write(fd, data + at, std::min(bytes - at, kPieceBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    at += static_cast<uint64_t>(n);
  }
  return 0;
}

// Closes a file that was written. A network file system may report only here that there was no space.
int close_written(Fd fd) { return ::close(fd.release()) != 0 && errno != EINTR ? errno : 0; }

int Store::put_once(const kvbm_store_op_t& op, uint64_t deadline_ns) {
  const auto root = place_.root();
  const Modes modes = place_.modes();
  Fd folder;
  if (int error = make_folder(root->get(), folders_of(op.name), modes, folder); error != 0) return error;
  const std::string temporary = temporary_name();
  Fd file(::openat(folder.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, modes.file));
  if (!file) return errno;
  int error = modes.whatever_the_umask && ::fchmod(file.get(), modes.file) != 0 ? errno : 0;
  if (error == 0) error = write_all(file.get(), static_cast<const char*>(op.data), op.bytes, deadline_ns);
  if (error == 0 && settings_.sync && ::fdatasync(file.get()) != 0) error = errno;
  const int closed = close_written(std::move(file));
  if (error == 0) error = closed;
  if (error == 0 && monotonic_ns() > deadline_ns) error = ETIMEDOUT;
  const std::string last = last_part(op.name);
  if (error == 0 && ::renameat(folder.get(), temporary.c_str(), folder.get(), last.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlinkat(folder.get(), temporary.c_str(), 0);
  } else if (settings_.sync && (op.flags & KVBM_STORE_LISTED) != 0) {
    // A power cut may take back the rename. A pack is a miss then; an epoch must stay.
    error = sync_folders(root->get(), folders_of(op.name));
  }
  return error;
}

// Repeats put_once() after ENOENT and ESTALE. Both mean that the folder was removed with its last object, after it
// had been found or made.
int Store::put(const kvbm_store_op_t& op, uint64_t deadline_ns) {
  int error = 0;
  for (int i = 0; i < kAttempts && monotonic_ns() <= deadline_ns; ++i) {
    error = put_once(op, deadline_ns);
    if (error != ENOENT && error != ESTALE && error != EBADF) return error;
    if (!place_.opened_anew(error) && error == EBADF) return error;
  }
  return error == 0 ? ETIMEDOUT : ESTALE;
}

int Store::get_once(kvbm_store_op_t& op, uint64_t deadline_ns) {
  const auto root = place_.root();
  Fd folder;
  if (int error = open_folder(root->get(), folders_of(op.name), folder); error != 0) return error;
  // O_NONBLOCK, because a fifo of that name would block the call.
  const Fd file(::openat(folder.get(), last_part(op.name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return errno;
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return errno;
  if (!S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? ENOENT : ELOOP;
  op.done = 0;
  while (op.done < op.bytes && op.offset <= static_cast<uint64_t>(INT64_MAX) - op.done) {
    if (monotonic_ns() > deadline_ns) return ETIMEDOUT;
    const ssize_t n = ::pread(file.get(), static_cast<char*>(op.data) + op.done,
                              std::min(op.bytes - op.done, kPieceBytes), static_cast<off_t>(op.offset + op.done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EINVAL ? 0 : errno;  // an offset that no file of this file system can have
    if (n == 0) break;
    op.done += static_cast<uint64_t>(n);
  }
  return 0;
}

// Repeats get_once() after ESTALE: another host replaced or removed the file during the read. The read starts at the
// beginning, because its halves must belong to one object.
int Store::get(kvbm_store_op_t& op, uint64_t deadline_ns) {
  int error = 0;
  for (int i = 0; i < kReads && monotonic_ns() <= deadline_ns; ++i) {
    error = get_once(op, deadline_ns);
    if (error != ESTALE && !place_.opened_anew(error)) return error;
  }
  return error == 0 ? ETIMEDOUT : error;
}

int Store::remove(const kvbm_store_op_t& op) {
  const auto root = place_.root();
  const std::vector<std::string> folders = folders_of(op.name);
  Fd folder;
  int error = open_folder(root->get(), folders, folder);
  if (error == 0 && ::unlinkat(folder.get(), last_part(op.name).c_str(), 0) != 0) error = errno;
  if (error == ENOENT || error == ENOTDIR || error == EISDIR || error == ESTALE) {
    (void)place_.opened_anew(error);
    return 0;
  }
  if (error == 0) remove_empty_folders(root->get(), folders);
  return error;
}

int Store::list(kvbm_store_op_t& op, uint64_t deadline_ns) {
  int error = 0;
  for (int i = 0; i < kReads && monotonic_ns() <= deadline_ns; ++i) {
    ListTask task;
    task.prefix = op.name;
    task.after = op.after == nullptr ? "" : op.after;
    task.data = static_cast<char*>(op.data);
    task.bytes = op.bytes;
    task.deadline_ns = deadline_ns;
    error = list_objects(place_.root()->get(), task);
    op.done = error == 0 ? task.done : 0;
    op.more = error == 0 && task.more ? 1 : 0;
    const bool finds_nothing = error == 0 && task.done == 0;  // as in a directory that was removed
    const bool is_lost = error == ESTALE || error == EBADF || finds_nothing;
    // A folder that another host removed during the listing is ESTALE too: it is not there the next time.
    if (!is_lost || (!place_.opened_anew(finds_nothing ? ENOENT : error) && error != ESTALE)) return error;
  }
  return error == 0 ? ETIMEDOUT : error;
}

int Store::perform(kvbm_store_op_t& op) {
  const uint64_t now = monotonic_ns();
  const uint64_t deadline_ns = op.timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + op.timeout_ns;
  op.done = 0;
  op.more = 0;
  const bool named = op.name != nullptr && (op.kind == KVBM_STORE_LIST ? is_prefix(op.name) : is_object_name(op.name));
  if (!named || (op.bytes != 0 && op.data == nullptr)) return kNotAnOperation;
  switch (op.kind) {
    case KVBM_STORE_PUT:
      return put(op, deadline_ns);
    case KVBM_STORE_GET:
      return get(op, deadline_ns);
    case KVBM_STORE_REMOVE:
      return remove(op);
    case KVBM_STORE_LIST:
      return list(op, deadline_ns);
    default:
      return kNotAnOperation;
  }
}

kvbm_status_t status_of(int error) {
  switch (error) {
    case 0:
      return KVBM_OK;
    case ENOSPC:
    case EDQUOT:
      return KVBM_ERR_DISK_FULL;
    case EROFS:
    case EACCES:
    case EPERM:
    case ELOOP:
      return KVBM_ERR_PERMISSION;
    case kNotAnOperation:
      return KVBM_ERR_CONFIG;
    case ETIMEDOUT:
      return KVBM_ERR_DEADLINE;
    case ESTALE:
    case EBADF:  // there is no directory yet
    case EBUSY:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return KVBM_ERR_AGAIN;
    default:
      return KVBM_ERR_IO;
  }
}

void Store::run(kvbm_store_op_t& op) {
  int error = 0;
  try {
    error = perform(op);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  kvbm_status_t status = status_of(error);
  if (op.kind == KVBM_STORE_GET && (error == ENOENT || error == ENOTDIR)) status = KVBM_ERR_MISS;
  if (status != KVBM_OK) {
    constexpr const char* kVerbs[] = {"calling", "writing", "reading", "removing", "listing"};
    char text[64];
    // The GNU version of strerror_r(): the text may be elsewhere than in the buffer.
    std::snprintf(
        op.message, sizeof op.message, "%s a file in the directory: %s", kVerbs[op.kind <= 4 ? op.kind : 0],
        error == kNotAnOperation ? "the name or the operation is not one" : ::strerror_r(error, text, sizeof text));
  }
  config_.finished(config_.context, &op, status);
}

// Reads an option of the URL. Returns a sentence if it is wrong.
std::string read_switch(const kvbm_store_option_t& option, bool& out) {
  const std::string_view value = option.value;
  if (value != "on" && value != "off") return std::string(option.name) + " is on or off, not \"" + option.value + "\"";
  out = value == "on";
  return {};
}

std::string read_settings(const kvbm_store_config_t& config, Settings& out) {
  for (size_t i = 0; i < config.n_options; ++i) {
    const kvbm_store_option_t& option = config.options[i];
    const std::string_view name = option.name;
    std::string wrong;
    if (name == "shared") {
      wrong = read_switch(option, out.shared);
    } else if (name == "sync") {
      wrong = read_switch(option, out.sync);
    } else if (name == "threads") {
      char* end = nullptr;
      const unsigned long n = std::strtoul(option.value, &end, 10);
      if (option.value[0] < '0' || option.value[0] > '9' || *end != '\0' || n == 0 || n > 256) {
        wrong = std::string("threads is a number from 1 to 256, not \"") + option.value + "\"";
      }
      out.threads = static_cast<uint32_t>(n);
    } else {
      wrong = "a store of files has no option " + std::string(name);
    }
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string check_url(const kvbm_store_config_t& config) {
  const std::string_view path = config.path;
  if (config.authority[0] != '\0') {
    return std::string("a store of files is a directory of this host; write file:///") + config.authority +
           config.path + " with three slashes";
  }
  if (config.user[0] != '\0' || config.password[0] != '\0')
    return "a store of files takes no user or password; leave them out";
  const bool climbs = (std::string(path) + "/").find("/../") != std::string::npos;
  if (path.size() < 2 || path.find("//") != std::string_view::npos || climbs) {
    return "it needs the whole path of a directory without .. in it; write it as file:///mnt/shared/kv";
  }
  return {};
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();  // a trailing slash would follow a link
  return path;
}

// Returns whether the file system may be there later. The operations fail until then.
bool does_not_answer(int error) {
  return error == ESTALE || error == EIO || error == ETIMEDOUT || error == EHOSTDOWN || error == ENOTCONN;
}

kvbm_status_t open_checked(const kvbm_store_config_t& config, kvbm_store_facts_t& facts, void** out,
                           std::string& message) {
  message = check_url(config);
  Settings settings;
  if (message.empty()) message = read_settings(config, settings);
  if (!message.empty()) return KVBM_ERR_CONFIG;
  auto store = std::make_unique<Store>(config, without_slash(config.path), settings);
  const Place::Refusal refusal = store->place().open();
  if (does_not_answer(refusal.error)) {
    config.log(config.context, 1, refusal.sentence.c_str());
  } else if (refusal.error != 0) {
    message = refusal.sentence;
    return status_of(refusal.error) == KVBM_ERR_PERMISSION ? KVBM_ERR_PERMISSION : KVBM_ERR_CONFIG;
  }
  const std::string kind = store->place().file_system();
  if (settings.shared && store->place().is_local()) {
    const std::string text = store->place().path() + " is on " + kind +
                             ", which other hosts do not see: is the shared file "
                             "system mounted there? Without one, leave shared=on out";
    config.log(config.context, 1, text.c_str());
  }
  facts.features = KVBM_STORE_BLOCKS;
  facts.concurrency = settings.threads;
  std::snprintf(facts.description, sizeof facts.description, "file://%.110s (%s)", store->place().path().c_str(),
                kind.c_str());
  *out = store.release();
  return KVBM_OK;
}

kvbm_status_t open_store(const kvbm_store_config_t* config, uint64_t, kvbm_store_facts_t* out_facts, void** out_store,
                         char message[256]) {
  message[0] = '\0';
  *out_store = nullptr;
  if (config->struct_size < sizeof *config || out_facts->struct_size < sizeof *out_facts) {
    std::snprintf(message, 256, "this store needs a newer libkvbm; install both from one release");
    return KVBM_ERR_UNSUPPORTED;
  }
  try {
    std::string text;
    const kvbm_status_t status = open_checked(*config, *out_facts, out_store, text);
    std::snprintf(message, 256, "%s", text.c_str());
    return status;
  } catch (const std::bad_alloc&) {
    std::snprintf(message, 256, "there is no memory for it");
    return KVBM_ERR_NO_MEMORY;
  }
}

void start(void* store, kvbm_store_op_t* const* ops, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<Store*>(store)->run(*ops[i]);
}

void close_store(void* store) { delete static_cast<Store*>(store); }

constexpr kvbm_store_option_help_t kOptions[] = {
    {"shared", "on: a group may write the directory, and hosts share it; off: this user alone (default)"},
    {"sync",
     "on: an object is on the disk before it is visible (default); off: faster, and a crash may leave objects cut"},
    {"threads", "operations at a time, 1 to 256 (default 8)"},
};

}  // namespace

}  // namespace kvbm_file

extern "C" {
KVBM_API extern const kvbm_store_table_t kvbm_store_table;
const kvbm_store_table_t kvbm_store_table = {
    sizeof(kvbm_store_table_t), KVBM_STORE_ABI,   "file",  kvbm_file::kOptions,    std::size(kvbm_file::kOptions),
    kvbm_file::open_store,      kvbm_file::start, nullptr, kvbm_file::close_store,
};
}
