// The state of a coded tier and its two paths: write_path.cc (encode, then the inner tier in order), read_path.cc (the
// inner tier, then decode).
//
// Lock: mutex_ is a leaf but for memory: no call of the inner tier, of `done` or of the log is made under it. The inner
// tier's locks are taken without it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/thread/mutex.h"
#include "tier/coded/coded_tier.h"
#include "tier/coded/hand_on.h"
#include "tier/coded/staging.h"

namespace kvbm::tier::coded {

class CodedCore : public std::enable_shared_from_this<CodedCore> {
 public:
  CodedCore(CodedTierOptions options, Tier& inner, Executor& executor, Random& random);

  void put(std::unique_ptr<PutBatch> batch);
  void get(std::unique_ptr<GetBatch> batch);
  // Cancels records on their way down. Called before the inner tier forgets those that it has.
  void forget(std::span<const Identity> ids);
  void forget(FamilyId family);
  // Drops state kept by these ids, which are no longer in use.
  void forget_families(std::span<const FamilyId> gone);
  // Room that a found record takes once it is decoded; 0: as much as is stored.
  uint64_t room_of(FamilyId family, uint64_t stored_bytes) noexcept;
  void add_stats(TierStats& stats) const;
  [[nodiscard]] const CodedTierOptions& options() const noexcept { return options_; }
  // Accepts no new work; `done` runs when none of its own is in flight.
  void shutdown(UniqueFunction<void()> done);
  // Called before the inner tier is destroyed. Items that were not passed to the inner tier yet end with `closed`.
  void leave() noexcept;

 private:
  // ---- Writing (write_path.cc) ----
  struct PutPiece {
    bool code = false;       // by the recipe
    bool encode = false;     // the record passes encode() before it is sent
    bool own = false;        // the recipe is the namespace's
    bool erased = false;     // under mutex_, unlike the other members
    Code failed = Code::ok;  // not ok: it is not sent
    TierChoice::Level level = TierChoice::Level::off;
    std::optional<TierChoice::Level> probe;
    codec::Recipe recipe;
    codec::RecordForm form;
    Staging::Buffer staging;
    ConstBytes head, payload;  // to be sent
  };
  struct PutOp {
    std::unique_ptr<PutBatch> batch;
    std::vector<PutPiece> pieces;
    size_t next = 0;  // first of the pieces that are in no chunk yet
    size_t open = 0;  // pieces that are not settled
  };
  // Consecutive pieces of one batch that are encoded and sent together.
  struct Chunk {
    std::shared_ptr<PutOp> op;
    size_t first = 0, n = 0;
    size_t tasks = 0;  // encoding tasks that are not done
  };
  using PutOps = std::vector<std::shared_ptr<PutOp>>;
  bool plan(PutOp& op, const std::vector<std::shared_ptr<const FamilyTerms>>& terms, double read_ns)
      KVBM_REQUIRES(mutex_);
  bool plan_as_stored(PutPiece& piece, const PutItem& item) KVBM_REQUIRES(mutex_);
  void plan_one(PutPiece& piece, const PutItem& item, const FamilyTerms& terms, uint64_t now, double read_ns)
      KVBM_REQUIRES(mutex_);
  void pump_writes();
  bool begin_chunk(std::vector<UniqueFunction<void()>>& tasks) KVBM_REQUIRES(mutex_);
  bool room_for(PutPiece& piece, const PutItem& item) KVBM_REQUIRES(mutex_);
  void encode(const std::shared_ptr<Chunk>& chunk, size_t from, size_t to);
  void encode_one(const PutItem& item, PutPiece& piece, codec::Workspace& workspace, CodecStats& counts);
  void probe(const PutItem& item, PutPiece& piece, const codec::HeadView& head, codec::Workspace& workspace);
  bool send_ready();
  std::unique_ptr<PutBatch> batch_of(const std::shared_ptr<Chunk>& chunk, PutOps& over) KVBM_REQUIRES(mutex_);
  void written(PutOp& op, const std::vector<size_t>& which, const std::vector<Code>& codes,
               const std::shared_ptr<PutOp>& keep);
  void expire_puts(uint64_t now);
  bool settle(PutOp& op, size_t i, Code code) KVBM_REQUIRES(mutex_);
  void end(PutOps& over);
  void watch_encoding() KVBM_REQUIRES(mutex_);
  void measure(PutBatch& batch);

