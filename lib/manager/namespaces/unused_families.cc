// Frees family ids that are no longer used (base/family/family_table.h explains why that is safe). So a table of 65,536
// serves any number of namespaces, epochs and peers, one after the other.
//
// Owners that are asked which ids they use: slots of the host; tiers that store records; handles of namespaces, which
// planned parts at their epoch; stored blocks that are not flushed. Tiers and coding keep data by id and are notified
// of freed ids. Some tables keep ids only as hints and are not asked: where other nodes have records, which engine
// blocks a stored block began with. Operations in flight keep ids as well. Writing operations hold slots. Reading
// operations hold a handle, or their records are in a tier. One with neither, for so long that the table is searched
// twice, finds nothing.
#include "base/thread/memory_wait.h"
#include "manager/lower/coding_terms.h"
#include "manager/namespaces/namespaces.h"

namespace kvbm::manager {

void Namespaces::watch_families() {
  host_.families().on_growth([this] { give_back_families(); },
                             [this, executor = host_.env().executor, weak = host_.lifetime().watch()] {
                               executor->post([this, weak] {
                                 const MemoryWait until_done;
                                 if (const auto alive = weak.lock()) give_back_families();
                               });
                             });
}

void Namespaces::give_back_families() {
  MutexLock alone(giving_back_);
  FamilyTable::Named named = host_.families().begin_give_back();
  stack_.add_stored(named);
  stack_.unflushed().add_to(named);
  {
    MutexLock lock(mutex_);
    for (const auto& [base_id, known] : known_) {
      for (const auto& handle : known.handles) {
        if (const auto live = handle.lock()) live->add_to(named);
      }
    }
  }
  const MemoryWait reported;  // freed ids are gone from the table, so notifying must not fail
  const std::vector<FamilyId> gone = host_.families().give_back(named);
  if (gone.empty()) return;
  coding_terms_->forget_families(gone);
  for (const auto& tier : stack_.lower().all()) tier->forget_families(gone);
}

}  // namespace kvbm::manager
