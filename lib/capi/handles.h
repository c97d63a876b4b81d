// Targets of kvbm.h's opaque pointers, and how they keep each other alive.
//
// A handle is a small struct around shared ownership: releasing in any order is legal. The last handle of a manager's
// family ends its Tenancy on the caller's thread. That thread waits for work in flight and closes the tiers.
// Operations own parts of the manager, never a Tenancy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/config/config.h"
#include "base/crypto/random.h"
#include "base/ids.h"
#include "base/io/file.h"
#include "base/process/machine_limits.h"
#include "base/process/process.h"
#include "base/telemetry/log.h"
#include "base/thread/awaited.h"
#include "base/thread/gate.h"
#include "base/thread/mutex.h"
#include "base/thread/thread_executor.h"
#include "kvbm.h"

// Only forward declarations: users include what they need, because every file of this folder includes this one.
namespace kvbm::layout {
class Geometry;
}
namespace kvbm::copy {
struct Completion;
class Queue;
}  // namespace kvbm::copy
namespace kvbm::cluster {
struct NodeAnswer;
}
namespace kvbm::manager {
class Cache;
class DeviceCaches;
struct Environment;
class LowerTiers;
class Manager;
class Match;
class Namespace;
class Namespaces;
class Node;
struct Observed;
class Operation;
struct Part;
struct PartPlan;
class Pins;
class Share;
struct ShareState;
class TierStack;
}  // namespace kvbm::manager

namespace kvbm::capi {

struct Context {
  MachineLimits limits;  // at creation of the context
  OptionSet config;
  Log log;
  kvbm_log_fn log_callback = nullptr;
  void* log_user = nullptr;
  SystemRandom random;
  ForkGuard fork;
  // Destroyed after the executor: its last tasks may still close files.
  std::unique_ptr<FileSystem> files;
  std::unique_ptr<ThreadExecutor> executor;
  [[nodiscard]] manager::Environment environment();
};

// The cancellable operations of a queue. Their numbers are unique over all queues of the process.
class Registry {
 public:
  uint64_t add(const std::shared_ptr<manager::Operation>& operation);
  void remove(uint64_t id);
  std::shared_ptr<manager::Operation> find(uint64_t id);

 private:
  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<manager::Operation>> operations_ KVBM_GUARDED_BY(mutex_);
};

// Lets a caller wait for one completion.
using Waiter = Awaited<copy::Completion>;
struct Tenancy {
  Tenancy();
  // Set if the manager is a node. Destroyed after the manager is shut down. Nothing else owns it: a shared pointer
  // needs no destructor where nodes are left out of the build.
  std::shared_ptr<manager::Node> node;
  // Set if the tier set is shared. Destroyed after the manager is shut down.
  std::shared_ptr<manager::Share> share;
  std::shared_ptr<Context> context;
  std::shared_ptr<manager::Manager> manager;
  Gate gate;
  // Made in advance for the destructor, which waits for the manager to close and could not report a refused
  // allocation.
  std::shared_ptr<Waiter> closed;
  ~Tenancy();

  // Parts of the manager: calls include those that they use, and not the manager.
  [[nodiscard]] manager::TierStack& stack() const noexcept;
  [[nodiscard]] manager::Namespaces& namespaces() const noexcept;
  [[nodiscard]] manager::Pins& pins() const noexcept;
  [[nodiscard]] manager::DeviceCaches& devices() const noexcept;
  [[nodiscard]] const manager::ShareState& share_state() const noexcept;
  [[nodiscard]] manager::Observed observed() const noexcept;
};

// Runs an operation: with a queue it is submitted, without one this thread runs it and waits.
// `cache_gate` may be null. Returns the submit status, or the result.
kvbm_status_t run_operation(const std::shared_ptr<Tenancy>& tenancy, const std::shared_ptr<Gate>& cache_gate,
                            std::shared_ptr<manager::Operation> operation, kvbm_queue_t* queue, uint64_t user_data,
                            uint64_t* out_operation);

// Asks other nodes for these records and waits for the answers; no-op if the manager is no node.
void ask_nodes_and_wait(Tenancy& tenancy, std::vector<Identity> ids, uint64_t timeout_ns);

// Asks every connected node; empty if the manager is no node.
std::vector<cluster::NodeAnswer> survey_and_wait(Tenancy& tenancy, std::vector<Identity> ids, uint64_t timeout_ns);

// Returns the records that no tier has, as far as is known.
std::vector<Identity> nowhere_here(manager::LowerTiers& lower, std::span<const manager::PartPlan> parts,
                                   std::span<const Key> keys);

// Asks the owner of a shared tier set for records that are nowhere here, within the time of its options; no-op
// without an owner to ask.
void ask_owner_and_wait(Tenancy& tenancy, std::span<const manager::PartPlan> parts, std::span<const Key> keys);
// Asks the owner, and other nodes for `ask_nodes_ns` (0: not at all), for records of another tensor-parallel size
// that missing keys can be made of.
void ask_for_other_sizes(Tenancy& tenancy, manager::Namespace& ns, std::span<const manager::PartPlan> parts,
                         std::span<const Key> keys, uint64_t ask_nodes_ns);

// Waits until offloads have ended; deadline after timeout_ns.
kvbm_status_t flush_and_wait(Tenancy& tenancy, bool durable, uint64_t timeout_ns);

manager::Part to_part(const kvbm_part_t* part) noexcept;
// Returns KVBM_OK, or the refusal of a call in a forked child.
kvbm_status_t check_process(const Context& context, kvbm_error_t* err) noexcept;
// Returns true in a forked child; writes no text. There, a parent's object may be locked forever, unmapped, or refer to
// the parent's files.
inline bool forked(const Tenancy& tenancy) noexcept { return tenancy.context->fork.forked(); }
// Ends a handle. A child leaves its parent's objects as they are: the threads they would wait for do not exist there.
template <class T>
void drop(T* handle, const Context& context) noexcept {
  if (!context.fork.forked()) delete handle;
}

}  // namespace kvbm::capi

struct kvbm_context {
  std::shared_ptr<kvbm::capi::Context> core;
};
// Operations in flight keep the queue and the registry, never the context: its executor cannot end on one of its own
// threads.
struct kvbm_queue {
  std::shared_ptr<kvbm::capi::Context> context;
  std::shared_ptr<kvbm::copy::Queue> queue;
  std::shared_ptr<kvbm::capi::Registry> registry = std::make_shared<kvbm::capi::Registry>();
};
struct kvbm_geometry {
  std::shared_ptr<const kvbm::layout::Geometry> core;
};
struct kvbm_manager {
  std::shared_ptr<kvbm::capi::Tenancy> tenancy;
};
struct kvbm_namespace {
  std::shared_ptr<kvbm::capi::Tenancy> tenancy;
  std::shared_ptr<kvbm::manager::Namespace> ns;
  bool weak_hashes = false;  // accept short hashes of an engine: kvbm_namespace_options_t.weak_hashes
};
struct kvbm_cache {
  std::shared_ptr<kvbm::capi::Tenancy> tenancy;
  std::shared_ptr<kvbm::manager::Cache> cache;
  std::shared_ptr<kvbm::Gate> gate;
};
struct kvbm_match {
  std::shared_ptr<kvbm::capi::Tenancy> tenancy;
  std::shared_ptr<kvbm::manager::Match> match;
};
