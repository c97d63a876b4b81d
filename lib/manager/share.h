// A manager of a tier set that several processes of one host share: one of them owns it, the others are its clients.
//
// Who holds the directory's lock is the owner: it opens the disk and listens on <directory>/share.sock. Who does not
// get the lock is a client: the disk's place is empty (OwnedTier), and the last tier but for other nodes is the owner's
// memory and disk (SharedTier). When a client's link to the owner ends it tries the lock and the socket in turn
// (share_election.h) until it is one or the other again: so an owner that dies has a successor as soon as somebody has opened
// the disk, and never two, because the kernel gives the lock to one. What the successor's host had and the disk did not
// goes to the disk; what another client's host has is offered to the successor.
//
// An owner hands its host memory to its clients, who read there what they know to lie in it: one verified copy, no
// message (cluster/mapped_pools.h). What is not there any more, or not yet, comes over the link.
//
// Life: create() edits the options, start() when the manager is made, stop() before it is shut down, the destructor
// after that. Thread: any from outside. Links have a thread (copy/transport_thread.h), elections another one, which
// opens the disk: nothing of the manager's blocks for either but start(), stop(), and SharedTier's calls.
// Invariant: a process that is the owner stays it until stop(). Lock: mutex_, a leaf: who waits for a change.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/family_table.h"
#include "base/file.h"
#include "base/function.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_executor.h"
#include "cluster/node.h"
#include "manager/environment.h"
#include "manager/options.h"
#include "manager/share_election.h"
#include "manager/share_links.h"
#include "manager/share_state.h"
#include "tier/tier.h"

namespace kvbm::copy {
class TransportThread;
}

namespace kvbm::manager {

class Manager;
class NodeSource;
class OwnedTier;
class SharedTier;

class Share final : public ShareLinks::Host, private ShareElection::Host {
 public:
  // How long an owner may take to answer a process that opens its tier set.
  static constexpr uint64_t kOpenNs = 3'000'000'000;
  // How long a flush waits for a successor.
  static constexpr uint64_t kGoneNs = 5'000'000'000;

  // Null where options.share is off. Replaces the disk in options.tiers and adds the tier of the other processes.
  // bad_config for tier sets that cannot be shared.
  static Result<std::unique_ptr<Share>> create(const Environment& environment, Options& options);
  ~Share() override;
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  // This process is the owner, or connected to it, when it returns ok. bad_config: the owner has another
  // configuration; in_use: the directory's owner does not share it, or does not answer; else what opening a disk says.
  Status start(const std::shared_ptr<Manager>& manager);
  void stop();

  // Asks the owner for what is not known to be anywhere; `done` runs once, when it has answered, the deadline has
  // passed, or at once where there is nobody to ask. Who asks an owner that was silent the last time does not wait.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);
  // There is an owner, and it is another process.
  [[nodiscard]] bool can_ask() const noexcept;
  // How long a lookup may wait for the owner.
  [[nodiscard]] uint64_t ask_ns() const noexcept { return options_.ask_ns; }
  // Whoever asked says whether it has heard.
  using FlushDone = UniqueFunction<bool(Code)>;
  // `done` runs once: ok when everything that was stored here before is where the owner's own flush would have it, its
  // disk where there is one; partial: but for blocks that are not there; owner_gone, closed, or what the owner's disk says.
  // What is missing and is still here is offered again, so each flush answers for it, whatever others were told; what has
  // gone from here since is told by every flush that was under way then, or by the next.
  // durable: and survives a power cut there.
  void flush(bool durable, FlushDone done);

 private:
  struct Flush;

  Share(const Environment& environment, const Options& options);
  [[nodiscard]] std::string address() const { return "unix:" + directory_ + "/share.sock"; }
  Status open_links(FamilyTable& families);
  void settle_in();
  void learn_epochs(tier::Tier& from);
  // The owner's host memory: handed to whoever connects; mapped, where the owner has handed over its own.
  void lend_memory();
  void map_memory(const cluster::NodeFacts& owner, copy::Peer peer);
  [[nodiscard]] Status why_not(const Status& locked) KVBM_REQUIRES(mutex_);
  // share_flush.cc
  void flush_for_nobody();
  void begin_flush(std::vector<FlushDone> waiting, bool durable);
  void try_flush(const std::shared_ptr<Flush>& flush);
  void flush_own(const std::shared_ptr<Flush>& flush);
  void ask_for_kept(const std::shared_ptr<Flush>& flush, size_t first);
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

  // ShareElection::Host
  [[nodiscard]] bool is_owner() const override { return is(ShareRole::owner); }
  [[nodiscard]] bool is_connected() const override;
  Status try_to_own() override;
  Status listen() override;
  void dial() override;
  void cannot_own(const Status& why) override;

  // ShareLinks::Host
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
  std::string refused_;  // by which owner, as it was logged; the links' thread
  TierIndex owned_index_ = kNoTier;
  TierIndex shared_index_ = kNoTier;
  OwnedTier* owned_ = nullptr;    // the manager's
  SharedTier* shared_ = nullptr;  // the manager's
  const std::shared_ptr<cluster::MappedPools> pools_;
  std::unique_ptr<ShareLinks> links_;
  std::unique_ptr<copy::TransportThread> thread_;
  std::unique_ptr<NodeSource> source_;
  std::shared_ptr<Manager> manager_;
  std::unique_ptr<DirectoryLock> lock_;        // of a tier set without a disk
  std::unique_ptr<ThreadExecutor> elections_;  // goes first
  // The elections' thread, after start().
  std::unique_ptr<ShareElection> election_;
  bool listening_ = false;
  std::shared_ptr<Flush> flushing_;  // the one that is under way
  std::vector<FlushDone> next_flush_;  // asked for since
  bool next_durable_ = false;          // by one of these
  bool lost_untold_ = false;  // blocks that were stored here are nowhere, and the next flush says so
  // The links' thread.
  bool lends_memory_ = false;
  cluster::NodeId mapped_;      // whose memory is mapped, if
  uint64_t mapped_pool_ = 0;
  std::set<uint64_t> takes_;  // offers that are on their way here
  uint64_t last_take_ = 0;
  struct Waiting {
    uint64_t after = 0;  // of the takes up to here
    bool durable = false;
    ShareLinks::Answered answer;
  };
  std::vector<Waiting> flushes_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> silent_{false};   // the owner did not answer in time, and has not answered since
  std::atomic<bool> unsettled_{false};  // an owner was lost, and its successor has not been given what is here
  std::atomic<bool> probing_{false};  // a question is under way that nobody waits for
  std::atomic<bool> offer_again_{false};  // a flush found blocks missing that are here
  Mutex mutex_;
  std::condition_variable_any changed_;
  bool found_ KVBM_GUARDED_BY(mutex_) = false;
  Status refusal_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
