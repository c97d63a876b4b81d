#include "answers.h"

#include <charconv>

namespace kvbm_redis {
namespace {

struct Known {
  const char* begins;
  kvbm_status_t status;
  const char* clause;
};
constexpr Known kKnown[] = {
    {"OOM", KVBM_ERR_DISK_FULL,
     "its memory is full and it evicts nothing: raise maxmemory or set maxmemory-policy allkeys-lru"},
    {"LOADING", KVBM_ERR_AGAIN, "it is loading its data"},
    {"BUSY", KVBM_ERR_AGAIN, "it is busy with a script"},
    {"TRYAGAIN", KVBM_ERR_AGAIN, "a slot is being moved"},
    {"CLUSTERDOWN", KVBM_ERR_AGAIN, "the cluster is down: see CLUSTER INFO"},
    {"MASTERDOWN", KVBM_ERR_AGAIN, "it is a replica whose master is down"},
    {"MISCONF", KVBM_ERR_AGAIN, "it takes no writes, for it cannot save to its disk: see its log"},
    {"NOREPLICAS", KVBM_ERR_AGAIN, "it takes no writes, for too few replicas follow it"},
    {"READONLY", KVBM_ERR_CONFIG, "it is a replica: give the address of its master"},
    {"NOAUTH", KVBM_ERR_PERMISSION, "it wants a password: give it in KVBM_REDIS_PASSWORD or the URL"},
    {"WRONGPASS", KVBM_ERR_PERMISSION, "wrong user or password"},
    {"NOPERM", KVBM_ERR_PERMISSION,
     "the user lacks permission: allow ~PREFIX:* and the commands in docs/stores-redis.md"},
    {"DENIED", KVBM_ERR_PERMISSION, "it is in protected mode: set a password there, or protected-mode no"},
    {"WRONGTYPE", KVBM_ERR_CONFIG, "another program uses this key: set another prefix"},
    {"ERR invalid password", KVBM_ERR_PERMISSION, "wrong password"},
    {"ERR Client sent AUTH", KVBM_ERR_PERMISSION, "it has no password: leave the password out"},
    {"ERR AUTH", KVBM_ERR_PERMISSION, "it has no password: leave the password out"},
    {"ERR wrong number of arguments for 'auth'", KVBM_ERR_PERMISSION,
     "it is older than Redis 6 and has no users: leave the user out"},
    {"ERR max number of clients", KVBM_ERR_AGAIN, "it has too many connections: raise maxclients"},
    {"ERR DB index", KVBM_ERR_CONFIG, "it has no database of this number: correct the URL's path"},
    {"ERR invalid DB index", KVBM_ERR_CONFIG, "it has no database of this number: correct the URL's path"},
    {"ERR SELECT is not allowed", KVBM_ERR_CONFIG, "a cluster has database 0 only: correct the URL's path"},
    {"ERR string exceeds", KVBM_ERR_CONFIG, "a value is too large for it: set a smaller part"},
    {"ERR Protocol error: invalid bulk", KVBM_ERR_CONFIG, "a value is too large for it: set a smaller part"},
    {"ERR This instance has cluster support disabled", KVBM_ERR_CONFIG, "it is no cluster: leave cluster=on out"},
};

}  // namespace

std::string for_people(std::string_view text, size_t room) {
  std::string out(text.substr(0, room));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = ' ';
  }
  return out;
}

Verdict judge_error(std::string_view error, const std::string& where) {
  for (const Known& known : kKnown) {
    if (error.starts_with(known.begins)) {
      return {known.status, where + ": " + known.clause, false,
              known.status == KVBM_ERR_CONFIG && error.starts_with("READONLY")};
    }
  }
  if (error.starts_with("MOVED") || error.starts_with("ASK ")) {
    return {KVBM_ERR_CONFIG, where + " is a cluster: leave cluster=off out", false, false};
  }
  // The server repeats an unknown command's words after this text, and one of them may be a password.
  error = error.substr(0, error.find(", with args"));
  if (error.starts_with("ERR unknown command")) {
    return {KVBM_ERR_CONFIG, where + " lacks a command: " + for_people(error.substr(4), 50), false, false};
  }
  return {KVBM_ERR_IO, where + ": " + for_people(error, 80), false, false};
}

Verdict judge_garbage(std::string_view line, const std::string& where, bool is_tls) {
  if (line.starts_with("HTTP/"))
    return {KVBM_ERR_CONFIG, where + " is an HTTP server, not Redis: correct the URL", true, true};
  if (!is_tls && line.starts_with('\x15')) return {KVBM_ERR_CONFIG, where + " speaks TLS: write rediss://", true, true};
  return {KVBM_ERR_CONFIG, "what answers at " + where + " is not Redis: correct the URL", true, true};
}

bool read_redirect(std::string_view error, Redirect* out) {
  out->is_ask = error.starts_with("ASK ");
  if (!out->is_ask && !error.starts_with("MOVED ")) return false;
  error.remove_prefix(error.find(' ') + 1);
  const size_t space = error.find(' ');
  const size_t colon = error.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) return false;
  out->host = error.substr(space + 1, colon - space - 1);
  if (out->host.size() > 253) return false;
  const auto slot = std::from_chars(error.data(), error.data() + space, out->slot);
  const auto port = std::from_chars(error.data() + colon + 1, error.data() + error.size(), out->port);
  return slot.ec == std::errc() && slot.ptr == error.data() + space && out->slot < 16384 && port.ec == std::errc() &&
         port.ptr == error.data() + error.size() && out->port != 0;
}

unsigned slot_of(std::string_view key) {
  uint16_t crc = 0;  // CRC-16/XMODEM
  for (const char c : key) {
    crc = static_cast<uint16_t>(crc ^ (static_cast<uint8_t>(c) << 8));
    for (int bit = 0; bit < 8; ++bit) crc = static_cast<uint16_t>((crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021 : 0));
  }
  return crc % 16384;
}

}  // namespace kvbm_redis
