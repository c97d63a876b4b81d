// The life cycle as types, for C++ callers: PartialBlock (exclusive, writable) -> CompleteBlock
// (bytes final) -> RegisteredBlock (named, shared, read-only) <-> WeakBlock.
//
// Each is move-only and owns one reference; a transition consumes the block, a refusal returns it, dropping it returns
// the slot or the reference, inline. A thin layer over BlockTable: its slot word decides. The table outlives every
// block. A moved-from block is empty.
// Budget: no allocation. Batches: BlockTable's span calls, or RegisteredBlocks.
#pragma once

#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "block/block_table.h"

namespace kvbm::block {

// The block in its next state, or the code of the refusal and the block as it was.
template <class Next, class Same>
class [[nodiscard]] Transition {
 public:
  explicit Transition(Next next) : state_(std::in_place_index<0>, std::move(next)) {}
  Transition(Code code, Same same) : state_(std::in_place_index<1>, std::move(same)), code_(code) {}
  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  // ok, exists (a duplicate; see DuplicateMode), or why it was refused.
  [[nodiscard]] Code code() const noexcept { return code_; }
  void set_code(Code code) noexcept { code_ = code; }
  [[nodiscard]] Next take() && { return std::move(*std::get_if<0>(&state_)); }
  [[nodiscard]] Same refused() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<Next, Same> state_;
  Code code_ = Code::ok;
};

// One reference to one slot.
class OwnedSlot {
 public:
  OwnedSlot() = default;
  OwnedSlot(BlockTable& table, SlotId slot) noexcept : table_(&table), slot_(slot) {}
  OwnedSlot(OwnedSlot&& other) noexcept : table_(other.table_), slot_(std::exchange(other.slot_, kNoSlot)) {}
  OwnedSlot& operator=(OwnedSlot&& other) noexcept {
    if (this != &other) {
      drop();
      table_ = other.table_;
      slot_ = std::exchange(other.slot_, kNoSlot);
    }
    return *this;
  }
  OwnedSlot(const OwnedSlot&) = delete;
  OwnedSlot& operator=(const OwnedSlot&) = delete;
  ~OwnedSlot() { drop(); }

  [[nodiscard]] SlotId slot() const noexcept { return slot_; }
  [[nodiscard]] explicit operator bool() const noexcept { return slot_ != kNoSlot; }
  [[nodiscard]] BlockTable& table() const noexcept { return *table_; }
  // Passes the reference to the caller.
  [[nodiscard]] SlotId detach() noexcept { return std::exchange(slot_, kNoSlot); }

 private:
  void drop() noexcept {
    if (slot_ != kNoSlot) table_->release({&slot_, 1});
    slot_ = kNoSlot;
  }
  BlockTable* table_ = nullptr;
  SlotId slot_ = kNoSlot;
};

// Names a block without keeping it.
class WeakBlock {
 public:
  WeakBlock(BlockTable& table, SlotId slot, uint32_t generation) noexcept
      : table_(&table), slot_(slot), generation_(generation) {}
  [[nodiscard]] SlotId slot() const noexcept { return slot_; }
  [[nodiscard]] uint32_t generation() const noexcept { return generation_; }
  // Returns the block, held; empty when it is gone.
  [[nodiscard]] class RegisteredBlock upgrade() const noexcept;

 private:
  BlockTable* table_;
  SlotId slot_;
  uint32_t generation_;
};

class RegisteredBlock {
 public:
  RegisteredBlock() = default;
  explicit RegisteredBlock(OwnedSlot slot) noexcept : slot_(std::move(slot)) {}
  [[nodiscard]] SlotId slot() const noexcept { return slot_.slot(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(slot_); }
  [[nodiscard]] Identity identity() const noexcept { return slot_.table().identity(slot()); }
  [[nodiscard]] RegisteredBlock clone() const noexcept;
  [[nodiscard]] WeakBlock weaken() const noexcept { return {slot_.table(), slot(), slot_.table().generation(slot())}; }
  [[nodiscard]] SlotId detach() && noexcept { return slot_.detach(); }

 private:
  OwnedSlot slot_;
};

class CompleteBlock {
 public:
  explicit CompleteBlock(OwnedSlot slot) noexcept : slot_(std::move(slot)) {}
  [[nodiscard]] SlotId slot() const noexcept { return slot_.slot(); }
  // Gives the block its name. `parent` may be null. A rejected duplicate is replaced by the existing block.
  [[nodiscard]] auto publish(const Identity& name, const RegisteredBlock* parent, DuplicateMode duplicates,
                             uint32_t tick = 0) && -> Transition<RegisteredBlock, CompleteBlock>;

 private:
  OwnedSlot slot_;
};

class PartialBlock {
 public:
  explicit PartialBlock(OwnedSlot slot) noexcept : slot_(std::move(slot)) {}
  [[nodiscard]] SlotId slot() const noexcept { return slot_.slot(); }
  // Ends writing.
  [[nodiscard]] auto complete() && -> Transition<CompleteBlock, PartialBlock>;

 private:
  OwnedSlot slot_;
};

// All or nothing, as BlockTable::allocate.
[[nodiscard]] Result<std::vector<PartialBlock>> allocate(BlockTable& table, size_t n,
                                                         AccountId account = kSharedAccount,
                                                         std::vector<Evicted>* evicted = nullptr, uint32_t tick = 0);

// References to many registered slots, ended together with one call.
class RegisteredBlocks {
 public:
  RegisteredBlocks() = default;
  // Takes over references that the caller has.
  RegisteredBlocks(BlockTable& table, std::vector<SlotId> slots) noexcept : table_(&table), slots_(std::move(slots)) {}
  RegisteredBlocks(RegisteredBlocks&& other) noexcept : table_(other.table_), slots_(std::exchange(other.slots_, {})) {}
  RegisteredBlocks& operator=(RegisteredBlocks&& other) noexcept {
    if (this != &other) {
      drop();
      table_ = other.table_;
      slots_ = std::exchange(other.slots_, {});
    }
    return *this;
  }
  RegisteredBlocks(const RegisteredBlocks&) = delete;
  RegisteredBlocks& operator=(const RegisteredBlocks&) = delete;
  ~RegisteredBlocks() { drop(); }
  // Holds the longest present prefix of the keys.
  [[nodiscard]] static RegisteredBlocks match(BlockTable& table, FamilyId family, std::span<const Key> keys,
                                              uint32_t tick);
  [[nodiscard]] std::span<const SlotId> slots() const noexcept { return slots_; }
  [[nodiscard]] size_t size() const noexcept { return slots_.size(); }

 private:
  void drop() noexcept {
    if (!slots_.empty()) table_->release(slots_);
    slots_.clear();
  }
  BlockTable* table_ = nullptr;
  std::vector<SlotId> slots_;
};

}  // namespace kvbm::block
