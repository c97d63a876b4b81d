// Priorities that a caller may give a block (Facts::priority), and their meaning for policies.
#pragma once

#include <cstdint>

namespace kvbm::policy {

enum Hint : uint8_t {
  kHintNormal = 0,    // nothing known: the policy decides
  kHintOneShot = 1,   // will not be requested again: evicted before all others
  kHintContinue = 2,  // the conversation continues: as a returned block (prefix: three times; others: hinted.h)
  kHintKeep = 3,      // evicted only when nothing of a lower level is evictable
};

}  // namespace kvbm::policy
