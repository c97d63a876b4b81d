// Where records of a load lie. That decides how a record is opened, and what happens to it at the end of its use. An
// item gets its origin once, when it is known. There is one object for each kind of place.
#pragma once

#include <vector>

#include "manager/operation/load.h"

namespace kvbm::manager {

class LoadOperation::Origin {
 public:
  // Finds head and payload of the entry's record, and checks that the record is what the cache part expects.
  virtual Code open(LoadOperation& load, Entry& e) const = 0;
  // Ends the use of the entry's record. A damaged one is rejected at its source. False: the item is asked for again.
  virtual bool close(LoadOperation& load, Entry& e) const = 0;
  // Ends it for a record that is not used. Adds its slot, if the load owns that, to those that the caller releases.
  virtual void leave(LoadOperation& load, const Item& item, std::vector<SlotId>& slots) const;

 protected:
  ~Origin() = default;
};

}  // namespace kvbm::manager
