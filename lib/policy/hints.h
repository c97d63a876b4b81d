// The priority a caller may give a block (Facts::priority) and what it means to policies.
#pragma once

#include <cstdint>

namespace kvbm::policy {

enum Hint : uint8_t {
  kHintNormal = 0,    // nothing known: the policy judges
  kHintOneShot = 1,   // will not be asked for again: leaves before all others
  kHintContinue = 2,  // the conversation goes on: as a block that has returned (prefix: three times; others: hinted.h)
  kHintKeep = 3,      // leaves only when nothing of a lower level is evictable
};

}  // namespace kvbm::policy
