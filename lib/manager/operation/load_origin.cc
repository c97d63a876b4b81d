// Records in host memory: in slots of the match, or in memory that the load had them read into. Of other places:
// load_in_place.cc, load_storage.cc.
#include "manager/operation/load.h"

#include <utility>

#include "manager/host/host_record.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

void LoadOperation::Origin::leave(LoadOperation& /*load*/, const Item& /*item*/, std::vector<SlotId>& /*slots*/) const {
}

struct LoadOperation::Origins {
  // In a slot that the match holds. A managed block that never left the host has no head: nothing is compared.
  class OfMatch final : public Origin {
   public:
    Code open(LoadOperation& load, Entry& e) const override {
      HostTier& host = load.host_;
      const SlotId slot = e.item.got.slot;
      e.record.payload = host.arena().payload(slot).data();
      if ((host.table().flags(slot) & kHasHead) != 0) return load.accept_head(e, read_head(host, slot), true);
      const uint64_t expected = load.request_.cache->parts()[e.item.part].payload_bytes();
      if (host.table().payload_bytes(slot) != expected) return Code::mismatch;
      return load.check_position(false, std::nullopt, e.item.key);
    }
    bool close(LoadOperation& load, Entry& e) const override {
      if (e.code == Code::damaged) load.host_.quarantine(e.item.got.slot);
      return true;
    }
  };

  // Read into memory beside the host.
  class Beside : public Origin {
   public:
    Code open(LoadOperation& load, Entry& e) const override {
      const Delivery& got = e.item.got;
      e.record.payload = const_cast<std::byte*>(got.payload);  // nothing writes to a record that is loaded
      e.record.coded = got.coded.get();
      return load.accept_head(e, codec::HeadView::parse(got.head), got.coded == nullptr);
    }
    bool close(LoadOperation& load, Entry& e) const final {
      Delivery& got = e.item.got;
      got.keep.reset();
      end(load, e);
      got.coded.reset();
      load.placed_.fetch_sub(1, std::memory_order_release);
      if (e.code == Code::damaged) load.reject(e.item);  // the last: it may be refused memory
      return true;
    }
    void leave(LoadOperation& load, const Item& /*item*/, std::vector<SlotId>& /*slots*/) const override {
      load.placed_.fetch_sub(1, std::memory_order_relaxed);
    }

   protected:
    virtual void end(LoadOperation& /*load*/, Entry& /*e*/) const {}
  };

  // Read into a slot of the load's that only this load uses.
  class InSlot : public Beside {
   public:
    void leave(LoadOperation& load, const Item& item, std::vector<SlotId>& slots) const final {
      slots.push_back(item.got.slot);
      Beside::leave(load, item, slots);
    }

   protected:
    void end(LoadOperation& load, Entry& e) const override { load.host_.release({&e.item.got.slot, 1}); }
  };

  // Read into a slot, to stay in the host.
  class Staying final : public InSlot {
   public:
    Code open(LoadOperation& load, Entry& e) const override {
      const Code code = InSlot::open(load, e);
      e.all_checked = !e.cut_otherwise;  // else the whole payload is hashed before any of it is copied
      return code;
    }

   protected:
    void end(LoadOperation& load, Entry& e) const override {
      // A block that the host cannot keep has reached the engine all the same.
      if (e.code == Code::ok) (void)load.stack_.register_landed(load.identity(e.item), e.item.got);
      InSlot::end(load, e);
    }
  };

  // Read coded into a slot, for a device that decodes it. The host checks all of it when it decodes it, too.
  class StayingCoded final : public InSlot {
   protected:
    void end(LoadOperation& load, Entry& e) const override {
      if (e.code != Code::ok) return InSlot::end(load, e);
      load.stack_.background_decoder().keep(load.identity(e.item), std::move(e.item.got));
    }
  };
};

const LoadOperation::Origin& LoadOperation::origin_of_match() noexcept {
  static const Origins::OfMatch of_match{};
  return of_match;
}

// Returns the origin of a record that was read into host memory.
const LoadOperation::Origin& LoadOperation::origin_of(const Delivery& got) const noexcept {
  static const Origins::Beside beside{};
  static const Origins::InSlot in_slot{};
  static const Origins::Staying staying{};
  static const Origins::StayingCoded staying_coded{};
  if (got.slot == kNoSlot) return beside;
  if (request_.keep_below) return in_slot;
  if (got.coded == nullptr) return staying;
  return staying_coded;
}

// Accepts the entry's record by its head. `hashable`: the processor can hash the payload as it is, so its leaves may be
// other ones than the part's.
Code LoadOperation::accept_head(Entry& e, const Result<codec::HeadView>& head, bool hashable) const {
  if (!head.ok()) return Code::damaged;
  const Code fits = check_head(head.value(), e.item);
  if (fits != Code::ok) return fits;
  e.cut_otherwise = !is_cut_alike(head.value(), e.item);
  if (e.cut_otherwise && (!hashable || codec::is_coded(head.value()))) return Code::mismatch;
  e.head = head.value();
  if (!e.cut_otherwise) e.record.head = &*e.head;
  return Code::ok;
}

// Rejects a record because its bytes do not match its head: the tier that it was read from drops it.
void LoadOperation::reject(const Item& item) {
  if (item.got.from == kOtherSize) return;  // made here and stored nowhere
  stack_.lower().reject(item.got.from, identity(item), item.got.location);
}

}  // namespace kvbm::manager
