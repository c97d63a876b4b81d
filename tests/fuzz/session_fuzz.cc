// A whole session with a peer that sends anything. Each input is a list of messages and completions for a Sender and
// a Receiver with a real offer and a real session open. Nothing outside the given memory may be read or written, and
// nothing may be left after the deadline.
//
// Input: a byte with a lowest bit that puts both sides on a device that shares its memory. Each step has one byte of
// kind, and messages have a u16 length and bytes. The first bytes of a message are set to this session's, so that the
// code behind the addressing is reached.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "cluster/session/receiver.h"
#include "cluster/session/sender.h"
#include "layout/engine_forms.h"
#include "target.h"

namespace session_fuzz {

namespace {

using namespace kvbm;
using namespace kvbm::cluster::session;

class World final : public Link, public Holder {
 public:
  Code send(PeerId, ConstBytes) override { return Code::ok; }
  Code post(PeerId, uint64_t, MutableBytes to, uint64_t token) override {
    posts[token] = to;
    return Code::ok;
  }
  Code push(PeerId, uint64_t, std::span<const ConstBytes> pieces, uint64_t token) override {
    uint64_t sum = 0;
    for (const ConstBytes p : pieces) {
      for (const std::byte b : p) sum += static_cast<uint64_t>(b);
    }
    pushes[token] = sum;
    return Code::ok;
  }
  void cancel(PeerId, uint64_t) override {}
  void drop(PeerId) override {}
  [[nodiscard]] bool takes_grain(PeerId peer) const override { return peer != 0; }
  [[nodiscard]] bool takes_ways(PeerId peer) const override { return peer != 0; }
  [[nodiscard]] bool takes_device_memory() const override { return true; }
  Status add_memory(MutableBytes) override { return {}; }
  Status hold(const RequestId&, std::span<const LocalPart>) override {
    ++held;
    return {};
  }
  void release(const RequestId&) override { --held; }

  std::map<uint64_t, MutableBytes> posts;
  std::map<uint64_t, uint64_t> pushes;
  int held = 0;
};

// A device of this machine. Its copies end when the input says so. Whatever memory a peer describes, one and the same
// memory is mapped.
class Mover final : public SliceMover {
 public:
  void gather(std::unique_ptr<SliceMove> move, Done done) override { begin(std::move(move), std::move(done), false); }
  void scatter(std::unique_ptr<SliceMove> move, Done done) override { begin(std::move(move), std::move(done), true); }
  [[nodiscard]] std::vector<std::byte> place() const override { return {std::byte{1}}; }
  [[nodiscard]] Status near(ConstBytes place) const override {
    return place.size() == 1 ? Status() : Status(Code::unsupported, "another machine");
  }
  void share(uint64_t bytes, MemoryDone done) override { give(bytes, std::move(done)); }
  void map(ConstBytes, uint64_t bytes, MemoryDone done) override { give(bytes, std::move(done)); }
  // Keeps the memory, because sessions hold it: one side writes there, the other reads.
  void direct(uint64_t bytes, bool, MemoryDone done) override {
    SharedMemory out;
    const auto made = std::make_shared<std::vector<std::byte>>(bytes);
    out.data = made->data();
    out.bytes = bytes;
    out.keep = made;
    later([done = std::move(done), out = std::move(out)]() mutable { done(std::move(out)); });
  }
  bool end_one() {
    if (ends.empty()) return false;
    const auto end = std::move(ends.front());
    ends.pop_front();
    (*end)();
    return true;
  }

