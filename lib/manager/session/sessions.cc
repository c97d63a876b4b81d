#include "manager/session/sessions.h"

#include <algorithm>

#include "base/thread/weak_executor.h"
#include "cluster/mesh/session_host.h"
#include "device/context/device.h"
#include "device/transfer/transfers.h"
#include "layout/shard.h"
#include "manager/operation/cache.h"
#include "manager/session/session_devices.h"

namespace kvbm::manager {

namespace session = cluster::session;

namespace {

const char kNoDevice[] = "a stream was given for blocks that are not in a device's memory";

Status refuse(size_t part, const std::string& why, Code code = Code::invalid_argument) {
  return {code, "the blocks of a session are refused", "part " + std::to_string(part) + ": " + why};
}

// Returns the positions and blocks of the request in one part of the cache; nothing if all ids are kNoBlock.
Result<std::optional<session::LocalPart>> local_part(const CachePart& part, size_t index, const SessionBlocks& blocks,
                                                     const layout::ComponentGeometry& component) {
  if (part.is_opaque()) {
    return refuse(index, "opaque blocks cannot be re-sliced; attach the cache with a geometry and a form",
                  Code::unsupported);
  }
  std::span<const uint32_t> ids = blocks.ids.subspan(index * blocks.n, blocks.n);
  const auto first = std::find_if(ids.begin(), ids.end(), [](uint32_t id) { return id != kNoBlock; });
  if (first == ids.end()) return std::optional<session::LocalPart>();
  session::LocalPart local;
  local.part.component = part.plan().part.component;
  local.part.shard = part.plan().part.shard;
  if (local.part.shard == Shard{}) local.part.shard = layout::whole_shard(component);
  local.map.arrangement = &part.arrangement();
  if (component.kind == layout::ComponentKind::state) {
    if (ids.back() == kNoBlock) return refuse(index, "the last block has no state");
    local.map.blocks.push_back(ids.back());
    local.part.range = {0, component.state_bytes};
    return std::optional(std::move(local));
  }
  const uint64_t tokens = part.arrangement().tokens();
  const auto skipped = static_cast<uint64_t>(first - ids.begin());
  const uint64_t end = blocks.end != 0 ? blocks.end : blocks.first_position + blocks.n * tokens;
  ids = ids.subspan(skipped);
  const auto hole = std::find(ids.begin(), ids.end(), kNoBlock);
  if (hole != ids.end()) {
    return refuse(index, "block_ids[" + std::to_string(skipped + static_cast<size_t>(hole - ids.begin())) +
                             "] is KVBM_NO_BLOCK behind a block");
  }
  local.map.first = blocks.first_position + skipped * tokens;
  local.map.blocks.assign(ids.begin(), ids.end());
  local.part.range = {std::max(blocks.begin, local.map.first), end};
  return std::optional(std::move(local));
}

// Returns the session that a request asks for, without its `done`. Moves out of the request.
cluster::SessionHost::Session session_of(Sessions::ReceiveRequest& request) {
  cluster::SessionHost::Session open;
  open.request.request = request.request;
  open.request.facts = std::move(request.what.facts);
  open.request.targets = std::move(request.what.parts);
  open.request.sink_rank = request.rank;
  open.request.sink_count = request.ranks;
  open.request.deadline_ns = request.deadline_ns;
  if (request.budget_bytes != 0) open.request.budget_bytes = request.budget_bytes;
  open.request.sources = std::move(request.sources);
  open.layer_ready = std::move(request.layer_ready);
  return open;
}

}  // namespace

uint64_t SessionParts::layer_bytes(Component component) const {
  for (const session::LocalPart& p : parts) {
    const layout::ComponentGeometry& c = facts.components[p.part.component];
    if (p.part.component == component) {
      return uint64_t{c.planes} * p.part.shard.heads * session::row_bytes(c) * p.part.range.size();
    }
  }
  return 0;
}

uint64_t SessionParts::bytes() const {
  uint64_t sum = 0;
  for (const session::LocalPart& p : parts) sum += layer_bytes(p.part.component) * p.part.shard.layers;
  return sum;
}

Result<SessionParts> session_parts(const Cache& cache, const SessionBlocks& blocks, session::Use use) {
  const NamespaceOptions& who = cache.ns()->options();
  if (blocks.first_position > session::kMaxPosition || blocks.end > session::kMaxPosition) {
    return Status(Code::invalid_argument, "the blocks of a session are refused", "no request has so many positions");
  }
  if (who.geometry == nullptr) return refuse(0, "the namespace has no geometry", Code::unsupported);
  SessionParts out;
  out.facts.model = Namespace::model_id_of(who).bytes;
  out.facts.model_name = who.adapter.empty() ? who.model : who.model + " with " + who.adapter;
  const auto components = who.geometry->components();
  out.facts.components.assign(components.begin(), components.end());
  for (size_t i = 0; i < cache.parts().size(); ++i) {
    const CachePart& part = cache.parts()[i];
    auto local = local_part(part, i, blocks, components[part.plan().part.component]);
    if (!local.ok()) return local.status();
    if (!local.value().has_value()) continue;
    out.layers += local.value()->part.shard.layers;
    out.parts.push_back(std::move(*local.value()));
  }
  std::sort(out.parts.begin(), out.parts.end(), [](const session::LocalPart& a, const session::LocalPart& b) {
    return a.part.component < b.part.component;
  });
  const auto twice = std::adjacent_find(out.parts.begin(), out.parts.end(), [](const auto& a, const auto& b) {
    return a.part.component == b.part.component;
  });
  if (twice != out.parts.end()) {
    return Status(Code::unsupported, "the blocks of a session are refused",
                  "two parts of the cache are of component " + std::to_string(twice->part.component));
  }
  if (Status s = session::check_local(out.facts, out.parts, use); !s.ok()) return s;
  return out;
}

// ---- SessionOffer ----

Result<std::function<void()>> SessionOffer::publishing(Component component, uint32_t first_layer, uint32_t n_layers,
                                                       uint64_t begin, uint64_t end) const {
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const auto& p) { return p.component == component; });
  if (part == parts_.end()) {
    return Status(Code::invalid_argument, "published what was not offered", "component " + std::to_string(component));
  }
  const Shard& shard = part->shard;
  const uint32_t last = uint32_t{shard.first_layer} + shard.layers;
  const session::Range range{begin, end != 0 ? end : part->range.end};
  if (n_layers == 0) {
    first_layer = std::max<uint32_t>(first_layer, shard.first_layer);
    n_layers = first_layer < last ? last - first_layer : 0;
  }
  const session::Range meant{std::max(range.begin, part->range.begin), std::min(range.end, part->range.end)};
  if (n_layers == 0 || first_layer < shard.first_layer || first_layer >= last || n_layers > last - first_layer) {
    return Status(Code::invalid_argument, "published what was not offered",
                  "layers " + std::to_string(first_layer) + " + " + std::to_string(n_layers) + ", offered " +
                      std::to_string(shard.first_layer) + " + " + std::to_string(shard.layers));
  }
  if (ended_.load(std::memory_order_relaxed)) return Status(Code::stale_handle, "the offer has ended");
  if (range.empty()) return Status(Code::invalid_argument, "published what was not offered", "no positions");
  std::function<void()> task;
  if (!meant.empty()) {
    task = [host = &sessions_->host_, rank = rank_, request = request_, component, first_layer, n_layers, meant] {
      host->publish(rank, request, component, first_layer, n_layers, meant);
    };
  }
  return task;
}

