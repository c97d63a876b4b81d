#include "cluster/coding/coded_source.h"

#include <utility>

namespace kvbm::cluster {

namespace {
// Flag in the pins of coded records; the inner source counts from one.
constexpr uint64_t kCodedPin = 1ULL << 63;
constexpr size_t kHeadAlign = 64;
}  // namespace

// One open_coded(), from the call to the answer.
struct CodedSource::Job {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<void> owner;
  FamilyId family = 0;
  uint32_t first_leaf = 0;
  uint32_t leaves = 0;
  wire::Coding coding;
  uint64_t deadline_ns = kNever;
  UniqueFunction<void(const OpenedRecord&)> done;
  OpenedRecord record;  // the plain record
  MutableBytes buffer;
  size_t head_room = 0;
  Result<codec::CodedSizes> sizes = Status(Code::internal, "not coded yet");

  ~Job() {
    if (!buffer.empty()) shared->buffers.give_back(buffer);
  }

  // Runs on the core's executor.
  void encode() {
    const auto head = codec::HeadView::parse(record.head);
    sizes = head.ok() ? shared->coder->encode(family, head.value(), record.payload, coding, buffer.first(head_room),
                                              buffer.subspan(head_room))
                      : Result<codec::CodedSizes>(head.status());
  }
};

CodedSource::CodedSource(RecordSource& inner, std::shared_ptr<LinkCoder> coder, Executor& links, Executor& core,
                         std::shared_ptr<void> owner)
    : inner_(inner),
      links_(links),
      core_(core),
      owner_(std::move(owner)),
      shared_(std::make_shared<Shared>(coder, coder->options().buffer_bytes, links, this)) {}

CodedSource::~CodedSource() {
  detach();
  shared_->source = nullptr;
  for (const auto& [pin, buffer] : opened_) shared_->buffers.give_back(buffer);
}

void CodedSource::open_coded(const Identity& id, uint64_t location, uint32_t first_leaf, uint32_t leaves,
                             const wire::Coding& coding, uint64_t deadline_ns,
                             UniqueFunction<void(const OpenedRecord&)> done) {
  const LinkCoder::Plan plan = shared_->coder->plan(coding);
  if (plan == LinkCoder::Plan::refused) return done(OpenedRecord{});
  if (plan == LinkCoder::Plan::plain) {
    shared_->coder->count_plain_given();
    return inner_.open(id, location, first_leaf, leaves, deadline_ns, std::move(done));
  }
  auto job = std::make_shared<Job>();
  job->shared = shared_;
  job->owner = owner_;
  job->family = id.family;
  job->first_leaf = first_leaf;
  job->leaves = leaves;
  job->coding = coding;
  job->deadline_ns = deadline_ns;
  job->done = std::move(done);
  inner_.open(id, location, 0, 0, deadline_ns, [job](const OpenedRecord& record) {
    CodedSource* const source = job->shared->source;
    if (source == nullptr) return;
    job->record = record;
    if (record.code != Code::ok) return job->done(record);
    source->begin(job);
  });
}

void CodedSource::begin(const std::shared_ptr<Job>& job) {
  const auto leaves = static_cast<uint32_t>((job->record.head.size() - codec::kHeaderBytes) / codec::kLeafEntryBytes);
  job->head_room = round_up(codec::coded_head_room(job->record.head.size()), kHeadAlign);
  const size_t room = job->head_room + codec::coded_room(job->record.payload.size(), leaves);
  if (!shared_->buffers.fits(room)) {
    if (shared_->coder->seals()) return give_code(*job, Code::no_room);
    shared_->coder->count_declined();
    return give_plain(*job);
  }
  job->buffer = shared_->buffers.take(room);
  if (job->buffer.empty()) {
    if (shared_->coder->seals()) return waiting_.push_back(job);
    shared_->coder->count_declined();
    return give_plain(*job);
  }
  core_.post([job] {
    job->encode();
    job->shared->links.post([job] {
      if (job->shared->source != nullptr) job->shared->source->coded(*job);
    });
  });
}

void CodedSource::give_code(Job& job, Code code) {
  inner_.close(job.record.pin);
  OpenedRecord answer;
  answer.code = code;
  job.done(answer);
}

void CodedSource::give_plain(Job& job) {
  const auto head = codec::HeadView::parse(job.record.head);
  if (!head.ok()) return give_code(job, head.status().code());
  const auto range = leaves_range(head.value(), job.first_leaf, job.leaves);
  if (!range.ok()) return give_code(job, range.status().code());
  shared_->coder->count_plain_given();
  OpenedRecord answer = job.record;
  answer.payload = answer.payload.subspan(range.value().offset, range.value().bytes);
  job.done(answer);
}

// Runs on the links' thread again. Releases the plain record, unless that is what is sent.
void CodedSource::coded(Job& job) {
  if (!job.sizes.ok()) {
    shared_->buffers.give_back(std::exchange(job.buffer, {}));
    const bool useless = job.sizes.status().code() == Code::again && !shared_->coder->seals();
    if (useless) {
      give_plain(job);
    } else {
      give_code(job, job.sizes.status().code());
    }
    return start_waiting();
  }
  const codec::CodedSizes& sizes = job.sizes.value();
  OpenedRecord answer;
  answer.head = job.buffer.first(sizes.head_bytes);
  const auto head = codec::HeadView::parse(answer.head);
  const auto range =
      head.ok() ? leaves_range(head.value(), job.first_leaf, job.leaves) : Result<PayloadRange>(head.status());
  if (!range.ok()) {
    shared_->buffers.give_back(std::exchange(job.buffer, {}));
    give_code(job, range.status().code());
    return start_waiting();
  }
  inner_.close(job.record.pin);
  answer.code = Code::ok;
  answer.payload = ConstBytes(job.buffer).subspan(job.head_room + range.value().offset, range.value().bytes);
  answer.pin = kCodedPin | ++last_opened_;
  opened_.emplace(answer.pin, std::exchange(job.buffer, {}));
  job.done(answer);
}

void CodedSource::close(uint64_t pin) {
  if ((pin & kCodedPin) == 0) return inner_.close(pin);
  const auto known = opened_.find(pin);
  if (known == opened_.end()) return;
  shared_->buffers.give_back(known->second);
  opened_.erase(known);
  start_waiting();
}

// Runs when memory was released. Fails jobs past their deadline; jobs that still find no memory wait on.
void CodedSource::start_waiting() {
  std::deque<std::shared_ptr<Job>> waiting;
  waiting.swap(waiting_);
  while (!waiting.empty()) {
    const std::shared_ptr<Job> job = std::move(waiting.front());
    waiting.pop_front();
    if (links_.clock().now_ns() >= job->deadline_ns) {
      give_code(*job, Code::deadline);
      continue;
    }
    begin(job);
    if (!waiting_.empty()) break;
  }
  for (auto& job : waiting) waiting_.push_back(std::move(job));
}

}  // namespace kvbm::cluster
