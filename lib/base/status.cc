#include "base/status.h"

namespace kvbm {

namespace {

struct CodeRow {
  Code code;
  const char* name;
  const char* text;
};

constexpr CodeRow kRows[] = {
    {Code::ok, "KVBM_OK", "done"},
    {Code::partial, "KVBM_PARTIAL", "part of the batch was done; read the status of each item"},
    {Code::invalid_argument, "KVBM_ERR_INVALID", "an argument is not allowed here; fix the call"},
    {Code::stale_handle, "KVBM_ERR_STALE", "the handle was released or consumed before; keep one owner per hold"},
    {Code::foreign_handle, "KVBM_ERR_FOREIGN", "the handle belongs to another manager, or never was one"},
    {Code::wrong_state, "KVBM_ERR_STATE", "the block is not in the state that this call needs"},
    {Code::forked, "KVBM_ERR_FORKED", "called in a forked child; create a context of its own after fork"},
    {Code::bad_config, "KVBM_ERR_CONFIG", "the configuration is not valid; the detail names the key and its origin"},
    {Code::in_use, "KVBM_ERR_IN_USE", "another owner holds it; stop that owner or choose another directory"},
    {Code::exists, "KVBM_ERR_EXISTS", "it is there already; nothing was changed"},
    {Code::at_limit, "KVBM_ERR_LIMIT",
     "as many as the library counts are in use (pins, holds, namespaces, quotas, epochs, sessions); end some that are "
     "not needed"},
    {Code::no_room, "KVBM_ERR_NO_ROOM", "no room and nothing may be evicted; release holds or raise the capacity"},
    {Code::over_quota, "KVBM_ERR_QUOTA", "the namespace has used its quota; raise it or drop some of its blocks"},
    {Code::again, "KVBM_ERR_AGAIN", "not possible yet: operations are in flight, or it has not ended; poll and retry"},
    {Code::no_memory, "KVBM_ERR_NO_MEMORY", "the system refused memory"},
    {Code::disk_full, "KVBM_ERR_DISK_FULL", "the file system is full; free space or lower the tier's capacity"},
    {Code::deadline, "KVBM_ERR_DEADLINE", "the deadline passed before it was done"},
    {Code::cancelled, "KVBM_ERR_CANCELLED", "it was cancelled"},
    {Code::owner_gone, "KVBM_ERR_OWNER_GONE",
     "the process at the other end is gone: the owner of a tier set, or a peer of a session; retry"},
    {Code::closed, "KVBM_ERR_CLOSED", "the object is being released"},
    {Code::miss, "KVBM_ERR_MISS", "the block is not here; compute it"},
    {Code::damaged, "KVBM_ERR_DAMAGED", "the stored bytes failed verification and were quarantined; compute the block"},
    {Code::mismatch, "KVBM_ERR_MISMATCH", "the stored block does not fit what was asked for; compute it"},
    {Code::unsupported, "KVBM_ERR_UNSUPPORTED", "not supported here; the detail says what is missing"},
    {Code::newer_version, "KVBM_ERR_VERSION",
     "written by a newer format or library; upgrade, or use another directory"},
    {Code::not_permitted, "KVBM_ERR_PERMISSION", "the system does not permit it; check owner, mode and limits"},
    {Code::internal, "KVBM_ERR_INTERNAL", "a fault inside kvbm; please report it with the detail"},
    {Code::io_error, "KVBM_ERR_IO", "the system reported an input/output error; see the detail"},
    {Code::tier_disabled, "KVBM_ERR_TIER_DISABLED",
     "the tier or the device was disabled after a fault; see events and log"},
};

const CodeRow* find(Code code) noexcept {
  for (const CodeRow& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

const char* code_name(Code code) noexcept {
  const CodeRow* row = find(code);
  return row != nullptr ? row->name : "KVBM_ERR_UNKNOWN";
}

const char* code_text(Code code) noexcept {
  const CodeRow* row = find(code);
  return row != nullptr ? row->text : "a status this version of kvbm does not know";
}

std::string Status::message() const {
  std::string out = what_;
  if (detail_ != nullptr && !detail_->empty()) {
    if (!out.empty()) out += ": ";
    out += *detail_;
  }
  return out;
}

}  // namespace kvbm
