// Device memory that the link's transport reads and writes by itself (README.md, Device memory in transfers), cut
// into slots: one piece for each mover, made and registered when the first slot is needed. No transfer waits for it,
// and every failure falls back to host memory. A connection on which a transfer failed does not use it any more.
// Neither does a mover with memory that could not be had, or that failed on several connections in a row. A
// connection that ends also ends its transfers; that is no failure of memory that has worked before.
//
// A slot is taken for one transfer, and released when its token has ended and no copy reads it any more, like
// staging. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/session/link.h"
#include "cluster/session/mover.h"

namespace kvbm::cluster::session {

class DirectStaging {
  struct Memory;

 public:
  struct Options {
    uint32_t slots = 0;  // of each mover
    uint64_t slot_bytes = 0;
    bool written = false;      // transfers write it, not only read it
    uint64_t least_bytes = 0;  // smaller payloads use host memory
    // Gets messages for the log. May be empty.
    std::function<void(const std::string&)> note;
  };
  // Number of failures on different connections, without a success in between, after which a mover's memory is not
  // used any more.
  static constexpr uint32_t kMostFailures = 4;

  class Slot {
   public:
    [[nodiscard]] bool taken() const noexcept { return memory_ != nullptr; }

   private:
    friend class DirectStaging;
    Memory* memory_ = nullptr;
    uint32_t number_ = 0;
  };

  DirectStaging(const Options& options, Link& link);
  ~DirectStaging();
  DirectStaging(const DirectStaging&) = delete;
  DirectStaging& operator=(const DirectStaging&) = delete;

  // Takes a slot. Not taken: that connection may use none, or none is free. The first call for a mover asks it for
  // memory.
  Slot take(PeerId peer, SliceMover& mover, uint64_t bytes);
  // Releases a slot; no-op if it is not taken.
  void give(Slot& slot) noexcept;
  [[nodiscard]] std::byte* data(const Slot& slot) const noexcept;
  // Fills in a move into or out of the slot.
  void place(const Slot& slot, SliceMove& move) const;

  // Report the result of a transfer to or from the slot. After a failure the connection uses host memory.
  void worked(const Slot& slot) noexcept;
  void failed(const Slot& slot, PeerId peer, const Status& why);
  void closed(PeerId peer) { without_.erase(peer); }

  [[nodiscard]] uint32_t taken() const noexcept;
  // Returns how many connections and movers have fallen back to host memory.
  [[nodiscard]] uint64_t failures() const noexcept { return failures_; }

 private:
  Memory& of(SliceMover& mover);
  void made(const SliceMover* mover, Result<SharedMemory> memory);
  void give_up(Memory& memory, const std::string& why);

  const Options options_;
  Link& link_;
  std::vector<std::unique_ptr<Memory>> all_;  // one a mover, so few
  std::set<PeerId> without_;
  uint64_t failures_ = 0;
  std::shared_ptr<DirectStaging*> self_ = std::make_shared<DirectStaging*>(this);
};

}  // namespace kvbm::cluster::session
