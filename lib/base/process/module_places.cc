#include "base/process/module_places.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdlib>

#ifndef KVBM_MODULE_DIR
#define KVBM_MODULE_DIR ""
#endif
#ifndef KVBM_MODULE_RELATIVE_DIR
#define KVBM_MODULE_RELATIVE_DIR "lib/kvbm"
#endif

namespace kvbm {

namespace {

// Returns the folder of the object that contains this function; empty if the loader does not know it.
std::string own_directory() {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(reinterpret_cast<const void*>(&own_directory), &info, reinterpret_cast<void**>(&map),
                RTLD_DL_LINKMAP) == 0 ||
      map == nullptr) {
    return {};
  }
  // The loader has no name for the program itself.
  const bool program = map->l_name == nullptr || map->l_name[0] == '\0';
  char* real = ::realpath(program ? "/proc/self/exe" : map->l_name, nullptr);
  if (real == nullptr) return {};
  const std::string path(real);
  std::free(real);
  return path.substr(0, path.rfind('/'));
}

}  // namespace

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string module_variable(const char* variable) {
  const char* text = ::secure_getenv(variable);
  return text == nullptr ? "" : text;
}

std::string module_path(const std::string& path) { return path.find('/') == std::string::npos ? "./" + path : path; }

std::vector<std::string> module_places(const std::string& file, const std::string& option, const char* variable) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& place) { out.push_back(is_directory(place) ? place + "/" + file : place); };
  if (!option.empty()) {
    add(option);
    return out;
  }
  if (const std::string named = module_variable(variable); !named.empty()) add(named);
  if (const std::string own = own_directory(); !own.empty()) {
    out.push_back(own + "/" + file);
    out.push_back(own + "/kvbm/" + file);
    out.push_back(own + "/../" KVBM_MODULE_RELATIVE_DIR "/" + file);
  }
  if (KVBM_MODULE_DIR[0] != '\0') out.push_back(std::string(KVBM_MODULE_DIR "/") + file);
  return out;
}

}  // namespace kvbm
