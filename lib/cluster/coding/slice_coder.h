// Coding and sealing of sessions' slices on links: session::SliceCoder over LinkCoder.
//
// As for records: lossless, in the mode that the choice for that node finds shorter (or the configured one), and
// always sealed if there are keys. `auto` codes nothing for a node on this machine with memory mapped here. Tasks of
// the core's executor do the work, in the slot and one buffer for each running task. Tasks of the links' executor
// report the results. Thread: the links'.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/memory/memory.h"
#include "base/thread/executor.h"
#include "cluster/coding/link_coder.h"
#include "cluster/session/coded_slice.h"

namespace kvbm::cluster {

class LinkSliceCoder final : public session::SliceCoder {
 public:
  struct Options {
    std::shared_ptr<LinkCoder> coder;
    Executor* core = nullptr;
    std::function<std::optional<NodeId>(session::PeerId)> node_of;
    // Returns true if the node's memory is read in place; may be null.
    std::function<bool(const NodeId&)> in_place;
  };
  // The executors outlive this object, the links' until detach().
  LinkSliceCoder(Options options, Executor& links);
  ~LinkSliceCoder() override;
  LinkSliceCoder(const LinkSliceCoder&) = delete;
  LinkSliceCoder& operator=(const LinkSliceCoder&) = delete;

  // Keeps the memory of the slots for as long as tasks may touch it.
  void keep(std::shared_ptr<Arena> staging);
  // Must run before the links' executor is destroyed: nothing is reported any more.
  void detach();

  [[nodiscard]] bool seals() const override { return options_.coder->seals(); }
  Asked ask(session::PeerId peer, uint64_t bytes, bool again) override;
  bool take_plain(session::PeerId peer) override;
  void decode(session::PeerId peer, const session::SliceInSlot& slice, uint64_t bytes, Done done) override;
  void ended(const Asked& asked, Came how) override;
  [[nodiscard]] Plan plan(const wire::Coding& coding) const override;
  void gave_plain() override { options_.coder->count_plain_given(); }
  void encode(const session::SliceInSlot& slice, const wire::Coding& coding, Done done) override;

 private:
  struct Shared;
  void post(UniqueFunction<std::pair<Status, uint64_t>(Shared&)> work, Done done);
  [[nodiscard]] NodeId node_of(session::PeerId peer) const { return options_.node_of(peer).value_or(NodeId{}); }

  const Options options_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace kvbm::cluster
