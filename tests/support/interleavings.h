// Every order in which the steps of two threads can come, one run for each that differs from all others. Not under the
// thread sanitizer.
//
//   Interleavings orders;
//   orders.explore(begin, first, second, end);   // begin(); first() beside second(); end(): again and again
//
// A step is what a SteppedAtomic or a SteppedMutex does while explore() runs; what lies between two steps belongs to
// the one before. Both threads are coroutines of the caller's, so a run is repeatable, and only what begin() makes is
// shared. Steps are taken one after the other: what weaker memory orders allow beyond that is the thread sanitizer's to
// find.
//
// Two orders differ if two steps on one object, at least one of which changes it, come the other way round. Of those
// that do not differ one is tried: dynamic partial-order reduction (Flanagan and Godefroid, 2005) with sleep sets.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace kvbm::test {

// The sanitizer treats coroutines as independent threads.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

class Interleavings {
 public:
  enum class Access : uint8_t { read, write, lock, unlock };

  // Returns the number of runs: all of them, or those up to the first after which end() reported a fault.
  uint64_t explore(const std::function<void()>& begin, const std::function<void()>& first,
                   const std::function<void()>& second, const std::function<bool()>& end) {
    const std::function<void()>* const work[2] = {&first, &second};
    nodes_.clear();
    for (uint64_t runs = 1;; ++runs) {
      begin();
      run(work);
      if (stuck_ || !end() || !next()) return runs;
    }
  }
  // Returns true if the threads waited for each other, or for a lock that was never released.
  [[nodiscard]] bool stuck() const noexcept { return stuck_; }
  // Returns which thread took each step of the last run.
  [[nodiscard]] std::string order() const {
    std::string out;
    for (const Node& node : nodes_) out += node.chosen == 0 ? '1' : '2';
    return out;
  }

  // Returns the thread of the current step, 0 or 1; -1 outside of explore().
  [[nodiscard]] static int thread() noexcept { return now() != nullptr ? now()->running_ : -1; }
  // Called before an access; returns when the access is to be made.
  static void step(const void* object, Access access) {
    if (now() != nullptr) now()->wait({object, access});
  }

