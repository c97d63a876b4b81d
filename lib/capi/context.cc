#include <utility>

#include "base/os_file.h"
#include "capi/guard.h"
#include "capi/handles.h"

using kvbm::Code;
using kvbm::capi::fail;
using kvbm::capi::guarded;

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
    auto core = std::make_shared<kvbm::capi::Context>();
    auto executor = kvbm::ThreadExecutor::create("core", given.threads == 0 ? 2 : given.threads);
    if (!executor.ok()) return fail(err, executor.status());
    core->executor = std::move(executor).value();
    auto files = kvbm::make_os_file_system(*core->executor, {});
    if (!files.ok()) return fail(err, files.status());
    core->files = std::move(files).value();
    *out_context = new kvbm_context{std::move(core)};
    return kvbm::capi::done(err);
  });
}

void kvbm_context_release(kvbm_context_t* context) { delete context; }

}  // extern "C"