  // ---- Reading (read_path.cc) ----
  struct Place {
    bool staged = false;
    Staging::Buffer staging;        // the head, then from a page boundary on the payload, unless:
    uint64_t landing = kNoLanding;  // offset in its target at which the payload is read (hand_on.h)
    uint64_t head_bytes = 0, stored_bytes = 0;
  };
  struct GetOp {
    std::unique_ptr<GetBatch> batch;
    std::vector<Place> places;
    std::deque<size_t> unasked;  // items not yet requested from the inner tier
    size_t open = 0;
  };
  // A record to be decoded into its target: the item's number, and the record as the inner tier read or lent it.
  using Arrived = std::pair<size_t, GetItem>;
  using GetOps = std::vector<std::shared_ptr<GetOp>>;
  void place(GetOp& op, std::span<const Found> found) KVBM_REQUIRES(mutex_);
  void pump_reads();
  std::unique_ptr<GetBatch> next_ask(GetOps& over, uint64_t& bytes) KVBM_REQUIRES(mutex_);
  void came(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& which, GetBatch& batch);
  Code take(const std::shared_ptr<GetOp>& op, size_t i, GetItem& got, std::vector<Arrived>& arrived);
  void decode(const std::shared_ptr<GetOp>& op, const std::vector<Arrived>& arrived);
  // Measurement of one record that was decoded.
  struct Decoded {
    FamilyId family;
    TierChoice::Level level;
    uint64_t plain_bytes;
    uint64_t ns;
  };
  Code decode_one(GetBatch& batch, size_t i, const GetItem& from, codec::Workspace& workspace, CodecStats& counts,
                  std::vector<Decoded>& decoded_here);
  static std::optional<TierChoice::Level> level_of(codec::Mode mode, const FamilyTerms* terms) noexcept;
  Code allow_plain(const codec::HeadView& head, const Identity& id, uint64_t location) KVBM_EXCLUDES(mutex_);
  Code refuse(const Status& why, uint64_t location, const Identity& id, const codec::Header& header,
              CodecStats& counts);
  GetOps close_unasked() KVBM_REQUIRES(mutex_);
  void expire(uint64_t now);
  bool settle(GetOp& op, size_t i, Code code) KVBM_REQUIRES(mutex_);
  void end(GetOps& over);

  // ---- both ----
  [[nodiscard]] Tier* inner() const noexcept { return inner_.load(std::memory_order_acquire); }
  [[nodiscard]] bool codes() const noexcept { return options_.automatic || options_.mode != codec::Mode::off; }
  [[nodiscard]] std::shared_ptr<const FamilyTerms> terms(FamilyId family) const {
    return options_.terms ? options_.terms(family) : nullptr;
  }
  std::unique_ptr<codec::Workspace> take_workspace();
  void give(std::unique_ptr<codec::Workspace> workspace, const CodecStats& counts);
  void maybe_closed();
  // Ends a batch of which nothing was begun.
  template <class Batch>
  void end_closed(std::unique_ptr<Batch> batch) {
    batch->status.assign(batch->items.size(), Code::closed);
    executor_.post([ended = std::move(batch)] { ended->done(*ended); });
  }
  void say_once(std::string what, const char* text);

  const CodedTierOptions options_;
  std::atomic<Tier*> inner_;
  Executor& executor_;
  Random& random_;
  mutable Mutex mutex_;
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
  UniqueFunction<void()> closed_ KVBM_GUARDED_BY(mutex_);
  uint64_t in_flight_ KVBM_GUARDED_BY(mutex_) = 0;  // batches of either kind
  CodecStats counts_ KVBM_GUARDED_BY(mutex_);
  TierChoice choice_ KVBM_GUARDED_BY(mutex_);
  // Families with records of no fixed plain size, for which the last record read was coded. The next read of such a
  // family expects a coded record.
  std::set<FamilyId> coded_ KVBM_GUARDED_BY(mutex_);
  std::set<std::string> said_ KVBM_GUARDED_BY(mutex_);  // at most kMostSaid
  std::vector<std::unique_ptr<codec::Workspace>> workspaces_ KVBM_GUARDED_BY(mutex_);

  Staging write_staging_ KVBM_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<PutOp>> put_queue_ KVBM_GUARDED_BY(mutex_);  // with pieces that are in no chunk
  std::vector<std::shared_ptr<PutOp>> puts_ KVBM_GUARDED_BY(mutex_);      // all that have not ended
  std::deque<std::shared_ptr<Chunk>> chunks_ KVBM_GUARDED_BY(mutex_);     // in order, not sent
  // One thread sends at a time, so that the order stays. Records forgotten meanwhile are erased from the inner tier
  // after the send.
  std::shared_ptr<Chunk> sending_ KVBM_GUARDED_BY(mutex_);
  std::vector<Identity> forgotten_ KVBM_GUARDED_BY(mutex_);
  uint64_t writing_ KVBM_GUARDED_BY(mutex_) = 0;  // batches with the inner tier
  // Bytes and time of writes by the inner tier; older batches fade.
  struct Written {
    uint64_t last_end_ns = 0;
    double ns = 0, bytes = 0;
    void add(uint64_t asked_ns, uint64_t now_ns, uint64_t stored_bytes) noexcept;
    [[nodiscard]] double ns_per_byte() const noexcept { return bytes > 0 ? ns / bytes : 0; }
  };
  Written written_ KVBM_GUARDED_BY(mutex_);
  // Time that writing waited for encoding while more was waiting to be encoded.
  uint64_t watched_ns_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t busy_ns_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t starved_ns_ KVBM_GUARDED_BY(mutex_) = 0;

  Staging read_staging_ KVBM_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<GetOp>> get_queue_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::tier::coded