 private:
  struct Step {
    const void* object = nullptr;
    Access access = Access::read;
  };
  // Counts how many steps of each thread happened before a step.
  struct Clock {
    uint32_t of[2] = {0, 0};
    void join(const Clock& other) {
      for (int t = 0; t < 2; ++t) of[t] = of[t] < other.of[t] ? other.of[t] : of[t];
    }
  };
  struct Object {
    Clock written, seen;
    int last_write[2] = {-1, -1};  // of each thread: the number of its step
    int last_read[2] = {-1, -1};
    int owner = -1;
  };
  // A state of the run: the next step of each thread, and the thread to run.
  struct Node {
    Step pending[2];
    uint8_t enabled = 0;  // sets of threads, one bit each
    uint8_t todo = 0;
    uint8_t done = 0;
    uint8_t asleep = 0;  // threads with a next step that was tried before, in an equivalent order
    int chosen = 0;
  };
  struct Thread {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStack);
    const std::function<void()>* work = nullptr;
    Step pending;
    Clock clock;
    bool ended = true;
  };
  static constexpr size_t kStack = 256 << 10;

  static Interleavings*& now() noexcept {
    static Interleavings* one = nullptr;
    return one;
  }
  static uint8_t bit(int thread) { return static_cast<uint8_t>(1U << thread); }
  static bool dependent(const Step& a, const Step& b) {
    return a.object == b.object && (a.access != Access::read || b.access != Access::read);
  }

  void run(const std::function<void()>* const (&work)[2]) {
    now() = this;
    objects_.clear();
    depth_ = 0;
    redundant_ = false;
    step_of_.clear();
    // Runs each thread up to its first step.
    for (int t = 0; t < 2; ++t) {
      Thread& thread = threads_[t];
      thread.work = work[t];
      thread.clock = {};
      thread.ended = false;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.get();
      thread.context.uc_stack.ss_size = kStack;
      thread.context.uc_link = nullptr;
      makecontext(&thread.context, &Interleavings::enter, 0);
      running_ = t;
      starting_ = true;
      swapcontext(&main_, &thread.context);
    }
    starting_ = false;
    const int first = choose();
    if (first >= 0) {
      running_ = first;
      swapcontext(&main_, &threads_[first].context);
    }
    now() = nullptr;
  }
  static void enter() {
    Interleavings& it = *now();
    Thread& mine = it.threads_[it.running_];
    (*mine.work)();
    mine.ended = true;
    if (it.starting_) {
      setcontext(&it.main_);
      std::abort();
    }
    const int next = it.choose();
    if (next >= 0) it.running_ = next;
    setcontext(next >= 0 ? &it.threads_[next].context : &it.main_);
    std::abort();
  }

  void wait(const Step& step) {
    const int me = running_;
    threads_[me].pending = step;
    if (starting_) {
      swapcontext(&threads_[me].context, &main_);
      return;
    }
    const int next = choose();
    if (next == me) return;
    running_ = next;
    swapcontext(&threads_[me].context, next >= 0 ? &threads_[next].context : &main_);
  }

  // Chooses the thread of the next step and records the step as taken; -1: no thread can run.
  int choose() {
    uint8_t enabled = 0;
    for (int t = 0; t < 2; ++t) {
      const Thread& thread = threads_[t];
      if (thread.ended) continue;
      const bool waits = thread.pending.access == Access::lock && objects_[thread.pending.object].owner >= 0;
      if (!waits) enabled = static_cast<uint8_t>(enabled | bit(t));
    }
    if (enabled == 0) {
      stuck_ = stuck_ || !threads_[0].ended || !threads_[1].ended;
      return -1;
    }
    int chosen = (enabled & bit(running_)) != 0 ? running_ : 1 - running_;
    if (!redundant_) {
      if (depth_ == nodes_.size()) nodes_.push_back(fresh(enabled, chosen));
      Node& node = nodes_[depth_];
      if (node.chosen < 0) {  // every order from here on was tried already
        nodes_.pop_back();
        redundant_ = true;
      } else {
        chosen = node.chosen;
        node.enabled = enabled;
        for (int t = 0; t < 2; ++t) node.pending[t] = threads_[t].pending;
        note_races();
      }
    }
    take(chosen);
    ++depth_;
    return chosen;
  }

  Node fresh(uint8_t enabled, int preferred) const {
    Node node;
    if (depth_ > 0) {
      const Node& before = nodes_[depth_ - 1];
      for (int t = 0; t < 2; ++t) {
        const bool slept = ((before.asleep | before.done) & bit(t)) != 0 && t != before.chosen;
        if (slept && !dependent(before.pending[t], before.pending[before.chosen])) {
          node.asleep = static_cast<uint8_t>(node.asleep | bit(t));
        }
      }
    }
    const auto awake = static_cast<uint8_t>(enabled & ~node.asleep);
    node.chosen = awake == 0 ? -1 : (awake & bit(preferred)) != 0 ? preferred : 1 - preferred;
    if (node.chosen >= 0) node.todo = bit(node.chosen);
    return node;
  }

  // Finds pairs of steps that could also happen in the other order: the next step of one thread, and a step that the
  // other has taken. Plans a run with the other order.
  void note_races() {
    for (int t = 0; t < 2; ++t) {
      if (threads_[t].ended) continue;
      const Step& step = threads_[t].pending;
      if (step.access == Access::unlock) continue;  // a lock is released before it is taken again
      const auto found = objects_.find(step.object);
      if (found == objects_.end()) continue;
      const int other = 1 - t;
      int last = found->second.last_write[other];
      if (step.access == Access::write && found->second.last_read[other] > last) last = found->second.last_read[other];
      if (last < 0 || threads_[t].clock.of[other] >= static_cast<uint32_t>(last) + 1) continue;
      Node& node = nodes_[step_of_[other][static_cast<size_t>(last)]];
      node.todo = static_cast<uint8_t>(node.todo | ((node.enabled & bit(t)) != 0 ? bit(t) : node.enabled));
    }
  }

  void take(int t) {
    Thread& thread = threads_[t];
    Object& object = objects_[thread.pending.object];
    const int number = static_cast<int>(thread.clock.of[t]++);
    step_of_[t].push_back(depth_);
    thread.clock.join(object.written);
    switch (thread.pending.access) {
      case Access::read:
        object.seen.join(thread.clock);
        object.last_read[t] = number;
        return;
      case Access::lock:
        object.owner = t;
        object.last_write[t] = number;
        break;
      case Access::unlock:
        object.owner = -1;
        break;
      case Access::write:
        thread.clock.join(object.seen);
        object.last_write[t] = number;
    }
    object.written = thread.clock;
  }

  // Goes back to the last state with a choice left to try. Returns false if there is none.
  bool next() {
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      node.done = static_cast<uint8_t>(node.done | bit(node.chosen));
      const auto left = static_cast<uint8_t>(node.todo & ~node.done & ~node.asleep);
      if (left != 0) {
        node.chosen = (left & 1U) != 0 ? 0 : 1;
        return true;
      }
      nodes_.pop_back();
    }
    return false;
  }

  struct StepsOf {
    std::vector<size_t> of[2];
    std::vector<size_t>& operator[](int t) { return of[t]; }
    void clear() { of[0].clear(), of[1].clear(); }
  };

  Thread threads_[2];
  ucontext_t main_{};
  std::unordered_map<const void*, Object> objects_;
  std::vector<Node> nodes_;
  StepsOf step_of_;  // the depth of each step of a thread
  size_t depth_ = 0;
  int running_ = 0;
  bool starting_ = false;
  bool redundant_ = false;
  bool stuck_ = false;
};

