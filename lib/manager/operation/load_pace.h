// How much of a load is asked for at once, and how long it waits for that. Chosen once, when the load is made. Thread:
// that of the steps.
#pragma once

#include "manager/operation/load.h"

namespace kvbm::manager {

class LoadOperation::Pace {
 public:
  // Begins when it is planned where all records are read from.
  virtual void begin(LoadOperation& /*load*/) {}
  // Returns the largest size of the next batch, which begins with `first`; `left` bytes are still to be read.
  virtual uint64_t batch_bytes(const LoadOperation& load, const Item& first, uint64_t left) = 0;
  virtual size_t batch_items(const LoadOperation& /*load*/) { return kLandingItems; }
  // Returns true if a batch may be asked for beside those in flight.
  virtual bool may_ask(const LoadOperation& load) KVBM_REQUIRES(load.mutex_) = 0;
  // Returns the time on the clock after which the load waits for no batch.
  virtual uint64_t give_up_ns() { return kNever; }
  // Returns true if nothing still missing is worth waiting for. `idle`: everything that was read has been copied.
  virtual bool out_of_time(LoadOperation& /*load*/, bool /*idle*/) { return false; }
  // Wakes the load when it is too late to wait longer.
  virtual void wait_at_most(LoadOperation& /*load*/) {}
  // Returns true if keys that are pending at the end are left to the engine.
  virtual bool leaves_rest() { return false; }
  // Counts the outcome of a load that ran to its end.
  virtual void account(LoadOperation& /*load*/) {}

 protected:
  ~Pace() = default;
};

}  // namespace kvbm::manager
