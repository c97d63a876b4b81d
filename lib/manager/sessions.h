// Prefill->decode sessions of a node: what an attached cache has of a request is offered to other nodes, or brought
// from them into its blocks. Turns caches and block ids into what cluster/session means by them, and calls of any
// thread into tasks of the links' thread, where cluster/session_host does the work.
//
// Blocks in a device's memory are copied by its mover (session_mover.h). With a stream, publishing and opening happen
// when the stream has come to where it was in the call, and not before.
//
// Thread: any. Nothing blocks, but for what session_devices.h says. Lock: mutex_, a leaf. `done` and
// `layer_ready` run on the links' thread; `done` exactly once, when the caller's memory is touched no more.
#pragma once

#include <atomic>
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
#include "base/mutex.h"
#include "base/status.h"
#include "cluster/session/requests.h"
#include "device/driver.h"

namespace kvbm {
class Executor;
}
namespace kvbm::cluster {
class SessionHost;
}

namespace kvbm::manager {

class AttachedDevice;
class Cache;
class LinksTurn;
class SessionDevices;

// Engine blocks of a request, as a caller lists them.
struct SessionBlocks {
  std::span<const uint32_t> ids;    // [parts of the cache][n]; kNoBlock: see session_parts()
  size_t n = 0;                     // of each part
  uint64_t first_position = 0;      // of the first block: the place of its first token in the request
  uint64_t begin = 0;               // positions that are meant, inside the blocks
  uint64_t end = 0;                 // 0: to the end of the blocks
};

// The same as both sides of a session mean it.
struct SessionParts {
  cluster::session::Facts facts;
  std::vector<cluster::session::LocalPart> parts;  // ascending by component
  uint32_t layers = 0;                             // of all parts
  [[nodiscard]] uint64_t layer_bytes(Component component) const;
  [[nodiscard]] uint64_t bytes() const;
};

// A part whose ids are all kNoBlock is left out; leading ones (outside a window) make it begin later; of a state the
// last block counts. Facts: the namespace's tenant, model, adapter and secret, and the geometry without its block size.
// unsupported: an opaque part, or two of one component. invalid_argument naming the part and what is wrong.
Result<SessionParts> session_parts(const Cache& cache, const SessionBlocks& blocks, cluster::session::Use use);

class Sessions;

// One rank's offer of one request.
class SessionOffer {
 public:
  // Layers of the whole model (n_layers 0: all from the first of the part on); positions (end 0: to the end).
  // invalid_argument: what was not offered. stale_handle: it has ended.
  Status publish(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin, uint64_t end);
  // The same when `stream`, of the device that the blocks lie on, has come to what it holds now. invalid_argument: such
  // a stream there is not, or the blocks are in host memory; tier_disabled.
  Status publish_after(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin, uint64_t end,
                       device::CuStream stream);
  Status publish_all();
  Status abort(const std::string& why);

 private:
  friend class Sessions;
  // What is published, or why not. An empty range: nothing of what is offered.
  struct Meant {
    uint32_t first_layer = 0, n_layers = 0;
    cluster::session::Range range;
  };
  Result<Meant> meant(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin,
                      uint64_t end) const;
  Sessions* sessions_ = nullptr;
  std::weak_ptr<AttachedDevice> device_;
  uint16_t rank_ = 0;
  cluster::session::RequestId request_;
  std::vector<cluster::session::Part> parts_;
  std::atomic<bool> ended_{false};  // relaxed: who asks races with the end anyway
};

// One rank's receiving of one request.
class SessionReceipt {
 public:
  Status abort(const std::string& why);

 private:
  friend class Sessions;
  Sessions* sessions_ = nullptr;
  uint64_t name_ = 0;
  std::atomic<bool> ended_{false};      // as above
  std::atomic<bool> given_up_{false};  // before it began; relaxed: read by a task of the links, behind the one that ends it
};

class Sessions {
 public:
  static constexpr size_t kMaxOffers = 4096;  // of a rank; as many sessions. Limits of Sender and Receiver.

  using OfferDone = UniqueFunction<void(const cluster::session::SenderEvent&)>;
  struct OfferRequest {
    cluster::session::RequestId request;
    uint16_t rank = 0;
    SessionParts what;
    std::shared_ptr<Cache> cache;  // that the parts point into
    uint64_t deadline_ns = kNever;
    OfferDone done;
  };
  struct ReceiveRequest {
    cluster::session::RequestId request;
    uint16_t rank = 0;   // of
    uint16_t ranks = 1;  // that many decode ranks
    SessionParts what;
    std::shared_ptr<Cache> cache;
    std::vector<cluster::session::NamedSource> sources;
    std::optional<device::CuStream> after;  // blocks are written after what it holds now, and nothing is asked before
    uint64_t budget_bytes = 0;  // staging under way at once; 0: the default
    uint64_t deadline_ns = kNever;
    UniqueFunction<void(Component, uint16_t layer)> layer_ready;
    UniqueFunction<void(const Status&)> done;
  };

  // The executor is that of the links.
  Sessions(cluster::SessionHost& host, Executor& links, SessionDevices& devices);
  // Before the links end: streams that are waited for count for nothing from then on.
  void close();

  // exists, no_room; then `done` does not run. A stream that is none, or not of the
  // device that the blocks lie on: invalid_argument.
  Result<std::shared_ptr<SessionOffer>> offer(OfferRequest request);
  Result<std::shared_ptr<SessionReceipt>> receive(ReceiveRequest request);

 private:
  friend class SessionOffer;
  friend class SessionReceipt;
  using OfferKey = std::pair<uint16_t, cluster::session::RequestId>;
  void offer_ended(const OfferKey& key);
  void use_device(const Cache& cache, SessionParts& what);

  cluster::SessionHost& host_;
  Executor& links_;
  SessionDevices& devices_;
  const std::shared_ptr<LinksTurn> turn_;
  std::atomic<uint64_t> next_name_{1};
  Mutex mutex_;
  std::set<OfferKey> offers_ KVBM_GUARDED_BY(mutex_);
  size_t receiving_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::manager
