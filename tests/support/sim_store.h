// A store in simulation: a bucket that several hosts share, each over a connection that may be slow, fail, lie or hang.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/sim_executor.h"
#include "tier/store/object_store.h"

namespace kvbm::test {

struct SimBucket {
  struct Object {
    std::vector<std::byte> bytes;
    uint64_t seen_ns = 0;  // listings show it from then on
  };
  std::map<std::string, Object> objects;
  size_t page_bytes = 1000;    // of one answer to a listing: small, so that there are several
  uint64_t list_delay_ns = 0;  // at most: how long after its put a listing shows an object
  [[nodiscard]] uint64_t bytes(std::string_view prefix) const {
    uint64_t sum = 0;
    for (const auto& [name, object] : objects) sum += name.starts_with(prefix) ? object.bytes.size() : 0;
    return sum;
  }
};

// Chances of faults, in per mille of requests.
struct SimStoreFaults {
  uint32_t refused = 0;      // answered with an error, nothing done
  uint32_t lost_answer = 0;  // done, and answered with an error
  uint32_t hangs = 0;        // never answered, unless it is cancelled (half of them not even then)
  uint32_t slow = 0;         // seconds instead of milliseconds
  uint32_t wrong_bytes = 0;  // a get gives other bytes
  uint32_t short_get = 0;
  uint32_t lying_list = 0;  // out of order, twice, of another prefix
};

class SimStore final : public tier::store::ObjectStore {
 public:
  SimStore(SimExecutor& sim, std::shared_ptr<SimBucket> bucket) : sim_(sim), bucket_(std::move(bucket)) {
    facts_.kind = "sim";
    facts_.description = "sim://bucket";
    facts_.object_bytes = 32 << 10;
    facts_.concurrency = 4;
  }
  // The host that has this store can change it while it runs.
  struct Control {
    SimStoreFaults faults;
    bool dead = false;  // the host was killed: nothing is answered any more
    bool down = false;  // every request fails
    uint64_t requests = 0;
    uint64_t gets = 0;  // requests that read objects
  };
  [[nodiscard]] std::shared_ptr<Control> control() const { return control_; }

  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return facts_; }
  tier::store::StoreFacts& facts_for_test() { return facts_; }
  void start(std::unique_ptr<tier::store::ObjectRequest> request) override;
  void cancel(uint64_t id) noexcept override;
  std::unique_ptr<tier::store::ObjectRequest> run(std::unique_ptr<tier::store::ObjectRequest> request,
                                                  UniqueFunction<void()> late) override;
  void close() noexcept override { closed_ = true; }
  void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override { control_->dead = true; }
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  using Request = tier::store::ObjectRequest;
  bool chance(uint32_t per_mille) { return per_mille != 0 && sim_.random().below(1000) < per_mille; }
  void apply(Request& r);
  void list(Request& r);
  static void answer(std::unique_ptr<Request> request) {
    auto finished = std::move(request->finished);
    finished(std::move(request));
  }

  SimExecutor& sim_;
  const std::shared_ptr<SimBucket> bucket_;
  const std::shared_ptr<Control> control_ = std::make_shared<Control>();
  tier::store::StoreFacts facts_;
  std::map<uint64_t, std::unique_ptr<Request>> hanging_;
  bool closed_ = false;
};

}  // namespace kvbm::test
