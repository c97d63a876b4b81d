// What a node gives to its peers: the serving half of a link asks this for records. The node's tiers stand behind it.
// Called on the link's thread; nothing here blocks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "cluster/wire.h"
#include "codec/record.h"

namespace kvbm::cluster {

// A record, or the bytes of some leaves of it, that stays in place until close().
struct OpenedRecord {
  Code code = Code::miss;  // ok, or why not
  ConstBytes head;         // whole
  ConstBytes payload;      // of the leaves asked for
  uint64_t pin = 0;        // for close(), if ok
};

// What a peer says of a namespace: that it has come to this epoch; and what came of it.
struct EpochWord {
  NamespaceId base;        // of epoch 0
  uint64_t epoch = 0;      // 0: the peer asks
  // out
  Code code = Code::ok;    // ok: no older epoch can be found here; invalid_argument: it is not plausible; no_room; ...
  uint64_t known = 0;      // the epoch that it has come to here
  bool added = false;      // it takes a place in the table of epochs that it did not take before
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // From memory. out has as many places as ids.
  virtual void find(std::span<const Identity> ids, std::span<wire::FoundItem> out) = 0;
  // Holds a record against eviction; nests. False: it is not there (any more).
  virtual bool pin(const Identity& id) = 0;
  // How many records all peers together may hold by leases, and how many may be open for them: what lies in memory has no
  // other place to go to.
  struct Room {
    uint64_t leased = UINT64_MAX;
    uint64_t open = UINT64_MAX;
  };
  [[nodiscard]] virtual Room room() const noexcept { return {}; }
  virtual void unpin(const Identity& id) = 0;
  // `done` runs exactly once, inside the call or later; what it gave with Code::ok is given back by close(), also when
  // the link that asked is gone. location is a hint that may be wrong. leaves 0: all from first_leaf on.
  virtual void open(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves, uint64_t deadline_ns,
                    UniqueFunction<void(const OpenedRecord&)> done) = 0;
  // The same, coded or sealed, for who can decode it: what comes is a record that proves itself, coded or plain. A
  // source that codes nothing gives it plain.
  virtual void open_coded(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves,
                          const wire::Coding& /*coding*/, uint64_t deadline_ns,
                          UniqueFunction<void(const OpenedRecord&)> done) {
    open(id, location, first_leaf, leaves, deadline_ns, std::move(done));
  }
  virtual void close(uint64_t pin) = 0;
  virtual wire::NodeStatus status() = 0;
  // A peer says that namespaces have new epochs. `done` runs exactly once, on the links' thread, when the older ones can no
  // longer be found, also after a restart. `may_add`: of namespaces that nobody uses here, so many new ones at most.
  virtual void invalidate(std::vector<EpochWord> words, uint32_t may_add,
                          UniqueFunction<void(std::vector<EpochWord>)> done) = 0;
  // The epochs that namespaces have come to here, for a peer that was not there when they did; those that matter most come
  // first. `done` runs exactly once, on the links' thread.
  virtual void epochs(UniqueFunction<void(std::vector<NamespaceEpoch>)> done) { done({}); }
};

// Where the bytes of leaves [first, first + n) lie in a payload; n = 0: all from first on. invalid_argument beyond the
// end.
struct PayloadRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
Result<PayloadRange> leaves_range(const codec::HeadView& head, uint32_t first, uint32_t n);

// Checks what a peer pushed: a head that is whole and says this family and key, and after it as many bytes as those
// leaves have. The leaves themselves are checked by whoever copies them out, in the same pass.
// damaged: no head, or wrong lengths; mismatch: another record.
struct Arrival {
  codec::HeadView head;
  ConstBytes payload;  // of the leaves asked for
};
Result<Arrival> check_arrival(ConstBytes bytes, const Family& family, const Key& key, uint32_t first_leaf,
                              uint32_t leaves);

}  // namespace kvbm::cluster
