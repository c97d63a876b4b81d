#include "replay/policy_replay.h"

#include <algorithm>
#include <ctime>
#include <queue>
#include <unordered_map>

#include "replay/policies.h"

namespace kvbm::replay {
namespace {

using policy::Facts;

uint64_t mix(uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns the time of this thread alone, because other load on the machine is not the policy's cost.
double thread_nanoseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

PolicyResult finished(std::string_view policy, uint64_t refs, uint64_t hits) {
  PolicyResult result;
  result.policy = policy;
  result.block_refs = refs;
  result.hits = hits;
  result.hit_rate = refs == 0 ? 0 : 100.0 * static_cast<double>(hits) / static_cast<double>(refs);
  return result;
}

// The resident set: the node in each slot, its number of resident children, and whether it is held.
class ResidentSet final : public policy::Residents {
 public:
  ResidentSet(const PathTrace& trace, size_t capacity)
      : trace_(trace), facts_(capacity), slots_(capacity), slot_of_(trace.parent.size(), kNoSlot) {
    for (size_t i = capacity; i > 0; --i) free_.push_back(static_cast<SlotId>(i - 1));
  }

  void set_policy(policy::EvictionPolicy* policy) { policy_ = policy; }
  [[nodiscard]] std::span<Facts> facts() { return facts_; }

  [[nodiscard]] bool evictable(SlotId slot) const noexcept override { return slots_[slot].pins == 0; }
  [[nodiscard]] uint64_t name(SlotId slot) const noexcept override {
    return mix((slots_[slot].node + 1ULL) * 0x9E3779B97F4A7C15ULL);
  }

  // Replays one request and returns its hits.
  uint64_t request(std::span<const uint32_t> path, uint32_t tick) {
    path_.clear();
    for (const uint32_t node : path) {
      if (slot_of_[node] == kNoSlot) break;
      path_.push_back(slot_of_[node]);
    }
    const size_t hits = path_.size();
    for (const SlotId slot : path_) touch(slot, tick);
    if (hits > 0 && policy_->hears_uses()) policy_->used(path_, tick);
    make_room(path.size() - hits, tick);
    for (size_t i = hits; i < path.size() && !free_.empty(); ++i) insert(path[i], static_cast<uint32_t>(i), tick);
    if (path_.size() > hits) policy_->inserted(std::span(path_).subspan(hits), tick);
    for (size_t i = path_.size(); i > 0; --i) release(path_[i - 1], tick);
    return hits;
  }

 private:
  struct Slot {
    uint32_t node = 0;
    uint32_t pins = 0;  // resident children, and 1 while held
  };

  void touch(SlotId slot, uint32_t tick) {
    Facts& facts = facts_[slot];
    slots_[slot].pins += 1;
    facts.last_use.store(tick, std::memory_order_relaxed);
    const uint16_t uses = facts.uses.load(std::memory_order_relaxed);
    if (uses < UINT16_MAX) facts.uses.store(static_cast<uint16_t>(uses + 1), std::memory_order_relaxed);
  }

  void make_room(size_t blocks, uint32_t tick) {
    while (free_.size() < blocks) {
      const SlotId victim = policy_->evict(tick);
      if (victim == kNoSlot) return;
      const uint32_t node = slots_[victim].node;
      slot_of_[node] = kNoSlot;
      free_.push_back(victim);
      if (trace_.parent[node] != kNoSlot) release(slot_of_[trace_.parent[node]], tick);
    }
  }

  void insert(uint32_t node, uint32_t depth, uint32_t tick) {
    const SlotId slot = free_.back();
    free_.pop_back();
    slot_of_[node] = slot;
    slots_[slot] = {node, 1};
    if (trace_.parent[node] != kNoSlot) slots_[slot_of_[trace_.parent[node]]].pins += 1;
    Facts& facts = facts_[slot];
    facts.last_use.store(tick, std::memory_order_relaxed);
    facts.uses.store(0, std::memory_order_relaxed);
    facts.depth = depth;
    facts.priority = 0;
    path_.push_back(slot);
  }

  void release(SlotId slot, uint32_t tick) {
    slots_[slot].pins -= 1;
    if (slots_[slot].pins == 0 && facts_[slot].queue == 0) policy_->available(slot, tick);
  }

  const PathTrace& trace_;
  policy::EvictionPolicy* policy_ = nullptr;
  std::vector<Facts> facts_;
  std::vector<Slot> slots_;
  std::vector<SlotId> slot_of_;  // by node
  std::vector<SlotId> free_;
  std::vector<SlotId> path_;  // slots of the current request
};

PolicyResult run(const PathTrace& trace, ResidentSet& residents, policy::EvictionPolicy& policy) {
  const double begin = thread_nanoseconds();
  uint64_t hits = 0;
  uint32_t tick = 0;
  for (const PathTrace::Path& path : trace.paths) {
    hits += residents.request(std::span(trace.nodes).subspan(path.first, path.count), ++tick);
  }
  const double took = thread_nanoseconds() - begin;
  PolicyResult result = finished(policy.name(), trace.nodes.size(), hits);
  if (!trace.nodes.empty()) result.nanoseconds = took / static_cast<double>(trace.nodes.size());
  return result;
}

// Returns, for every reference, the position of the next request that uses its node.
std::vector<uint32_t> next_uses(const PathTrace& trace) {
  std::vector<uint32_t> next(trace.nodes.size(), UINT32_MAX);
  std::vector<uint32_t> last(trace.parent.size(), UINT32_MAX);
  for (size_t r = trace.paths.size(); r > 0; --r) {
    const PathTrace::Path& path = trace.paths[r - 1];
    for (uint64_t i = path.first; i < path.first + path.count; ++i) {
      next[i] = last[trace.nodes[i]];
      last[trace.nodes[i]] = static_cast<uint32_t>(r - 1);
    }
  }
  return next;
}

}  // namespace

PathTrace make_paths(const trace::Trace& trace) {
  struct Edge {
    uint32_t parent;
    uint64_t id;
    bool operator==(const Edge&) const = default;
  };
  struct Hash {
    size_t operator()(const Edge& edge) const noexcept { return mix(edge.id * 0x9E3779B97F4A7C15ULL ^ edge.parent); }
  };
  PathTrace out;
  std::unordered_map<Edge, uint32_t, Hash> interned;
  out.paths.reserve(trace.requests.size());
  out.nodes.reserve(trace.hash_ids.size());
  interned.reserve(trace.hash_ids.size());
  for (const trace::Request& request : trace.requests) {
    out.paths.push_back({out.nodes.size(), request.count});
    uint32_t parent = kNoSlot;
    for (const uint64_t id : trace.blocks(request)) {
      const auto [it, fresh] = interned.try_emplace({parent, id}, static_cast<uint32_t>(out.parent.size()));
      if (fresh) out.parent.push_back(parent);
      parent = it->second;
      out.nodes.push_back(parent);
    }
  }
  return out;
}

Result<PolicyResult> replay_policy(const PathTrace& trace, PolicyMaker maker, void* context, size_t capacity) {
  if (capacity == 0) return Status(Code::invalid_argument, "the capacity must be at least one block");
  if (capacity >= kNoSlot) return Status(Code::invalid_argument, "the capacity must be below 2^32 - 1 blocks");
  // More slots than distinct blocks never matter, and need not be allocated.
  ResidentSet residents(trace, std::min(capacity, std::max<size_t>(trace.parent.size(), 1)));
  const auto policy = maker(context, residents.facts(), residents);
  if (policy == nullptr) return Status(Code::invalid_argument, "unknown eviction policy");
  residents.set_policy(policy.get());
  return run(trace, residents, *policy);
}

Result<PolicyResult> replay_policy(const PathTrace& trace, std::string_view policy, size_t capacity) {
  const auto maker = [](void* context, std::span<Facts> facts, const policy::Residents& residents) {
    return make_policy(*static_cast<std::string_view*>(context), facts, residents);
  };
  return replay_policy(trace, maker, &policy, capacity);
}

PolicyResult replay_optimal(const PathTrace& trace, size_t capacity) {
  struct Kept {
    uint32_t next;
    uint32_t depth;
    uint32_t node;
    bool operator<(const Kept& other) const noexcept {
      return next != other.next ? next < other.next : depth < other.depth;
    }
  };
  const std::vector<uint32_t> next = next_uses(trace);
  std::vector<uint32_t> kept_until(trace.parent.size(), UINT32_MAX);  // by node; UINT32_MAX = not kept
  std::priority_queue<Kept> latest;                                   // may hold stale entries
  size_t kept = 0;
  uint64_t hits = 0;
  for (const PathTrace::Path& path : trace.paths) {
    bool hitting = true;
    for (uint32_t depth = 0; depth < path.count; ++depth) {
      const uint64_t at = path.first + depth;
      const uint32_t node = trace.nodes[at];
      const bool was_kept = kept_until[node] != UINT32_MAX;
      hitting = hitting && was_kept;
      hits += hitting ? 1 : 0;
      kept += !was_kept && next[at] != UINT32_MAX ? 1 : 0;
      kept -= was_kept && next[at] == UINT32_MAX ? 1 : 0;
      kept_until[node] = next[at];
      if (next[at] != UINT32_MAX) latest.push({next[at], depth, node});
    }
    while (kept > capacity) {
      const Kept top = latest.top();
      latest.pop();
      if (kept_until[top.node] != top.next) continue;
      kept_until[top.node] = UINT32_MAX;
      kept -= 1;
    }
  }
  return finished("optimal", trace.nodes.size(), hits);
}

PolicyResult replay_unlimited(const PathTrace& trace) {
  std::vector<bool> seen(trace.parent.size());
  uint64_t hits = 0;
  for (const uint32_t node : trace.nodes) {
    hits += seen[node] ? 1 : 0;
    seen[node] = true;
  }
  return finished("unlimited", trace.nodes.size(), hits);
}

}  // namespace kvbm::replay
