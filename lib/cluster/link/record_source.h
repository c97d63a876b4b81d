// Source of the records that a node serves to its peers: the serving half of a link asks it. The node's tiers are
// behind it. Called on the link's thread; no call blocks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "cluster/wire/wire.h"
#include "codec/record/record.h"

namespace kvbm::cluster {

// A record, or the bytes of some leaves of it, that stays in place until close().
struct OpenedRecord {
  Code code = Code::miss;  // ok, or the error
  ConstBytes head;         // whole
  ConstBytes payload;      // of the requested leaves
  uint64_t pin = 0;        // for close(), if ok
};

// A peer's report that a namespace has this epoch, and its result.
struct EpochWord {
  NamespaceId base;    // of epoch 0
  uint64_t epoch = 0;  // 0: the peer asks
  // Results.
  Code code = Code::ok;  // ok: no older epoch can be found here; invalid_argument: it is not plausible; no_room; ...
  uint64_t known = 0;    // this node's epoch of the namespace
  bool added = false;    // has got a new row in the table of epochs
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // Finds records from memory. out has as many elements as ids.
  virtual void find(std::span<const Identity> ids, std::span<wire::FoundItem> out) = 0;
  // Holds a record against eviction; nests. False: it is not there (any more).
  virtual bool pin(const Identity& id) = 0;
  // Limits of the records that all peers together may lease, and may have open: records in memory cannot be moved
  // elsewhere meanwhile.
  struct Room {
    uint64_t leased = UINT64_MAX;
    uint64_t open = UINT64_MAX;
  };
  [[nodiscard]] virtual Room room() const noexcept { return {}; }
  virtual void unpin(const Identity& id) = 0;
  // Opens a record. `done` runs exactly once, inside the call or later. A record given with Code::ok must be closed
  // with close(), even if the requesting link is gone. location is a hint that may be wrong. leaves 0: all from
  // first_leaf on.
  virtual void open(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves, uint64_t deadline_ns,
                    UniqueFunction<void(const OpenedRecord&)> done) = 0;
  // Opens a record coded or sealed, for a peer that can decode it: the result is a record that proves itself, coded
  // or plain. A source that codes nothing opens it plain.
  virtual void open_coded(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves,
                          const wire::Coding& /*coding*/, uint64_t deadline_ns,
                          UniqueFunction<void(const OpenedRecord&)> done) {
    open(id, location, first_leaf, leaves, deadline_ns, std::move(done));
  }
  virtual void close(uint64_t pin) = 0;
  virtual wire::NodeStatus status() = 0;
  // Takes new epochs that a peer reports. `done` runs exactly once, on the links' thread, when the older ones can no
  // longer be found, also after a restart. `may_add`: limit of new rows for namespaces not used here.
  virtual void invalidate(std::vector<EpochWord> words, uint32_t may_add,
                          UniqueFunction<void(std::vector<EpochWord>)> done) = 0;
  // Returns the epochs of namespaces here, for a peer that was offline when they were raised; the most important
  // first. `done` runs exactly once, on the links' thread.
  virtual void epochs(UniqueFunction<void(std::vector<NamespaceEpoch>)> done) { done({}); }
};

// Place of leaves [first, first + n) in a payload; n = 0: all from first on. invalid_argument beyond the end.
struct PayloadRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
Result<PayloadRange> leaves_range(const codec::HeadView& head, uint32_t first, uint32_t n);

// Checks bytes that a peer pushed: a complete head with this family and key, which is returned, followed by as many
// bytes as those leaves have. The leaves themselves are checked when they are copied out, in the same pass. damaged: no
// head, or wrong lengths; mismatch: another record.
Result<codec::HeadView> check_arrival(ConstBytes bytes, const Family& family, const Key& key, uint32_t first_leaf,
                                      uint32_t leaves);

}  // namespace kvbm::cluster
