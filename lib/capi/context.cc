#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/config/config.h"
#include "base/io/os_file.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/common/options.h"

extern char** environ;

using kvbm::Code;
using kvbm::NamedText;
using kvbm::Result;
using kvbm::Status;
using kvbm::capi::Context;
using kvbm::capi::fail;
using kvbm::capi::guarded;

namespace {

// Size limit of a configuration file.
constexpr size_t kMaxConfigBytes = 1 << 20;

Result<std::string> read_text(const char* path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), &std::fclose);
  if (file == nullptr) return Status(Code::bad_config, "the configuration file cannot be opened", path);
  std::string text;
  char page[4096];
  size_t n = 0;
  while ((n = std::fread(page, 1, sizeof page, file.get())) != 0) {
    text.append(page, n);
    if (text.size() > kMaxConfigBytes)
      return Status(Code::bad_config, "the configuration file is larger than 1 MiB", path);
  }
  if (std::ferror(file.get()) != 0) return Status(Code::bad_config, "the configuration file cannot be read", path);
  return text;
}

std::vector<NamedText> environment() {
  std::vector<NamedText> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (text.rfind("KVBM_", 0) == 0 && equals != std::string::npos) {
      out.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
  }
  return out;
}

// Merges, in rising precedence: defaults that fit the machine, the file, the environment, the settings.
Result<kvbm::OptionSet> resolve(const kvbm_context_options_t& given, const kvbm::MachineLimits& limits) {
  kvbm::ConfigSources sources;
  const char* path = given.config_file != nullptr ? given.config_file : std::getenv("KVBM_CONFIG");
  std::string text;
  if (path != nullptr && *path != '\0') {
    auto read = read_text(path);
    if (!read.ok()) return read.status();
    text = std::move(read).value();
    sources.file_name = path;
    sources.file_text = text;
  }
  const std::vector<NamedText> variables = environment();
  std::vector<NamedText> settings;
  for (size_t i = 0; i < given.n_settings; ++i) {
    if (given.settings[i].key == nullptr || given.settings[i].value == nullptr) {
      return Status(Code::invalid_argument, "a setting has a NULL key or value");
    }
    settings.push_back({given.settings[i].key, given.settings[i].value});
  }
  if (given.threads != 0) settings.push_back({"threads", std::to_string(given.threads)});
  sources.environment = variables;
  sources.ignored_environment = {"KVBM_CONFIG", "KVBM_LIBRARY_PATH", "KVBM_PREFIX", "KVBM_STORE_PATH", "KVBM_UCX_PATH"};
  sources.options = settings;
  auto config = kvbm::resolve_config(kvbm::manager::option_schema(), sources);
  if (config.ok()) kvbm::manager::fit_defaults(config.value(), limits);
  return config;
}

// Passes a message of the core to the caller's callback as one line.
void deliver(void* user, const kvbm::LogMessage& message) {
  const auto* context = static_cast<const Context*>(user);
  std::string text(message.text);
  for (size_t i = 0; i < message.n_fields; ++i) {
    text += ' ';
    text.append(message.fields[i].key).append("=").append(message.fields[i].value);
  }
  const std::string component(message.component);
  context->log_callback(context->log_user, static_cast<int32_t>(message.level) + 1, component.c_str(), text.c_str());
}

Status start(Context& context) {
  if (Status s = context.random.ready(); !s.ok()) return s;
  const auto& values = context.config.values;
  auto executor = kvbm::ThreadExecutor::create("core", static_cast<uint32_t>(values.at("threads").number));
  if (!executor.ok()) return executor.status();
  context.executor = std::move(executor).value();
  kvbm::OsFileOptions io;
  const std::string& engine = values.at("io.engine").text;
  io.engine = engine == "uring"   ? kvbm::IoEngineChoice::uring
              : engine == "pread" ? kvbm::IoEngineChoice::pread
                                  : kvbm::IoEngineChoice::automatic;
  io.log = &context.log;
  io.pread_threads = static_cast<uint32_t>(values.at("io.threads").number);
  auto files = kvbm::make_os_file_system(*context.executor, io);
  if (!files.ok()) return files.status();
  context.files = std::move(files).value();
  return {};
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_context_options_init(kvbm_context_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_context_options_t{});
}

kvbm_status_t kvbm_context_create(const kvbm_context_options_t* options, kvbm_context_t** out_context,
                                  kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (out_context == nullptr) return fail(err, Code::invalid_argument, "out_context is NULL");
    kvbm_context_options_t given{};
    if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
    if (given.reserved != 0) return fail(err, Code::unsupported, "options.reserved must be zero");
    if (given.settings == nullptr && given.n_settings != 0)
      return fail(err, Code::invalid_argument, "settings is NULL");
    if (kvbm::capi::too_many(given.n_settings)) return fail(err, kvbm::capi::refuse_count("options.n_settings"));
    if (given.log_level < KVBM_LOG_OFF || given.log_level > KVBM_LOG_DEBUG) {
      return fail(err, Code::invalid_argument, "log_level is not a KVBM_LOG_* value");
    }
    auto core = std::make_shared<Context>();
    core->limits = kvbm::read_machine_limits();
    auto config = resolve(given, core->limits);
    if (!config.ok()) return fail(err, config.status());
    core->config = std::move(config).value();
    core->log_callback = given.log;
    core->log_user = given.log_user;
    if (given.log != nullptr) {
      const int32_t level = given.log_level == KVBM_LOG_OFF ? KVBM_LOG_WARNING : given.log_level;
      core->log.set_sink(&deliver, core.get(), static_cast<kvbm::LogLevel>(level - 1));
    }
    const Status started = start(*core);
    if (!started.ok()) return fail(err, started);
    *out_context = new kvbm_context{std::move(core)};
    return kvbm::capi::done(err);
  });
}

void kvbm_context_release(kvbm_context_t* context) {
  if (context != nullptr) kvbm::capi::drop(context, *context->core);
}

kvbm_status_t kvbm_context_config(const kvbm_context_t* context, char* out, size_t capacity, size_t* out_needed) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_needed != nullptr) *out_needed = 0;
    if (context == nullptr) return kvbm::capi::invalid("context is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*context->core, nullptr);
    if (here != KVBM_OK) return here;
    const std::string text = kvbm::print_config(kvbm::manager::option_schema(), context->core->config);
    return kvbm::capi::copy_text(text.data(), text.size(), out, capacity, out_needed);
  });
}

kvbm_status_t kvbm_config_reference(char* out, size_t capacity, size_t* out_needed) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    const std::string text = kvbm::document_config(kvbm::manager::option_schema());
    return kvbm::capi::copy_text(text.data(), text.size(), out, capacity, out_needed);
  });
}

}  // extern "C"
