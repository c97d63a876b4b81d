#include "capi/plugin/store_module.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "base/config/edit_distance.h"
#include "base/process/library_loading.h"
#include "base/process/module_places.h"
#include "base/process/signal_keeper.h"
#include "base/thread/mutex.h"

namespace kvbm::capi {

namespace {

constexpr char kUnavailable[] = "store unavailable";
constexpr char kStorePath[] = "KVBM_STORE_PATH";
constexpr char kStoreSymbol[] = "kvbm_store_table";
constexpr std::string_view kStorePrefix = "libkvbm_store_";
constexpr std::string_view kStoreSuffix = ".so";
constexpr size_t kMostTableOptions = 256;

Status no_store(Code code, std::string detail) { return {code, kUnavailable, std::move(detail)}; }

std::string in_a_row(const auto& words) {
  std::string out;
  for (const auto& word : words) out.append(out.empty() ? "" : ", ").append(word);
  return out;
}

bool is_scheme(std::string_view text) {
  return !text.empty() && text.size() <= kMostSchemeBytes &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-") == std::string_view::npos;
}

// Returns the schemes of the stores in a directory, such as "file" for libkvbm_store_file.so.
std::set<std::string> schemes_in(const std::string& directory) {
  std::set<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
  while (const dirent* entry = open != nullptr ? ::readdir(open.get()) : nullptr) {
    std::string_view name = entry->d_name;
    if (!name.starts_with(kStorePrefix) || !name.ends_with(kStoreSuffix)) continue;
    name.remove_prefix(kStorePrefix.size());
    name.remove_suffix(std::min(name.size(), kStoreSuffix.size()));
    if (is_scheme(name)) out.emplace(name);
  }
  return out;
}

Status not_found(const std::string& scheme, const std::vector<std::string>& places) {
  std::set<std::string> here;
  for (const std::string& place : places) here.merge(schemes_in(place.substr(0, place.rfind('/'))));
  return no_store(Code::unsupported,
                  "nothing here is for " + scheme + ":// URLs (looked at " + in_a_row(places) + "); " +
                      (here.empty() ? "no store is here: install kvbm's stores, or name their folder by "
                                    : "there are stores for " + in_a_row(here) + "; install the one for " + scheme +
                                          ", or name its folder by ") +
                      kStorePath);
}

bool is_option_name(const char* name) {
  const size_t length = name == nullptr ? 0 : ::strnlen(name, 65);
  return length != 0 && length < 65 && std::strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == length;
}

// Returns the table of the library loaded from `path`, if it is as large as it states.
Result<const kvbm_store_table_t*> table_of(void* module, const std::string& path) {
  void* const symbol = ::dlsym(module, kStoreSymbol);
  if (symbol == nullptr) return no_store(Code::unsupported, path + " is no store: it has no " + kStoreSymbol);
  Dl_info info{};
  ElfW(Sym)* entry = nullptr;
  constexpr size_t kLeast = offsetof(kvbm_store_table_t, name);
  const bool known = ::dladdr1(symbol, &info, reinterpret_cast<void**>(&entry), RTLD_DL_SYMENT) != 0 &&
                     entry != nullptr && entry->st_size != 0;
  const auto* table = static_cast<const kvbm_store_table_t*>(symbol);
  if (known && (entry->st_size < kLeast || (table->abi == KVBM_STORE_ABI && entry->st_size < table->struct_size))) {
    return no_store(Code::damaged, path + " is no store: its " + kStoreSymbol + " has " +
                                       std::to_string(entry->st_size) + " bytes and needs " +
                                       std::to_string(sizeof *table) + "; build it against kvbm_plugin.h");
  }
  return table;
}

Result<const kvbm_store_table_t*> load_file_of_store(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & S_IWOTH) != 0) {
    return no_store(Code::not_permitted,
                    "everyone may write " + path + ", and it would be run as part of this process; chmod o-w it");
  }
  const MutexLock lock(library_loading);
  const SignalKeeper keeper;
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* why = ::dlerror();
    return no_store(Code::unsupported,
                    path + " does not load: " + (why == nullptr ? "the loader does not say why" : why));
  }
  auto table = table_of(module, path);
  if (!table.ok()) return table;
  if (Status s = check_store_table(table.value()); !s.ok()) return no_store(s.code(), path + ": " + s.detail());
  return table;
}

