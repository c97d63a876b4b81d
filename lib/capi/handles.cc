#include "capi/handles.h"

#include <atomic>
#include <utility>

#include "capi/guard.h"
#include "cluster/mesh/survey.h"
#include "copy/completion.h"
#include "copy/queue.h"
#include "manager/manager.h"
#include "manager/namespaces/namespace.h"
#include "manager/node/node.h"
#include "manager/operation/ask_other_sizes.h"
#include "manager/operation/lend.h"
#include "manager/operation/operation.h"
#include "manager/share/share.h"

namespace kvbm::capi {

manager::Environment Context::environment() {
  manager::Environment environment;
  environment.executor = executor.get();
  environment.files = files.get();
  environment.random = &random;
  environment.log = &log;
  return environment;
}

uint64_t Registry::add(const std::shared_ptr<manager::Operation>& operation) {
  static std::atomic<uint64_t> last{0};
  MutexLock lock(mutex_);
  const uint64_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  operations_.emplace(id, operation);
  return id;
}

void Registry::remove(uint64_t id) {
  MutexLock lock(mutex_);
  operations_.erase(id);
}

std::shared_ptr<manager::Operation> Registry::find(uint64_t id) {
  MutexLock lock(mutex_);
  const auto it = operations_.find(id);
  return it == operations_.end() ? nullptr : it->second.lock();
}

Tenancy::Tenancy() : closed(std::make_shared<Waiter>()) {}

Tenancy::~Tenancy() {
  if (manager == nullptr) return;
  gate.close();
  if (node != nullptr) node->stop();
  if (share != nullptr) share->stop();
  manager->shutdown([waiter = closed] { waiter->give({}); });
  closed->wait();
  node.reset();
  share.reset();
}

manager::TierStack& Tenancy::stack() const noexcept { return manager->stack(); }
manager::Namespaces& Tenancy::namespaces() const noexcept { return manager->namespaces(); }
manager::Pins& Tenancy::pins() const noexcept { return manager->pins(); }
manager::DeviceCaches& Tenancy::devices() const noexcept { return manager->devices(); }
const manager::ShareState& Tenancy::share_state() const noexcept { return manager->share(); }
manager::Observed Tenancy::observed() const noexcept { return manager->observed(); }

kvbm_status_t run_operation(const std::shared_ptr<Tenancy>& tenancy, const std::shared_ptr<Gate>& cache_gate,
                            std::shared_ptr<manager::Operation> operation, kvbm_queue_t* queue, uint64_t user_data,
                            uint64_t* out_operation) {
  if (queue == nullptr && tenancy->node != nullptr) return to_c(tenancy->node->run_and_wait(*operation).status);
  if (queue == nullptr) {
    const auto waiter = std::make_shared<Waiter>();
    operation->start_here([waiter](const copy::Completion& completion) { waiter->give(completion); });
    return to_c(waiter->wait().status);
  }
  const std::shared_ptr<copy::Queue> completions = queue->queue;
  const std::shared_ptr<Registry> registry = queue->registry;
  if (!completions->reserve()) return to_c(Code::again);
  tenancy->gate.enter();
  if (cache_gate != nullptr) cache_gate->enter();
  // Raw pointers: gates outlive the operation because their owners wait for it.
  const auto leave = [first = &tenancy->gate, second = cache_gate.get()] {
    if (second != nullptr) second->leave();
    first->leave();
  };
  uint64_t id = 0;
  try {
    id = registry->add(operation);
    if (out_operation != nullptr) *out_operation = id;
    operation->start([completions, registry, id, user_data, leave](const copy::Completion& result) {
      copy::Completion completion = result;
      completion.user_data = user_data;
      completion.operation = id;
      registry->remove(id);
      completions->push(completion);
      leave();
    });
  } catch (...) {
    // An allocation was refused. Undoes the submission completely: the gates' waiters wait for started operations only.
    if (id != 0) registry->remove(id);
    completions->unreserve();
    leave();
    throw;
  }
  return KVBM_OK;
}

void ask_nodes_and_wait(Tenancy& tenancy, std::vector<Identity> ids, uint64_t timeout_ns) {
  if (tenancy.node == nullptr || ids.empty()) return;
  const uint64_t now = tenancy.context->executor->clock().now_ns();
  const uint64_t deadline_ns = timeout_ns >= kNever - now ? kNever : now + timeout_ns;
  tenancy.node->ask_and_wait(std::move(ids), deadline_ns);
}

std::vector<cluster::NodeAnswer> survey_and_wait(Tenancy& tenancy, std::vector<Identity> ids, uint64_t timeout_ns) {
  if (tenancy.node == nullptr || ids.empty()) return {};
  const auto waiter = std::make_shared<Waiter>();
  const auto answers = std::make_shared<std::vector<cluster::NodeAnswer>>();
  tenancy.node->survey(std::move(ids), deadline_after(tenancy.context->executor->clock(), timeout_ns),
                       [waiter, answers](std::vector<cluster::NodeAnswer> all) {
                         *answers = std::move(all);
                         waiter->give({});
                       });
  waiter->wait();
  return std::move(*answers);
}

std::vector<Identity> nowhere_here(manager::LowerTiers& lower, std::span<const manager::PartPlan> parts,
                                   std::span<const Key> keys) {
  std::vector<Identity> ids;
  for (const manager::PartPlan& part : parts) {
    for (const Key& key : keys) ids.push_back({key, part.family});
  }
  manager::keep_unknown(lower, ids);
  return ids;
}

namespace {

void ask_owner_and_wait(Tenancy& tenancy, std::vector<Identity> ids) {
  if (ids.empty() || tenancy.share == nullptr || !tenancy.share->can_ask()) return;
  const Clock& clock = tenancy.context->executor->clock();
  const uint64_t deadline_ns = deadline_after(clock, tenancy.share->ask_ns());
  const auto waiter = std::make_shared<Waiter>();
  tenancy.share->ask(std::move(ids), deadline_ns, [waiter] { waiter->give({}); });
  (void)waiter->wait_until(clock, deadline_ns);
}

}  // namespace

void ask_owner_and_wait(Tenancy& tenancy, std::span<const manager::PartPlan> parts, std::span<const Key> keys) {
  if (tenancy.share == nullptr || !tenancy.share->can_ask()) return;
  ask_owner_and_wait(tenancy, nowhere_here(tenancy.manager->lower(), parts, keys));
}

void ask_for_other_sizes(Tenancy& tenancy, manager::Namespace& ns, std::span<const manager::PartPlan> parts,
                         std::span<const Key> keys, uint64_t ask_nodes_ns) {
  const bool asks_owner = tenancy.share != nullptr && tenancy.share->can_ask();
  const bool asks_nodes = tenancy.node != nullptr && ask_nodes_ns != 0;
  if (!asks_owner && !asks_nodes) return;
  const auto ask = [&](std::vector<Identity> ids) {
    if (asks_owner) ask_owner_and_wait(tenancy, ids);
    if (asks_nodes) ask_nodes_and_wait(tenancy, std::move(ids), ask_nodes_ns);
  };
  manager::AskOtherSizes question(tenancy.manager->lower(), ns, parts, keys);
  ask(question.first());
  if (question.has_more()) ask(question.rest());
}

kvbm_status_t flush_and_wait(Tenancy& tenancy, bool durable, uint64_t timeout_ns) {
  const Clock& clock = tenancy.manager->env().clock();
  const auto waiter = std::make_shared<Waiter>();
  // A caller that has left at the deadline does not get the result; the next flush then reports it.
  enum : int { kWaits, kTold, kLeft };
  const auto state = std::make_shared<std::atomic<int>>(kWaits);
  UniqueFunction<bool(Code)> done = [waiter, state](Code code) {
    copy::Completion ended;
    ended.status = code;
    int waits = kWaits;
    const bool heard = state->compare_exchange_strong(waits, kTold, std::memory_order_relaxed);
    waiter->give(ended);
    return heard;
  };
  if (tenancy.share != nullptr) {
    tenancy.share->flush(durable, std::move(done));
  } else {
    tenancy.manager->lower().flush_and_report(durable, std::move(done));
  }
  int waits = kWaits;
  if (!waiter->wait_until(clock, deadline_after(clock, timeout_ns)) &&
      state->compare_exchange_strong(waits, kLeft, std::memory_order_relaxed)) {
    return to_c(Code::deadline);
  }
  return to_c(waiter->wait().status);
}

manager::Part to_part(const kvbm_part_t* part) noexcept {
  manager::Part out;
  if (part == nullptr) return out;
  // A value that the core's narrower field cannot hold, or a field unknown to this library, makes it no component at
  // all.
  const auto& reserved = part->shard.reserved;
  const bool known = part->reserved == 0 && reserved[0] == 0 && reserved[1] == 0 && reserved[2] == 0;
  out.component = static_cast<Component>(known && part->component < UINT16_MAX ? part->component : UINT16_MAX);
  out.shard = {part->shard.first_layer, part->shard.layers, part->shard.first_head, part->shard.heads,
               part->shard.replicated};
  return out;
}

kvbm_status_t check_process(const Context& context, kvbm_error_t* err) noexcept {
  if (!context.fork.forked()) return KVBM_OK;
  return fail(err, Code::forked, "called in a forked child; create a context of its own after fork");
}

}  // namespace kvbm::capi
