// What a manager gives to other nodes: cluster::RecordSource over all of its tiers.
//
// Thread: the links' alone; answers that come from elsewhere are posted there. Records are lent (manager/lend.h): what
// lies below the host comes up first. Pins that a peer's lease keeps are references of host slots, or pins of the tier
// that has the record; all of them end with this object, which goes after the links: what is still on its way up when
// it was detached is let go as it comes, and nobody is told.
// Lock: Lifeline::mutex, a leaf but for the executor's.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>

#include "base/executor.h"
#include "cluster/record_source.h"
#include "manager/manager.h"

namespace kvbm::manager {

class NodeSource final : public cluster::RecordSource {
 private:
  // What answers on their way share with the source: whom to tell, while there is somebody.
  struct Lifeline {
    Mutex mutex;
    Executor* links KVBM_GUARDED_BY(mutex) = nullptr;
    NodeSource* source = nullptr;  // the links' thread alone
  };

 public:
  // links: where the links run.
  NodeSource(std::shared_ptr<Manager> manager, Executor& links);
  ~NodeSource() override;
  NodeSource(const NodeSource&) = delete;
  NodeSource& operator=(const NodeSource&) = delete;

  void find(std::span<const Identity> ids, std::span<cluster::wire::FoundItem> out) override;
  bool pin(const Identity& id) override;
  void unpin(const Identity& id) override;
  // Half of the host's slots by leases, a quarter open: stores and what this process itself reads have the rest.
  [[nodiscard]] Room room() const noexcept override {
    const uint64_t slots = manager_->arena().slots();
    return {std::max<uint64_t>(slots / 2, 1), std::max<uint64_t>(slots / 4, 1)};
  }
  void open(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves, uint64_t deadline_ns,
            UniqueFunction<void(const cluster::OpenedRecord&)> done) override;
  void close(uint64_t pin) override;
  cluster::wire::NodeStatus status() override;
  void invalidate(std::vector<cluster::EpochWord> words, uint32_t may_add,
                  UniqueFunction<void(std::vector<cluster::EpochWord>)> done) override;
  void epochs(UniqueFunction<void(std::vector<NamespaceEpoch>)> done) override;

  // Says that nothing is held for others: for a node that they cannot reach. Before the links begin.
  void offer_no_room() noexcept { offers_room_ = false; }
  // Those who ask are processes of this tier set: what they say of epochs is this process's word. Before the links begin.
  void trust_epochs() noexcept { trusts_epochs_ = true; }
  // Nothing is answered any more; before the links' executor goes.
  void detach();

  // Posts to the links' thread for as long as it is there; for what ends elsewhere.
  class Links {
   public:
    void post(UniqueFunction<void()> task) const;

   private:
    friend class NodeSource;
    std::shared_ptr<Lifeline> lifeline_;
  };
  [[nodiscard]] Links links() const;

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
  // Somebody is about to read these: in place, where they have heads and the host tier is shared.
  void prepare(std::span<const Identity> ids, std::span<const TierIndex> tiers);

  const std::shared_ptr<Manager> manager_;
  std::map<Identity, Pin> pins_;
  std::map<uint64_t, SlotId> opened_;  // by the name that close() gets
  uint64_t last_opened_ = 0;
  bool offers_room_ = true;
  bool trusts_epochs_ = false;
  const std::shared_ptr<std::atomic<uint32_t>> preparing_ = std::make_shared<std::atomic<uint32_t>>(0);
  const std::shared_ptr<Lifeline> lifeline_ = std::make_shared<Lifeline>();
};

}  // namespace kvbm::manager
