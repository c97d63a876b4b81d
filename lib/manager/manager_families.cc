// Families that nothing uses any more are given back (base/family_table.h says why that is safe): a table of 65,536 serves any
// number of namespaces, epochs and peers, one after the other.
//
// What keeps ids, and is asked: slots of the host; tiers that keep records; handles of namespaces, which planned parts at
// their epoch; what was stored and not flushed. What is told of those that went: tiers and coding, which keep more by them.
// What keeps ids and is not asked, because it only remembers: where other nodes have records, which engine blocks a stored
// block began with. Operations in flight keep ids as well. Those that write hold slots, those that read hold a handle or what
// they read is in a tier; one that neither holds for so long that the table is looked through twice finds nothing.
#include "base/memory_wait.h"
#include "manager/coding_terms.h"
#include "manager/manager.h"

namespace kvbm::manager {

void Manager::watch_families() {
  families_.on_growth([this] { give_back_families(); },
                      [executor = env_.executor, weak = weak_from_this()] {
                        executor->post([weak] {
                          const MemoryWait nobody_to_tell;
                          if (const auto alive = weak.lock()) alive->give_back_families();
                        });
                      });
}

void Manager::add_stored(FamilyTable::Named& named) {
  table_->each_family([&](FamilyId family) { named.add(family); });
  for (const auto& tier : tiers_) tier->families(named);
}

void Manager::give_back_families() {
  MutexLock alone(giving_back_);
  FamilyTable::Named named = families_.begin_give_back();
  add_stored(named);
  share_.unflushed.add_to(named);
  {
    MutexLock lock(namespaces_mutex_);
    for (const auto& [base_id, known] : known_) {
      for (const auto& handle : known.handles) {
        if (const auto live = handle.lock()) live->add_to(named);
      }
    }
  }
  const MemoryWait told;  // what goes has gone from everywhere
  const std::vector<FamilyId> gone = families_.give_back(named);
  if (gone.empty()) return;
  coding_terms_->forget_families(gone);
  for (const auto& tier : tiers_) tier->forget_families(gone);
}

}  // namespace kvbm::manager
