// Two nodes with a link between them in the simulation. Connections have delays, refusals and cuts at any moment. Bulk
// is moved in two halves directly from the source's memory into the target's. Nodes freeze. Records leave as soon as
// they have no hold, and their memory is then overwritten.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cluster/link/peer_link.h"
#include "support/sim_executor.h"

namespace kvbm::test {

// An executor of one node: tasks wait while the node is frozen.
class NodeExecutor final : public Executor {
 public:
  explicit NodeExecutor(SimExecutor& sim) : sim_(sim) {}
  void post(Task task) override { post_at(0, std::move(task)); }
  void post_at(uint64_t when_ns, Task task) override;
  [[nodiscard]] const Clock& clock() const noexcept override { return sim_.clock(); }
  void freeze() { frozen_ = true; }
  void thaw();
  [[nodiscard]] bool frozen() const { return frozen_; }

 private:
  SimExecutor& sim_;
  bool frozen_ = false;
  std::vector<std::shared_ptr<Task>> waiting_;
};

// Records by number; their bytes follow from it, and are noise up to kCompressible.
class SimSource final : public cluster::RecordSource {
 public:
  static constexpr uint64_t kCompressible = 1'000'000;
  SimSource(NodeExecutor& executor, SimExecutor& sim, FamilyTable& families)
      : executor_(executor), sim_(sim), families_(families) {}

  void put(uint64_t number, size_t payload_bytes);
  // Removes the record now, or when its last hold ends.
  void evict(uint64_t number);
  [[nodiscard]] uint64_t holds() const;
  static Key key_of(uint64_t number);
  static Identity identity_of(FamilyTable& families, uint64_t number);
  static std::vector<std::byte> payload_of(uint64_t number, size_t bytes);

  void find(std::span<const Identity> ids, std::span<cluster::wire::FoundItem> out) override;
  bool pin(const Identity& id) override;
  void unpin(const Identity& id) override;
  [[nodiscard]] Room room() const noexcept override { return has_room; }
  void open(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves, uint64_t deadline_ns,
            UniqueFunction<void(const cluster::OpenedRecord&)> done) override;
  void close(uint64_t pin) override;
  cluster::wire::NodeStatus status() override;
  void invalidate(std::vector<cluster::EpochWord> words, uint32_t may_add,
                  UniqueFunction<void(std::vector<cluster::EpochWord>)> done) override;
  // Answers requests that were deferred while holds_epochs was set.
  void answer_epochs();

  double wrong_record = 0;  // chance that open() gives another record than was asked for
  uint64_t max_open_ns = 0;
  std::map<NamespaceId, uint64_t> epochs;
  bool holds_epochs = false;
  Room has_room;
  std::vector<size_t> epoch_batches;  // words of each call of invalidate()

 private:
  struct HeldEpochs {
    std::vector<cluster::EpochWord> words;
    uint32_t may_add = 0;
    UniqueFunction<void(std::vector<cluster::EpochWord>)> done;
  };
  void take(HeldEpochs held);
  std::vector<HeldEpochs> held_epochs_;

  struct Record {
    std::vector<std::byte> head, payload;
    uint32_t holds = 0;
    bool leaving = false;
  };
  void drop(std::map<Identity, Record>::iterator at);
  void drop_hold(std::map<Identity, Record>::iterator at);

  NodeExecutor& executor_;
  SimExecutor& sim_;
  FamilyTable& families_;
  std::map<Identity, Record> records_;
  std::map<uint64_t, Identity> opened_;
  std::vector<std::vector<std::byte>> graveyard_;  // memory that was written over; kept, so that late reads are of it
  uint64_t next_pin_ = 1;
};

struct NetworkFaults {
  double refuse_send = 0;     // send() says again
  double garble_message = 0;  // one bit
  double garble_bulk = 0;     // one bit
  uint64_t min_delay_ns = 10'000;
  uint64_t max_delay_ns = 2'000'000;
};

// A connection between two links. Its ends have the numbers 0 (initiator) and 1.
class SimConnection : public std::enable_shared_from_this<SimConnection> {
 public:
  SimConnection(SimExecutor& sim, const NetworkFaults& faults, NodeExecutor& a, NodeExecutor& b)
      : sim_(sim), faults_(faults) {
    ends_[0].executor = &a;
    ends_[1].executor = &b;
  }
  std::unique_ptr<cluster::PeerPort> port(int end);
  void attach(int end, const std::shared_ptr<cluster::PeerLink>& link) { ends_[end].link = link; }
  void start();
  // Breaks the connection; each end learns of it at a time of its own.
  void cut();
  [[nodiscard]] uint64_t unfinished() const;
  [[nodiscard]] uint64_t strangers_rule_broken() const { return broken_rules_; }

 private:
  friend class SimPort;
  struct Post {
    MutableBytes to;
    uint64_t token = 0;
    bool busy = false;
    bool cancelled = false;
  };
  struct End {
    NodeExecutor* executor = nullptr;
    std::weak_ptr<cluster::PeerLink> link;
    std::map<uint64_t, Post> posts;   // by tag
    std::map<uint64_t, bool> pushes;  // by token: something of it was sent
    uint64_t last_ns = 0;             // messages arrive in order
    bool blocked = false;
    bool admitted = false;
    bool ending = false;
    bool closed = false;
  };
  struct Bulk {
    uint64_t tag = 0;
    uint64_t token = 0;
    std::vector<ConstBytes> pieces;
  };
  uint64_t delay();
  void at_end(int end, uint64_t when_ns, UniqueFunction<void(cluster::PeerLink&)> fn);
  Code send(int end, ConstBytes message);
  Code post(int end, uint64_t tag, MutableBytes to, uint64_t& token);
  Code push(int end, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token);
  void cancel(int end, uint64_t token);
  void begin_bulk(int from, std::shared_ptr<Bulk> bulk);
  void end_bulk(int from, const std::shared_ptr<Bulk>& bulk);
  void finish_push(int end, uint64_t token, Code code);
  void finish_post(int end, uint64_t tag, Code code, uint64_t bytes);
  void close_end(int end);

  SimExecutor& sim_;
  const NetworkFaults& faults_;
  End ends_[2];
  uint64_t next_token_ = 1;
  uint64_t broken_rules_ = 0;
};

}  // namespace kvbm::test
