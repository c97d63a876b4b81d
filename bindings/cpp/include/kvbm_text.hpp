// kvbm_text.hpp - what objects and rows print as: kvbm::to_string(x), or out << x; a part of kvbm.hpp.
//
// SPDX-License-Identifier: Apache-2.0
//
// Objects say their kind, what tells them from others, and whether they are closed. In rows, statuses, operations,
// kinds of events and tiers are names; op_name(), event_name() and tier_name() name them on their own, as
// kvbm_status_name() does statuses. A number that this version does not know is given as a number.
#ifndef KVBM_TEXT_HPP
#define KVBM_TEXT_HPP

#include <kvbm.hpp>

#include <cstdio>
#include <ostream>

namespace kvbm {

inline std::string op_name(uint32_t op) {
  switch (op) {
    case KVBM_OP_STORE: return "store";
    case KVBM_OP_LOAD: return "load";
    case KVBM_OP_PREFETCH: return "prefetch";
    case KVBM_OP_OFFLOAD: return "offload";
    case KVBM_OP_OFFER: return "offer";
    case KVBM_OP_RECEIVE: return "receive";
    case KVBM_OP_LAYER: return "layer";
    default: return "operation " + std::to_string(op);
  }
}
inline std::string event_name(uint32_t kind) {
  switch (kind) {
    case KVBM_EVENT_STORED: return "stored";
    case KVBM_EVENT_REMOVED: return "removed";
    case KVBM_EVENT_CLEARED: return "cleared";
    case KVBM_EVENT_DISABLED: return "disabled";
    default: return "event " + std::to_string(kind);
  }
}
inline std::string tier_name(uint32_t tier) {
  return tier == 0 ? "host" : tier == KVBM_NO_TIER ? "no tier" : "tier " + std::to_string(tier);
}

namespace detail {
inline std::string shown(const char* name, bool there, const std::string& facts = {}) {
  return std::string("kvbm::") + name + "(" + facts + (there ? "" : facts.empty() ? "closed" : ", closed") + ")";
}
inline std::string hex(const uint8_t* bytes, std::size_t n) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  return out;
}
inline std::string hex(const kvbm_key_t& key) { return hex(key.bytes, sizeof key.bytes); }
inline std::string counted(std::size_t n, const char* what) { return std::to_string(n) + " " + what; }
}  // namespace detail

inline std::string to_string(const Context& c) { return detail::shown("Context", c.get() != nullptr); }
inline std::string to_string(const Queue& q) { return detail::shown("Queue", q.get() != nullptr); }
inline std::string to_string(const Geometry& g) {
  char fingerprint[17] = "";
  if (g) std::snprintf(fingerprint, sizeof fingerprint, "%016llx", static_cast<unsigned long long>(g.fingerprint()));
  return detail::shown("Geometry", static_cast<bool>(g), fingerprint);
}
inline std::string to_string(const Namespace& n) {
  return detail::shown("Namespace", static_cast<bool>(n), n ? detail::hex(n.id().data(), n.id().size()) : "");
}
inline std::string to_string(const Manager& m) { return detail::shown("Manager", m.get() != nullptr); }
inline std::string to_string(const Cache& c) {
  return detail::shown("Cache", c.get() != nullptr, "parts " + std::to_string(c.parts()));
}
inline std::string to_string(const Offer& o) { return detail::shown("Offer", o.get() != nullptr); }
inline std::string to_string(const Session& s) { return detail::shown("Session", s.get() != nullptr); }
// An empty one, of a lookup that hit nothing, is no closed one.
inline std::string to_string(const Match& m) {
  return detail::shown("Match", true, "hits " + std::to_string(m.hits()));
}
inline std::string to_string(const Blocks& b) { return detail::shown("Blocks", true, std::to_string(b.size())); }

template <class T, class = decltype(kvbm::to_string(std::declval<const T&>()))>
std::ostream& operator<<(std::ostream& out, const T& object) {
  return out << kvbm::to_string(object);
}

// The rows are structs of C, outside of this namespace: kvbm::to_string() has to be said.
inline std::string to_string(const kvbm_completion_t& c) {
  return "completion(" + op_name(c.op) + ", " + kvbm_status_name(c.status) + ", " + std::to_string(c.items_done) +
         " of " + detail::counted(c.items, "items, ") + detail::counted(c.bytes, "bytes)");
}
inline std::string to_string(const kvbm_event_t& e) {
  return "event(" + std::to_string(e.sequence) + ", " + event_name(e.kind) + ", " + tier_name(e.tier) + ", " +
         detail::hex(e.key) + ")";
}
inline std::string to_string(const kvbm_match_item_t& i) {
  return "match item(" + tier_name(i.tier) + ", " + detail::counted(i.bytes, "bytes)");
}
inline std::string to_string(const kvbm_scan_row_t& r) {
  return "scan row(" + tier_name(r.tier) + ", " + detail::hex(r.key) + ", " + detail::counted(r.bytes, "bytes)");
}
inline std::string to_string(const kvbm_location_t& l) {
  return "location(" + detail::hex(l.node, sizeof l.node) + ", " + tier_name(l.tier) + ", " +
         detail::counted(l.n_prefix, "keys)");
}
// Of a batch, in order.
inline std::string to_string(Span<const kvbm_status_t> statuses) {
  std::string out;
  for (const kvbm_status_t status : statuses) out += (out.empty() ? "" : ", ") + std::string(kvbm_status_name(status));
  return "[" + out + "]";
}

}  // namespace kvbm

#endif  // KVBM_TEXT_HPP
