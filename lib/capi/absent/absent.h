// Answers calls of parts that were left out of this build (cmake/parts.cmake).
#pragma once

#include "base/status.h"
#include "capi/guard.h"

namespace kvbm::capi {

inline constexpr const char* kNoCluster =
    "this library was built without nodes and shared tier sets (KVBM_WITH_CLUSTER=OFF)";
inline constexpr const char* kNoSessions =
    "this library was built without prefill to decode sessions (KVBM_WITH_SESSIONS=OFF)";
inline constexpr const char* kNoDevice = "this library was built without caches on GPUs (KVBM_WITH_DEVICE=OFF)";
inline constexpr const char* kNoCoding = "this library was built without codecs and sealing (KVBM_WITH_CODING=OFF)";

inline constexpr const char* kNoDisk = "this library was built without disks (KVBM_WITH_DISK=OFF)";
inline constexpr const char* kNoPlugins = "this library was built without stores and plug-ins (KVBM_WITH_PLUGINS=OFF)";

inline Status absent(const char* part) { return {Code::unsupported, part}; }
inline kvbm_status_t absent(kvbm_error_t* err, const char* part) noexcept { return fail(err, Code::unsupported, part); }

}  // namespace kvbm::capi
