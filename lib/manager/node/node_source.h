// Serves a manager's records to other nodes: cluster::RecordSource over all of its tiers.
//
// Thread: the links' only; answers from other threads are posted there. Records are lent (manager/operation/lend.h).
// Pins that a peer's lease keeps are references of host slots, or pins of the tier that has the record. All of them end
// with this object, which is destroyed after the links. A record still being read when the source was detached is
// released on arrival, without an answer.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>

#include "base/thread/executor.h"
#include "base/thread/weak_executor.h"
#include "cluster/link/record_source.h"
#include "manager/namespaces/namespaces.h"
#include "manager/operation/lend.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

class NodeSource final : public cluster::RecordSource {
 public:
  // links: executor of the links.
  NodeSource(std::shared_ptr<TierStack> stack, Namespaces& namespaces, Executor& links);
  ~NodeSource() override;
  NodeSource(const NodeSource&) = delete;
  NodeSource& operator=(const NodeSource&) = delete;

  void find(std::span<const Identity> ids, std::span<cluster::wire::FoundItem> out) override;
  bool pin(const Identity& id) override;
  void unpin(const Identity& id) override;
  // Half of the host's slots for leases, a quarter for open records; stores and reads of this process have the rest.
  [[nodiscard]] Room room() const noexcept override {
    const uint64_t slots = stack_->host().arena().slots();
    return {std::max<uint64_t>(slots / 2, 1), std::max<uint64_t>(slots / 4, 1)};
  }
  void open(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves, uint64_t deadline_ns,
            UniqueFunction<void(const cluster::OpenedRecord&)> done) override;
  void close(uint64_t pin) override;
  cluster::wire::NodeStatus status() override;
  void invalidate(std::vector<cluster::EpochWord> words, uint32_t may_add,
                  UniqueFunction<void(std::vector<cluster::EpochWord>)> done) override;
  void epochs(UniqueFunction<void(std::vector<NamespaceEpoch>)> done) override;

  // Reports no space for leases: for a node that others cannot reach. Called before the links begin.
  void offer_no_room() noexcept { offers_room_ = false; }
  // Counts reports of epochs by peers as this process's own, for peers that are processes of this tier set. Called
  // before the links begin.
  void trust_epochs() noexcept { trusts_epochs_ = true; }
  // Stops answering; called before the links' executor is destroyed.
  void detach() { links_->close(); }

  // The links' thread until detach(); for work that ends on other threads.
  [[nodiscard]] const std::shared_ptr<WeakExecutor>& links() const noexcept { return links_; }

  [[nodiscard]] size_t pinned() const noexcept { return pins_.size(); }
  [[nodiscard]] size_t opened() const noexcept { return opened_.size(); }

 private:
  static constexpr uint32_t kPreparing = 64;  // tasks that make heads ahead of readers
  struct Opening;
  struct Pin {
    uint32_t count = 0;
    TierIndex tier = 0;
    SlotId slot = kNoSlot;
  };
  void drop(const Identity& id, const Pin& pin);
  static void give_back(HostTier& host, const Lent& lent) { host.release(lent.slot); }
  // Makes heads of records that a peer is about to read in place, if the host tier is shared.
  void prepare(std::span<const Identity> ids, std::span<const TierIndex> tiers);

  const std::shared_ptr<TierStack> stack_;
  HostTier& host_;
  Namespaces& namespaces_;
  std::map<Identity, Pin> pins_;
  std::map<uint64_t, Lent> opened_;  // by the pin number that close() gets
  uint64_t last_opened_ = 0;
  bool offers_room_ = true;
  bool trusts_epochs_ = false;
  const std::shared_ptr<std::atomic<uint32_t>> preparing_ = std::make_shared<std::atomic<uint32_t>>(0);
  const std::shared_ptr<WeakExecutor> links_;
  // Shared with pending answers: null once there is no receiver. Used on the links' thread only.
  const std::shared_ptr<NodeSource*> self_ = std::make_shared<NodeSource*>(this);
};

}  // namespace kvbm::manager
