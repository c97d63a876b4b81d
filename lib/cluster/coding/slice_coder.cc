#include "cluster/coding/slice_coder.h"

#include <utility>

#include "base/memory/aligned_bytes.h"
#include "base/thread/spares.h"
#include "base/thread/weak_executor.h"

namespace kvbm::cluster {

using session::SliceInSlot;

namespace {

constexpr size_t kScratchAlign = 64;
// Limit of buffers kept for later slices; one for each coding thread is enough.
constexpr size_t kMostIdle = 16;

Status why(Code code) {
  switch (code) {
    case Code::ok:
      return {};
    case Code::not_permitted:
      return {code, "a slice is not sealed, where all must be"};
    case Code::mismatch:
      return {code, "a slice is sealed with a key that is not here"};
    default:
      return {code, "a coded slice cannot be used"};
  }
}

}  // namespace

// State shared with tasks.
struct LinkSliceCoder::Shared {
  // Work memory of a task.
  struct Scratch {
    AlignedBytes memory;
    size_t bytes = 0;
    [[nodiscard]] MutableBytes all() const noexcept { return {memory.get(), bytes}; }
  };
  Shared(std::shared_ptr<LinkCoder> c, Executor& executor) : coder(std::move(c)), links(executor) {}
  // Empty if memory was refused.
  Scratch scratch_for(const SliceInSlot& slice) {
    Scratch out = idle.take();
    const size_t bytes =
        round_up(session::slice_scratch_bytes(slice.head.leaves, slice.head.payload_bytes), kScratchAlign);
    if (out.bytes >= bytes) return out;
    out = {};
    out.memory = aligned_bytes(kScratchAlign, bytes);
    out.bytes = out.memory != nullptr ? bytes : 0;
    return out;
  }

  const std::shared_ptr<LinkCoder> coder;
  WeakExecutor links;
  std::vector<std::shared_ptr<Arena>> kept;  // used on the links' thread only
  Spares<Scratch> idle{kMostIdle};
};

LinkSliceCoder::LinkSliceCoder(Options options, Executor& links)
    : options_(std::move(options)), shared_(std::make_shared<Shared>(options_.coder, links)) {}

LinkSliceCoder::~LinkSliceCoder() { detach(); }

void LinkSliceCoder::keep(std::shared_ptr<Arena> staging) { shared_->kept.push_back(std::move(staging)); }

void LinkSliceCoder::detach() { shared_->links.close(); }

void LinkSliceCoder::post(UniqueFunction<std::pair<Status, uint64_t>(Shared&)> work, Done done) {
  options_.core->post([shared = shared_, work = std::move(work), done = std::move(done)]() mutable {
    auto [status, bytes] = work(*shared);
    shared->links.post(
        [done = std::move(done), status = std::move(status), bytes = bytes]() mutable { done(status, bytes); });
  });
}

LinkSliceCoder::Asked LinkSliceCoder::ask(session::PeerId peer, uint64_t bytes, bool again) {
  const NodeId node = node_of(peer);
  LinkCoder& coder = *options_.coder;
  const bool near = coder.options().automatic && options_.in_place && options_.in_place(node);
  const LinkCoder::Asked how =
      again || near ? coder.ask_as_it_is() : coder.ask(node, bytes, false, LinkCoder::Use::slices);
  Asked out;
  out.bytes = bytes;
  out.coding = how.coding;
  out.asked_ns = how.ticket.asked_ns;
  out.of = how.choice;
  return out;
}

bool LinkSliceCoder::take_plain(session::PeerId peer) { return options_.coder->take(node_of(peer), false, false); }

void LinkSliceCoder::ended(const Asked& asked, Came how) {
  if (asked.of == nullptr) return;
  LinkCoder::Asked was;
  was.coding = asked.coding;
  const copy::Way way = asked.coding.mode != 0 ? copy::Way::coded : copy::Way::plain;
  was.ticket = {asked.asked_ns, asked.bytes, way};
  was.choice = static_cast<copy::CodecChoice*>(asked.of);
  options_.coder->answered(was, how == Came::coded, how == Came::no ? 0 : asked.bytes);
}

void LinkSliceCoder::decode(session::PeerId peer, const SliceInSlot& slice, uint64_t bytes, Done done) {
  post(
      [slice, bytes, node = node_of(peer)](Shared& shared) -> std::pair<Status, uint64_t> {
        auto scratch = shared.scratch_for(slice);
        if (scratch.bytes == 0) return {Status(Code::no_memory, "no memory to decode a slice in"), 0};
        Status status = session::decode_slice(
            slice, bytes, scratch.all(),
            [&](const codec::HeadView& coded, ConstBytes stored, MutableBytes head, MutableBytes payload) {
              return why(shared.coder->decode_record(node, false, coded, stored, head, payload));
            });
        shared.idle.give_back(std::move(scratch));
        return {std::move(status), bytes};
      },
      std::move(done));
}

LinkSliceCoder::Plan LinkSliceCoder::plan(const wire::Coding& coding) const {
  switch (options_.coder->plan(coding)) {
    case LinkCoder::Plan::plain:
      return Plan::plain;
    case LinkCoder::Plan::coded:
      return Plan::coded;
    case LinkCoder::Plan::refused:
      break;
  }
  return Plan::refused;
}

void LinkSliceCoder::encode(const SliceInSlot& slice, const wire::Coding& coding, Done done) {
  post(
      [slice, recipe = options_.coder->lossless(coding)](Shared& shared) -> std::pair<Status, uint64_t> {
        auto scratch = shared.scratch_for(slice);
        if (scratch.bytes == 0) {
          if (!shared.coder->seals()) shared.coder->count_declined();
          return {Status(shared.coder->seals() ? Code::no_memory : Code::again, "no memory to code a slice in"), 0};
        }
        auto coded = session::encode_slice(
            slice, scratch.all(),
            [&](const codec::HeadView& head, ConstBytes payload, const codec::RecordForm& form, MutableBytes out_head,
                MutableBytes out_payload) {
              return shared.coder->encode_record(head, payload, form, recipe, out_head, out_payload);
            });
        shared.idle.give_back(std::move(scratch));
        if (!coded.ok()) return {coded.status(), 0};
        return {Status(), coded.value()};
      },
      std::move(done));
}

}  // namespace kvbm::cluster