Status SessionOffer::publish(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin,
                             uint64_t end) {
  auto task = publishing(component, first_layer, n_layers, begin, end);
  if (!task.ok()) return task.status();
  if (task.value()) sessions_->links_.post(std::move(task).value());
  return {};
}

Status SessionOffer::publish_after(Component component, uint32_t first_layer, uint32_t n_layers, uint64_t begin,
                                   uint64_t end, device::CuStream stream) {
  const auto task = publishing(component, first_layer, n_layers, begin, end);
  if (!task.ok()) return task.status();
  const auto device = device_.lock();
  if (device == nullptr) {
    return {Code::invalid_argument, kNoDevice, "these are in host memory"};
  }
  auto point = device->transfers().point(stream);
  if (!point.ok()) return point.status();
  if (!task.value()) return {};
  const auto give_up = [host = &sessions_->host_, rank = rank_, request = request_](Code code) {
    host->abort_offer(rank, request, code, "the device on which its blocks are computed is lost");
  };
  sessions_->devices_.waits().wait(
      device->device().shared_from_this(), std::move(point).value(),
      [links_executor = sessions_->links_executor_, publish = task.value(), give_up](Code code) {
        links_executor->post([publish, give_up, code] { code == Code::ok ? publish() : give_up(code); });
      });
  return {};
}

Status SessionOffer::publish_all() {
  if (ended_.load(std::memory_order_relaxed)) return {Code::stale_handle, "the offer has ended"};
  sessions_->links_.post(
      [host = &sessions_->host_, rank = rank_, request = request_] { host->publish_all(rank, request); });
  return {};
}

Status SessionOffer::abort(const std::string& why) {
  if (ended_.load(std::memory_order_relaxed)) return {Code::stale_handle, "the offer has ended"};
  sessions_->links_.post([host = &sessions_->host_, rank = rank_, request = request_, why] {
    host->abort_offer(rank, request, Code::cancelled, why);
  });
  return {};
}

