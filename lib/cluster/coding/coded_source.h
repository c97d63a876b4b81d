// Record source that codes or seals records for links, around the source that has them.
//
// A record opened for a peer that wants it coded is coded on the core's executor, into memory of a bounded pool, and
// the plain record is released: the push reads the coded one. Without free memory a record is sent plain. If
// everything must be sealed, it waits instead, in the order of the calls, until a push has ended or its deadline. A
// record that the peer could not open is a miss. Thread: the links', except for the coding itself. Invariant: each
// record opened with ok, and each being coded, is closed at the inner source once.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "base/thread/executor.h"
#include "base/thread/weak_executor.h"
#include "cluster/coding/link_coder.h"
#include "cluster/link/record_source.h"
#include "cluster/link/staging_pool.h"

namespace kvbm::cluster {

class CodedSource final : public RecordSource {
 public:
  // `inner` outlives this object, and so do the executors until detach(). `owner` owns the memory of inner's records,
  // which a coding task may read after the links have gone; may be null.
  CodedSource(RecordSource& inner, std::shared_ptr<LinkCoder> coder, Executor& links, Executor& core,
              std::shared_ptr<void> owner);
  ~CodedSource() override;
  CodedSource(const CodedSource&) = delete;
  CodedSource& operator=(const CodedSource&) = delete;

  void find(std::span<const Identity> ids, std::span<wire::FoundItem> out) override { inner_.find(ids, out); }
  bool pin(const Identity& id) override { return inner_.pin(id); }
  void unpin(const Identity& id) override { inner_.unpin(id); }
  [[nodiscard]] Room room() const noexcept override { return inner_.room(); }
  // Opens a record for a peer that does not mention coding: plain, or a miss if everything is sealed.
  void open(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves, uint64_t deadline_ns,
            UniqueFunction<void(const OpenedRecord&)> done) override {
    open_coded(id, location, first_leaf, leaves, {}, deadline_ns, std::move(done));
  }
  void open_coded(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves,
                  const wire::Coding& coding, uint64_t deadline_ns,
                  UniqueFunction<void(const OpenedRecord&)> done) override;
  void close(uint64_t pin) override;
  wire::NodeStatus status() override { return inner_.status(); }
  void invalidate(std::vector<EpochWord> words, uint32_t may_add,
                  UniqueFunction<void(std::vector<EpochWord>)> done) override {
    inner_.invalidate(std::move(words), may_add, std::move(done));
  }
  void epochs(UniqueFunction<void(std::vector<NamespaceEpoch>)> done) override { inner_.epochs(std::move(done)); }

  // Must run before the links' executor is destroyed: nothing is answered any more.
  void detach() { shared_->links.close(); }
  // Memory in use by coded records.
  [[nodiscard]] uint64_t buffered() const { return shared_->buffers.used(); }
  [[nodiscard]] size_t opened() const noexcept { return opened_.size(); }
  [[nodiscard]] size_t waiting() const noexcept { return waiting_.size(); }

 private:
  // State shared with tasks of the core's executor.
  struct Shared {
    Shared(std::shared_ptr<LinkCoder> c, uint64_t bytes, Executor& executor, CodedSource* s)
        : coder(std::move(c)), buffers(bytes), links(executor), source(s) {}
    const std::shared_ptr<LinkCoder> coder;
    StagingPool buffers;
    WeakExecutor links;
    CodedSource* source;  // used on the links' thread only; null once there is no receiver
  };
  struct Job;

  void begin(const std::shared_ptr<Job>& job);
  void give_plain(Job& job);
  void give_code(Job& job, Code code);
  void coded(Job& job);
  void start_waiting();

  RecordSource& inner_;
  Executor& links_;
  Executor& core_;
  const std::shared_ptr<void> owner_;
  const std::shared_ptr<Shared> shared_;
  std::map<uint64_t, MutableBytes> opened_;  // by the pin number that close() gets
  std::deque<std::shared_ptr<Job>> waiting_;
  uint64_t last_opened_ = 0;
};

}  // namespace kvbm::cluster
