// A tier set that several processes of one host share: one process owns it, the others are its clients.
//
// The process that holds the directory's lock is the owner: it opens the disk and listens on <directory>/share.sock.
// A process without the lock is a client: its disk tier is empty (OwnedTier), and its last tier except peers is the
// owner's memory and disk (SharedTier). A client that loses its link to the owner tries the lock and the socket in
// turn (share_election.h), until it is owner or client again. So a dead owner has a successor as soon as a process
// has opened the disk, and never two, because the kernel grants the lock to one. The successor writes the blocks of
// its host that the disk lacks to the disk; other clients offer it the blocks of theirs.
//
// The owner hands its host memory to its clients, which read known records there in place: one verified copy, no
// message (cluster/same_host/mapped_pools.h). Records that are not there are sent over the link.
//
// Life: create() edits the options, start() when the manager is made, stop() before it is shut down, the destructor
// after that. Thread: any from outside. Links have a thread (copy/transport_thread.h), and elections have another
// one, which opens the disk. No call of the manager waits for either, except start(), stop(), and SharedTier's calls.
// Invariant: a process that is the owner stays it until stop().
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/family/family_table.h"
#include "base/function.h"
#include "base/io/file.h"
#include "base/telemetry/log.h"
#include "base/thread/awaited.h"
#include "base/thread/thread_executor.h"
#include "cluster/node.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"
#include "manager/share/share_election.h"
#include "manager/share/share_links.h"
#include "manager/share/share_state.h"
#include "manager/stack/unflushed.h"
#include "tier/tier.h"

namespace kvbm::copy {
class TransportThread;
}

namespace kvbm::manager {

class Namespaces;
class NodeSource;
class OwnedTier;
class SharedTier;
class TierStack;

class Share final : public ShareLinks::Host, private ShareElection::Host {
 public:
  // Time limit of the owner's answer to a process that opens its tier set.
  static constexpr uint64_t kOpenNs = 3'000'000'000;
  // Limit of a flush's wait for a successor.
  static constexpr uint64_t kGoneNs = 5'000'000'000;

  // Returns null if options.share is off. Replaces the disk in options.tiers and adds the tier of the other
  // processes. bad_config: the tier set cannot be shared.
  static Result<std::unique_ptr<Share>> create(const Environment& environment, Options& options);
  ~Share() override;
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  // Makes this process the owner, or a client with a link to the owner. bad_config: the owner has another
  // configuration; in_use: the directory's owner does not share it, or does not answer; else the error of opening the
  // disk.
  Status start(const std::shared_ptr<TierStack>& stack, Namespaces& namespaces, ShareState& state);
  void stop();

  // Asks the owner for records that are in no known place. `done` runs once: when the owner has answered, the
  // deadline has passed, or at once if there is no owner to ask. A query to an owner that did not answer the last one
  // does not wait.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);
  // Returns true if another process is the owner and is connected.
  [[nodiscard]] bool can_ask() const noexcept;
  // Limit of a lookup's wait for the owner.
  [[nodiscard]] uint64_t ask_ns() const noexcept { return options_.ask_ns; }
  // Returns whether the caller received the code.
  using FlushDone = UniqueFunction<bool(Code)>;
  // Flushes. `done` runs once. ok: everything stored here before is where the owner's own flush would have it, on its
  // disk if there is one. partial: some blocks are not there. Or owner_gone, closed, or an error of the owner's disk.
  // Missing blocks that are still here are offered again, so each flush reports them, whatever other flushes
  // reported. Blocks that are gone from here as well are reported by every flush in progress at the time, or by the
  // next. durable: they survive a power cut there as well.
  void flush(bool durable, FlushDone done);

 private:
  struct Flush;