Status SessionReceipt::abort(const std::string& why) {
  if (ended_.load(std::memory_order_relaxed)) return {Code::stale_handle, "the session has ended"};
  given_up_.store(true, std::memory_order_relaxed);
  sessions_->links_.post([host = &sessions_->host_, name = name_, why] { host->abort(name, Code::cancelled, why); });
  return {};
}

// ---- All sessions ----

Sessions::Sessions(cluster::SessionHost& host, Executor& links, SessionDevices& devices)
    : host_(host), links_(links), devices_(devices), links_executor_(devices.links_executor()) {}

void Sessions::close() { devices_.close(); }

void Sessions::use_device(const Cache& cache, SessionParts& what) {
  if (cache.device() == nullptr) return;
  cluster::session::SliceMover& mover = devices_.mover(cache.device());
  for (session::LocalPart& part : what.parts) part.map.mover = &mover;
}

void Sessions::receipt_ended() {
  MutexLock lock(mutex_);
  --receiving_;
}

void Sessions::offer_ended(const OfferKey& key) {
  MutexLock lock(mutex_);
  offers_.erase(key);
}

Result<std::shared_ptr<SessionOffer>> Sessions::offer(OfferRequest request) {
  const OfferKey key{request.rank, request.request};
  auto handle = std::make_shared<SessionOffer>();
  handle->sessions_ = this;
  handle->rank_ = request.rank;
  handle->request_ = request.request;
  handle->device_ = request.cache->device();
  use_device(*request.cache, request.what);
  for (const session::LocalPart& p : request.what.parts) handle->parts_.push_back(p.part);
  session::OfferRequest offered{request.request, std::move(request.what.facts), std::move(request.what.parts),
                                request.deadline_ns};
  OfferDone ended = [this, key, handle, cache = std::move(request.cache),
                     done = std::move(request.done)](const session::SenderEvent& end) mutable {
    handle->ended_.store(true, std::memory_order_relaxed);
    offer_ended(key);
    done(end);
  };
  {
    MutexLock lock(mutex_);
    if (offers_.size() >= kMaxOffers) return Status(Code::at_limit, "4,096 requests are offered, which have not ended");
    if (!offers_.insert(key).second) return Status(Code::exists, "the request is offered already by this rank");
  }
  try {
    links_.post([host = &host_, rank = request.rank, offered = std::move(offered), ended = std::move(ended)]() mutable {
      host->offer(rank, offered, std::move(ended));
    });
  } catch (...) {
    offer_ended(key);
    throw;
  }
  return handle;
}

Result<std::shared_ptr<SessionReceipt>> Sessions::receive(ReceiveRequest request) {
  auto handle = std::make_shared<SessionReceipt>();
  handle->sessions_ = this;
  handle->name_ = next_name_.fetch_add(1, std::memory_order_relaxed);
  use_device(*request.cache, request.what);
  const std::shared_ptr<AttachedDevice> device = request.cache->device();
  std::shared_ptr<device::StreamPoint> after;
  if (request.after.has_value()) {
    if (device == nullptr) return Status(Code::invalid_argument, kNoDevice, "these are in host memory");
    auto point = device->transfers().point(*request.after);
    if (!point.ok()) return point.status();
    after = std::move(point).value();
  }
  auto open = std::make_unique<cluster::SessionHost::Session>(session_of(request));
  open->done = [this, handle, cache = std::move(request.cache),
                done = std::move(request.done)](const Status& end) mutable {
    handle->ended_.store(true, std::memory_order_relaxed);
    receipt_ended();
    done(end);
  };
  {
    MutexLock lock(mutex_);
    if (receiving_ >= kMaxOffers) return Status(Code::at_limit, "4,096 sessions are open");
    ++receiving_;
  }
  // Runs on the links' thread, once the blocks may be written.
  UniqueFunction<void(Code)> begin = [host = &host_, handle, task = std::move(open)](Code code) {
    if (code != Code::ok) return task->done({code, "the device that a session's blocks lie on is lost"});
    if (handle->given_up_.load(std::memory_order_relaxed)) {
      return task->done({Code::cancelled, "the session was given up"});
    }
    host->open(handle->name_, std::move(*task));
  };
  try {
    if (after == nullptr) {
      links_.post([begin = std::move(begin)]() mutable { begin(Code::ok); });
    } else {
      devices_.waits().wait(device->device().shared_from_this(), std::move(after),
                            [links_executor = links_executor_, begin = std::move(begin)](Code code) mutable {
                              links_executor->post([begin = std::move(begin), code]() mutable { begin(code); });
                            });
    }
  } catch (...) {
    receipt_ended();
    throw;
  }
  return handle;
}

}  // namespace kvbm::manager