 private:
  using End = std::unique_ptr<UniqueFunction<void()>>;
  void give(uint64_t bytes, MemoryDone done) {
    if (memory.size() < bytes && bytes <= 1 << 20) memory.resize(bytes);
    SharedMemory out;
    out.said = {std::byte{1}};
    out.data = memory.data();
    out.bytes = bytes;
    Result<SharedMemory> result = out;
    if (memory.size() < bytes) result = Status(Code::invalid_argument, "beyond its allocation");
    later([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  }
  void begin(std::unique_ptr<SliceMove> move, Done done, bool in) {
    later([move = std::move(move), done = std::move(done), in]() mutable {
      bool right = true;
      for (size_t i = 0; i < move->leaves.size(); ++i) {
        const SliceMove::Leaf& leaf = move->leaves[i];
        const auto runs = std::span(move->runs).subspan(leaf.first_run, leaf.runs);
        std::byte* payload = move->payload + leaf.offset;
        if (!in) {
          move->hashes[i] = kvbm::codec::gather_hashed(payload, runs, kvbm::codec::CopyHint::cached);
        } else {
          right = right && kvbm::codec::scatter_hashed(runs, payload, kvbm::codec::CopyHint::cached) == move->hashes[i];
        }
      }
      done(*move, right ? Status() : Status(Code::damaged, "a leaf"));
    });
  }
  void later(UniqueFunction<void()> end) { ends.push_back(std::make_unique<UniqueFunction<void()>>(std::move(end))); }
  std::deque<End> ends;
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 20);  // never moves
};

struct Input {
  const uint8_t* data;
  size_t size;
  uint8_t byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};

void expect(bool ok) {
  if (!ok) __builtin_trap();
}

std::vector<std::byte> message(Input& in, Type first, uint64_t session) {
  const size_t wanted = in.byte() | static_cast<size_t>(in.byte()) << 8;
  std::vector<std::byte> bytes(std::max<size_t>(std::min(wanted, in.size), kHeaderBytes));
  const size_t take = std::min(in.size, bytes.size());
  std::memcpy(bytes.data(), in.data, take);
  in.data += take;
  in.size -= take;
  bytes[0] = static_cast<std::byte>(static_cast<uint8_t>(first) + 2 * (static_cast<uint8_t>(bytes[0]) % 6));
  bytes[1] = std::byte{kWireVersion};
  std::memset(bytes.data() + 2, 0, 6);
  store_le<uint64_t>(bytes.data() + 8, session);
  bytes[17] = bytes[18] = bytes[19] = std::byte{0};
  store_le<uint32_t>(bytes.data() + 20, static_cast<uint32_t>(bytes.size() - kHeaderBytes));
  return bytes;
}

}  // namespace

KVBM_FUZZ_TARGET(session) {
  Facts facts;
  facts.components.push_back(layout::attention(2, 2, 8, layout::Element::bf16));
  const Part part{0, {0, 2, 0, 2, 0}, {0, 20}};
  const auto geometry = layout::Geometry::make(8, facts.components);
  const auto shape = layout::RecordShape::make(geometry.value(), 0, part.shard, 1).value();
  std::vector<std::byte> cache(shape.payload_bytes() * 4);
  const layout::Tensor tensor{cache.data(), cache.size()};
  const auto arrangement = layout::arrange(layout::Form::cross_nhd, shape, 4, std::span(&tensor, 1));
  Input in{data, size};
  std::vector<LocalPart> locals{{part, {&arrangement.value(), {2, 0, 1}, 0}}};
  Mover mover;
  const bool on_device = in.byte() % 2 == 1;
  if (on_device) locals[0].map.mover = &mover;
  std::vector<std::byte> staging(2 * Staging::slot_bytes_for(kMinSliceBytes) + 64);
  const size_t skip = (64 - reinterpret_cast<uintptr_t>(staging.data()) % 64) % 64;
  const MutableBytes first(staging.data() + skip, Staging::slot_bytes_for(kMinSliceBytes));
  const MutableBytes second(first.data() + first.size(), first.size());

  World world;
  Sender::Options sends;
  Receiver::Options receives;
  sends.least_direct_bytes = receives.least_direct_bytes = 0;
  Sender sender(sends, Staging::make(first, kMinSliceBytes).value(), world, world);
  Receiver receiver(receives, Staging::make(second, kMinSliceBytes).value(), world);
  RequestId request;
  expect(sender.offer({request, facts, locals, 1000}, 0).ok());
  OpenRequest open{request, facts, locals, {{1, 0, "peer"}}, 0, 1, 1000, 1 << 20};
  const auto session = receiver.open(std::move(open), 0);
  expect(session.ok());
  Open asked{request, 900, 1, kMinSliceBytes, facts, {part}};
  sender.on_message(1, encode({Type::open, 0, 0, 5, 0}, asked), 1);
  (void)sender.publish(request, 0, 0, 1, {0, 20});

  for (int step = 0; step < 64 && in.size > 0; ++step) {
    switch (in.byte() % 5) {
      case 0:
        sender.on_message(1, message(in, Type::open, 5), 2);
        break;
      case 1:
        receiver.on_message(1, message(in, Type::accept, session.value()));
        break;
      case 2:
        if (!world.posts.empty()) {
          const auto post = *world.posts.begin();
          world.posts.erase(post.first);
          const size_t n = std::min(in.size, post.second.size());
          std::memcpy(post.second.data(), in.data, n);
          receiver.on_received(post.first, Code::ok, in.byte() % 2 == 0 ? post.second.size() : n);
        }
        break;
      case 3:
        (void)mover.end_one();
        break;
      default:
        if (!world.pushes.empty()) {
          const uint64_t token = world.pushes.begin()->first;
          world.pushes.erase(token);
          sender.on_pushed(token, in.byte() % 8 == 0 ? Code::io_error : Code::ok);
        }
    }
  }
  sender.tick(2000);
  receiver.tick(2000);
  for (const auto& [token, sum] : world.pushes) sender.on_pushed(token, Code::ok);
  for (const auto& [token, to] : world.posts) receiver.on_received(token, Code::cancelled, 0);
  while (mover.end_one()) {
  }
  expect(sender.shared_taken() == 0 && sender.direct_taken() == 0 && receiver.direct_taken() == 0);
  expect(world.held == 0 && sender.offers() == 0 && receiver.sessions() == 0);
  expect(sender.staging_taken() == 0 && receiver.staging_taken() == 0);
  // No layer may be reported, because no payload here has a right hash.
  ReceiverEvent event;
  int ends = 0;
  while (receiver.take_event(&event)) ends += event.kind == ReceiverEvent::Kind::finished;
  expect(ends == 1);
  return 0;
}

}  // namespace session_fuzz
