// Prefill->decode sessions of a node: an attached cache's blocks of a request are offered to other nodes, or are read
// from them into the cache. Translates caches and block ids for cluster/session. Turns calls of any thread into tasks
// of the links' thread, where cluster/mesh/session_host does the work.
//
// Blocks in device memory are copied by the device's mover (session_mover.h). With a stream, publishing and opening
// happen when the stream has reached the point at which it was during the call, and not before.
//
// Thread: any. Nothing blocks, except as session_devices.h describes. Lock: mutex_, a leaf. `done` and `layer_ready`
// run on the links' thread; `done` exactly once, after the last access to the caller's memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "cluster/session/requests.h"
#include "device/driver/driver.h"

namespace kvbm {
class Executor;
class WeakExecutor;
}  // namespace kvbm
namespace kvbm::cluster {
class SessionHost;
}

namespace kvbm::manager {

class AttachedDevice;
class Cache;
class SessionDevices;

// Engine blocks of a request, as a caller lists them.
struct SessionBlocks {
  std::span<const uint32_t> ids;  // [parts of the cache][n]; kNoBlock: see session_parts()
  size_t n = 0;                   // of each part
  uint64_t first_position = 0;    // of the first block: the position of its first token in the request
  uint64_t begin = 0;             // positions to transfer, inside the blocks
  uint64_t end = 0;               // 0: to the end of the blocks
};

// Parts of a request in the form that both sides of a session use.
struct SessionParts {
  cluster::session::Facts facts;
  std::vector<cluster::session::LocalPart> parts;  // ascending by component
  uint32_t layers = 0;                             // of all parts
  [[nodiscard]] uint64_t layer_bytes(Component component) const;
  [[nodiscard]] uint64_t bytes() const;
};

// Describes a request's blocks. A part with all ids kNoBlock is left out; leading ones (outside a window) make it
// begin later; of a state only the last block counts. Facts: the namespace's tenant, model, adapter and secret, and
// the geometry without its block size. unsupported: an opaque part, or two of one component. invalid_argument: names
// the part and the fault.
Result<SessionParts> session_parts(const Cache& cache, const SessionBlocks& blocks, cluster::session::Use use);

class Sessions;

// One rank's offer of one request.
class SessionOffer {
 public:
  // Publishes layers of the whole model (n_layers 0: all from the part's first one on) and positions (end 0: to the
  // end). invalid_argument: they are not in the offer. stale_handle: the offer has ended.
  Status publish(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin, uint64_t end);
  // Publishes them once `stream`, of the blocks' device, has completed its present work. invalid_argument: there is
  // no such stream, or the blocks are in host memory; tier_disabled.
  Status publish_after(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin, uint64_t end,
                       device::CuStream stream);
  Status publish_all();
  Status abort(const std::string& why);

 private:
  friend class Sessions;
  // Returns the task of the links' thread that publishes the layers and positions, or why there is none. Empty: they
  // are of none of the offered blocks.
  Result<std::function<void()>> publishing(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin,
                                           uint64_t end) const;
  Sessions* sessions_ = nullptr;
  std::weak_ptr<AttachedDevice> device_;
  uint16_t rank_ = 0;
  cluster::session::RequestId request_;
  std::vector<cluster::session::Part> parts_;
  std::atomic<bool> ended_{false};  // relaxed: a reader races with the end anyway
};

// One rank's reception of one request.
class SessionReceipt {
 public:
  Status abort(const std::string& why);

 private:
  friend class Sessions;
  Sessions* sessions_ = nullptr;
  uint64_t name_ = 0;
  std::atomic<bool> ended_{false};     // as above
  std::atomic<bool> given_up_{false};  // before it began; relaxed: set before the task that reads it
};

class Sessions {
 public:
  static constexpr size_t kMaxOffers = 4096;  // of a rank; as many sessions. Limits of Sender and Receiver.

  using OfferDone = UniqueFunction<void(const cluster::session::SenderEvent&)>;
  struct OfferRequest {
    cluster::session::RequestId request;
    uint16_t rank = 0;
    SessionParts what;
    std::shared_ptr<Cache> cache;  // the parts point into it
    uint64_t deadline_ns = kNever;
    OfferDone done;
  };
  struct ReceiveRequest {
    cluster::session::RequestId request;
    uint16_t rank = 0;   // this decode rank
    uint16_t ranks = 1;  // number of decode ranks
    SessionParts what;
    std::shared_ptr<Cache> cache;
    std::vector<cluster::session::SourceRank> sources;  // their names; their peers are found later
    std::optional<device::CuStream> after;              // no request and no write before its present work has ended
    uint64_t budget_bytes = 0;                          // limit of staging in use at once; 0: the default
    uint64_t deadline_ns = kNever;
    UniqueFunction<void(Component, uint16_t layer)> layer_ready;
    UniqueFunction<void(const Status&)> done;
  };

  // `links`: executor of the links.
  Sessions(cluster::SessionHost& host, Executor& links, SessionDevices& devices);
  // Must run before the links end: stream callbacks are ignored from then on.
  void close();

  // Fail with exists or no_room; then `done` does not run. invalid_argument: the stream does not exist, or is not of
  // the blocks' device.
  Result<std::shared_ptr<SessionOffer>> offer(OfferRequest request);
  Result<std::shared_ptr<SessionReceipt>> receive(ReceiveRequest request);

 private:
  friend class SessionOffer;
  friend class SessionReceipt;
  using OfferKey = std::pair<uint16_t, cluster::session::RequestId>;
  void offer_ended(const OfferKey& key);
  void receipt_ended();
  void use_device(const Cache& cache, SessionParts& what);

  cluster::SessionHost& host_;
  Executor& links_;
  SessionDevices& devices_;
  const std::shared_ptr<WeakExecutor> links_executor_;
  std::atomic<uint64_t> next_name_{1};
  Mutex mutex_;
  std::set<OfferKey> offers_ KVBM_GUARDED_BY(mutex_);
  size_t receiving_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::manager
