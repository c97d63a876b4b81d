// Memory of devices that the link's transport reads and writes by itself (README.md, Device memory in transfers), cut
// into slots: for each mover one piece of its own, made and registered when the first slot is wanted. Nothing waits for
// it, and whatever goes wrong with it is mended through host memory: a connection on which a transfer failed does without
// from then on, a mover's memory that cannot be had, or that failed on several connections in a row, is not used again.
// A connection that ends ends its transfers, too: that says nothing about memory that has worked before.
//
// A slot is taken for one transfer and given back when its token has ended and no copy reads it any more, as staging.
// One thread at a time.
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
    uint32_t slots = 0;      // of each mover
    uint64_t slot_bytes = 0;
    bool written = false;    // by transfers, not only read
    uint64_t least_bytes = 0;  // a payload that is shorter takes host memory
    // What is worth a line in the log. May be empty.
    std::function<void(const std::string&)> note;
  };
  // Failures on different connections, without a success in between, after which a mover's memory is not used again.
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

  // Not taken: there is none for that connection, or none now. The first call for a mover asks it for memory.
  Slot take(PeerId peer, SliceMover& mover, uint64_t bytes);
  // Nothing happens where it is not taken.
  void give(Slot& slot) noexcept;
  [[nodiscard]] std::byte* data(const Slot& slot) const noexcept;
  // For a copy in or out of the slot.
  void place(const Slot& slot, SliceMove& move) const;

  // A transfer with that slot ended well; or not, and the connection does without from now on.
  void worked(const Slot& slot) noexcept;
  void failed(const Slot& slot, PeerId peer, const Status& why);
  void closed(PeerId peer) { without_.erase(peer); }

  [[nodiscard]] uint32_t taken() const noexcept;
  // Connections and movers that went over to host memory.
  [[nodiscard]] uint64_t failures() const noexcept { return failures_; }

 private:
  Memory& of(SliceMover& mover);
  void made(const SliceMover* mover, Result<SharedMemory> memory);
  void give_up(Memory& memory, const std::string& why);

  const Options options_;
  Link& link_;
  std::vector<std::unique_ptr<Memory>> all_;  // one a mover, few
  std::set<PeerId> without_;
  uint64_t failures_ = 0;
  std::shared_ptr<DirectStaging*> self_ = std::make_shared<DirectStaging*>(this);
};

}  // namespace kvbm::cluster::session