// Replaces std::atomic; has its size.
template <class T>
class SteppedAtomic {
 public:
  SteppedAtomic() noexcept = default;
  constexpr SteppedAtomic(T value) noexcept : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  SteppedAtomic(const SteppedAtomic&) = delete;
  SteppedAtomic& operator=(const SteppedAtomic&) = delete;

  template <class... Order>
  T load(Order...) const noexcept {
    Interleavings::step(this, Interleavings::Access::read);
    return value_;
  }
  template <class... Order>
  void store(T value, Order...) noexcept {
    Interleavings::step(this, Interleavings::Access::write);
    value_ = value;
  }
  template <class... Order>
  T exchange(T value, Order...) noexcept {
    return change([value](T) { return value; });
  }
  template <class... Order>
  bool compare_exchange_strong(T& expected, T desired, Order...) noexcept {
    Interleavings::step(this, Interleavings::Access::write);
    if (value_ == expected) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }
  template <class... Order>
  bool compare_exchange_weak(T& expected, T desired, Order... order) noexcept {
    return compare_exchange_strong(expected, desired, order...);
  }
  template <class... Order>
  T fetch_add(T by, Order...) noexcept {
    return change([by](T old) { return static_cast<T>(old + by); });
  }
  template <class... Order>
  T fetch_sub(T by, Order...) noexcept {
    return change([by](T old) { return static_cast<T>(old - by); });
  }
  template <class... Order>
  T fetch_or(T bits, Order...) noexcept {
    return change([bits](T old) { return static_cast<T>(old | bits); });
  }
  template <class... Order>
  T fetch_and(T bits, Order...) noexcept {
    return change([bits](T old) { return static_cast<T>(old & bits); });
  }
  operator T() const noexcept { return load(); }  // NOLINT(google-explicit-constructor): as std::atomic

 private:
  template <class Change>
  T change(Change&& to) noexcept {
    Interleavings::step(this, Interleavings::Access::write);
    const T old = value_;
    value_ = to(old);
    return old;
  }
  T value_{};
};

}  // namespace kvbm::test