// Returns the nearest known option name; "" if none is known.
std::string nearest_option(const std::string& name, const kvbm_store_table_t& table,
                           std::span<const std::string_view> own) {
  std::vector<std::string> known(own.begin(), own.end());
  for (size_t i = 0; i < table.n_options; ++i) known.emplace_back(table.options[i].name);
  const auto best = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  return best == known.end() ? std::string() : *best;
}

}  // namespace

Status check_store_table(const kvbm_store_table_t* table) {
  if (table == nullptr) return no_store(Code::damaged, "it gives no table");
  if (table->abi != KVBM_STORE_ABI) {
    return no_store(Code::newer_version, "it speaks version " + std::to_string(table->abi) +
                                             " of kvbm's store interface and this library version " +
                                             std::to_string(KVBM_STORE_ABI) + "; install both from one release");
  }
  if (table->struct_size < sizeof *table) {
    return no_store(Code::damaged, "its table has " + std::to_string(table->struct_size) + " bytes and needs " +
                                       std::to_string(sizeof *table) +
                                       "; set struct_size to the size of kvbm_store_table_t");
  }
  if (table->open == nullptr || table->start == nullptr || table->close == nullptr) {
    return no_store(Code::damaged, "its table lacks open, start or close; all functions but cancel are required");
  }
  const size_t name_bytes = table->name == nullptr ? 0 : ::strnlen(table->name, kMostSchemeBytes + 1);
  if (!is_scheme({table->name, name_bytes})) {
    return no_store(Code::damaged, "its table's name has to be 1 to " + std::to_string(kMostSchemeBytes) +
                                       " of a to z, 0 to 9, + and -");
  }
  if (table->n_options > kMostTableOptions || (table->n_options != 0 && table->options == nullptr)) {
    return no_store(Code::damaged, "its table says that it has " + std::to_string(table->n_options) +
                                       " options; give an array of at most " + std::to_string(kMostTableOptions));
  }
  for (size_t i = 0; i < table->n_options; ++i) {
    if (is_option_name(table->options[i].name) && table->options[i].help != nullptr) continue;
    return no_store(Code::damaged,
                    "its option " + std::to_string(i) + " needs a name of a to z, 0 to 9, _ and -, and a help text");
  }
  return {};
}

Result<const kvbm_store_table_t*> load_store_module(const StoreUrl& url, const std::string& folder) {
  if (url.scheme == kPluginScheme) {
    if (!is_regular_file(url.path)) {
      return no_store(Code::unsupported, url.path + " is no file; plugin: takes the path of a store's library");
    }
    return load_file_of_store(url.path);
  }
  const std::string named = folder.empty() ? module_variable(kStorePath) : folder;
  if (!named.empty() && !is_directory(named)) {
    return no_store(Code::bad_config, named + " is no directory; it was named " +
                                          (folder.empty() ? "by KVBM_STORE_PATH" : "as the stores' folder"));
  }
  const std::string file = std::string(kStorePrefix) + url.scheme + std::string(kStoreSuffix);
  const std::vector<std::string> places = module_places(file, folder, kStorePath);
  for (const std::string& place : places) {
    if (is_regular_file(place)) return load_file_of_store(module_path(place));
  }
  return not_found(url.scheme, places);
}

Result<StoreOptions> split_store_options(const StoreUrl& url, const kvbm_store_table_t& table,
                                         std::span<const std::string_view> own) {
  StoreOptions out;
  for (const NamedText& option : url.options) {
    if (std::find(own.begin(), own.end(), option.name) != own.end()) {
      out.own.push_back(option);
    } else if (std::any_of(table.options, table.options + table.n_options,
                           [&](const auto& known) { return option.name == known.name; })) {
      out.of_store.push_back({option.name.c_str(), option.text.c_str()});
    } else {
      const std::string near = nearest_option(option.name, table, own);
      return Status(Code::bad_config, "unknown option of a store",
                    std::string(table.name) + " has no option " + option.name +
                        (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }
  return out;
}

}  // namespace kvbm::capi
