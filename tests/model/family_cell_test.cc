// FamilyCell in every order of the steps: a reader beside a writer that gives the cell to another family, over the code
// of lib/base itself with SteppedAtomic for std::atomic.
#include "base/family/family_cell.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "support/counts.h"
#include "support/interleavings.h"

namespace kvbm::family_cell_test {
namespace {

using test::Interleavings;
using test::SteppedAtomic;

// Makes a family in which each word identifies it.
Family family(uint16_t n) {
  Family out;
  out.ns.bytes.fill(static_cast<uint8_t>(n));
  out.geometry = n;
  out.component = n;
  out.shard = {n, n, n, n, n};
  return out;
}

// Result of a reader's get: the right family, nothing, or a family of another id, which is an error.
struct Seen {
  bool any = false;
  Family family;
};

// The reader asks for each of three ids, the writer gives the cell from the first to the second to the third.
template <class Cell>
uint64_t explore(std::string& wrong) {
  std::optional<Cell> cell;
  std::array<Seen, 3> seen;
  Interleavings orders;
  const uint64_t runs = orders.explore(
      [&] {
        cell.emplace();
        cell->put(1, family(1));
        seen = {};
      },
      [&] {
        for (uint16_t i = 0; i < 3; ++i) seen[i].any = cell->get(i + 1U, seen[i].family);
      },
      [&] {
        for (uint16_t n = 2; n <= 3; ++n) {
          cell->clear();
          cell->put(n, family(n));
        }
      },
      [&] {
        for (uint16_t i = 0; i < 3; ++i) {
          if (seen[i].any && seen[i].family != family(static_cast<uint16_t>(i + 1))) wrong = orders.order();
        }
        Family last;
        if (!cell->get(3, last) || last != family(3)) wrong = orders.order() + ", at the end";
        return wrong.empty();
      });
  return runs;
}

TEST(FamilyCell, gives_the_whole_family_of_an_id_or_nothing_in_every_order) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "coroutines are not threads";
  std::string wrong;
  const uint64_t runs = explore<FamilyCellOf<SteppedAtomic>>(wrong);
  EXPECT_EQ(wrong, "");
  EXPECT_GT(runs, 1000U);
  test::counted(runs, "orders of steps");
}

// A faulty variant that reads the id only once.
class OneLook {
 public:
  void put(FamilyId id, const Family& family) {
    id_.store(kNoFamily);
    geometry_.store(family.geometry);
    component_.store(family.component);
    id_.store(id);
  }
  void clear() { id_.store(kNoFamily); }
  bool get(FamilyId id, Family& out) {
    if (id_.load() != id) return false;
    out = family(static_cast<uint16_t>(id));
    out.geometry = geometry_.load();
    out.component = component_.load();
    return true;
  }

 private:
  SteppedAtomic<FamilyId> id_{kNoFamily};
  SteppedAtomic<uint64_t> geometry_;
  SteppedAtomic<uint16_t> component_;
};

TEST(FamilyCell, a_cell_that_is_read_with_one_look_is_found_out) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "coroutines are not threads";
  std::string wrong;
  explore<OneLook>(wrong);
  EXPECT_NE(wrong, "");
}

}  // namespace
}  // namespace kvbm::family_cell_test