  Share(const Environment& environment, const Options& options);
  [[nodiscard]] std::string address() const { return "unix:" + directory_ + "/share.sock"; }
  Status open_links(FamilyTable& families);
  void settle_in();
  void learn_epochs(tier::Tier& from);
  // Owner's host memory: lend_memory() hands it to clients that connect; map_memory() maps what the owner has handed
  // over.
  void lend_memory();
  void map_memory(const cluster::NodeFacts& owner, copy::Peer peer);
  // Lets start() end: ok, the owner is connected; else why it cannot be. The first answer counts.
  void answer_start(const Status& how);
  // Members for flushes (share_flush.cc).
  void flush_without_caller();
  void begin_flush(std::vector<FlushDone> waiting, bool durable);
  void try_flush(const std::shared_ptr<Flush>& flush);
  void flush_own(const std::shared_ptr<Flush>& flush);
  void ask_durability(const std::shared_ptr<Flush>& flush, size_t first);
  bool is_another_owners(const std::shared_ptr<Flush>& flush, Code code);
  void settle(Flush& flush, std::span<const Unflushed::Entry> entries, std::span<const Identity> missing);
  void again_later(const std::shared_ptr<Flush>& flush);
  void end_flush(const std::shared_ptr<Flush>& flush, Code code);
  void end_flush_later(const std::shared_ptr<Flush>& flush, Code code);
  [[nodiscard]] Code own_disk() const;
  void asked_to_flush(const ShareMessage& message, ShareLinks::Answered answer);
  void pump_flushes();
  [[nodiscard]] bool is(ShareRole role) const noexcept;
  void say(LogLevel level, const std::string& text) const;

  // Implements ShareElection::Host.
  [[nodiscard]] bool is_owner() const override { return is(ShareRole::owner); }
  [[nodiscard]] bool is_connected() const override;
  Status try_to_own() override;
  Status listen() override;
  void dial() override;
  void cannot_own(const Status& why) override;

  // Implements ShareLinks::Host.
  bool owner_found(const ShareMessage& here, const cluster::NodeFacts& owner, copy::Peer peer) override;
  ShareMessage here() override;
  void owner_lost(const Status& why, bool was_connected) override;
  void clients_changed(size_t n) override;
  void asked(const ShareMessage& message, ShareLinks::Answered answer) override;
  void offered(cluster::PeerLink& link, std::span<const cluster::Offered> items, uint64_t lease,
               std::vector<uint32_t>& want) override;

  const Environment env_;
  const ShareOptions options_;
  const uint64_t block_bytes_;
  TierOptions disk_;  // no path: a tier set without a disk
  [[nodiscard]] uint64_t disk_bytes() const noexcept { return disk_.path.empty() ? 0 : disk_.capacity_bytes; }
  std::string directory_;
  TierIndex owned_index_ = kNoTier;
  TierIndex shared_index_ = kNoTier;
  OwnedTier* owned_ = nullptr;    // owned by the manager
  SharedTier* shared_ = nullptr;  // owned by the manager
  const std::shared_ptr<cluster::MappedPools> pools_;
  std::unique_ptr<ShareLinks> links_;
  std::unique_ptr<copy::TransportThread> thread_;
  std::unique_ptr<NodeSource> source_;
  std::shared_ptr<TierStack> stack_;
  Namespaces* namespaces_ = nullptr;           // with stack_
  ShareState* state_ = nullptr;                // with stack_
  DirectoryLock lock_;                         // of a tier set without a disk
  std::unique_ptr<ThreadExecutor> elections_;  // destroyed first
  // Used by the elections' thread, after start().
  std::unique_ptr<ShareElection> election_;
  bool listening_ = false;
  std::shared_ptr<Flush> flushing_;    // the flush in progress
  std::vector<FlushDone> next_flush_;  // requested since then
  bool next_durable_ = false;          // one of these is durable
  bool loss_unreported_ = false;       // blocks that were stored here are nowhere, and the next flush must report it
  // Used by the links' thread.
  bool answered_start_ = false;
  bool found_ = false;   // an owner was connected once
  std::string refused_;  // owner that refused, as it was logged
  bool lends_memory_ = false;
  cluster::NodeId mapped_;  // the owner of the mapped memory, if any
  uint64_t mapped_pool_ = 0;
  std::set<uint64_t> takes_;  // offers in progress
  uint64_t last_take_ = 0;
  struct Waiting {
    uint64_t after = 0;  // the last take that must end first
    bool durable = false;
    ShareLinks::Answered answer;
  };
  std::vector<Waiting> flushes_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> silent_{false};       // the owner did not answer in time, and has not answered since
  std::atomic<bool> unsettled_{false};    // an owner was lost, and its successor has not got this process's blocks yet
  std::atomic<bool> probing_{false};      // a query without a waiting caller is in progress
  std::atomic<bool> offer_again_{false};  // a flush found blocks missing that are here
  Awaited<Status> first_answer_;
};

}  // namespace kvbm::manager
