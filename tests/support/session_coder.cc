#include "support/session_coder.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace kvbm::test {

using cluster::session::decode_slice;
using cluster::session::encode_slice;
using cluster::session::SliceInSlot;

namespace {

constexpr uint8_t kOpensSealed = 1;

struct Scratch {
  explicit Scratch(const SliceInSlot& slice)
      : memory(cluster::session::slice_scratch_bytes(slice.head.leaves, slice.head.payload_bytes) + 64) {}
  MutableBytes bytes() {
    const size_t skip = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    return {memory.data() + skip, memory.size() - 64};
  }
  std::vector<std::byte> memory;
};

}  // namespace

SimCoder::Asked SimCoder::ask(cluster::session::PeerId, uint64_t bytes, bool again) {
  Asked out;
  out.bytes = bytes;
  out.asked_ns = sim_.clock().now_ns();
  out.of = this;
  ++asked_;
  const bool coded = static_cast<double>(sim_.random().below(1'000'000)) < asks_coded * 1e6;
  if (coded && (!again || keys != nullptr)) out.coding.mode = static_cast<uint8_t>(1 + sim_.random().below(4));
  if (keys != nullptr) out.coding.flags = kOpensSealed;
  if (out.coding.any()) out.coding.codecs = 7;
  return out;
}

bool SimCoder::take_plain(cluster::session::PeerId) { return keys == nullptr; }

void SimCoder::ended(const Asked& asked, Came how) {
  if (asked.of == nullptr) return;
  EXPECT_GT(asked_, 0U) << "a slice ended twice";
  --asked_;
  EXPECT_TRUE(asked.coding.any() || how != Came::coded) << "coded, and nobody asked for that";
  EXPECT_TRUE(keys == nullptr || how != Came::plain) << "a plain slice where all are sealed";
}

SimCoder::Plan SimCoder::plan(const cluster::wire::Coding& coding) const {
  if (keys != nullptr) return (coding.flags & kOpensSealed) != 0 ? Plan::coded : Plan::refused;
  return coding.mode != 0 ? Plan::coded : Plan::plain;
}

void SimCoder::encode(const SliceInSlot& slice, const cluster::wire::Coding& coding, Done done) {
  codec::Recipe recipe;
  if (coding.mode != 0) recipe.rules.push_back({0, UINT32_MAX, 3, static_cast<codec::Mode>(coding.mode)});
  Scratch scratch(slice);
  const auto made = encode_slice(slice, scratch.bytes(),
                                 [&](const codec::HeadView& head, ConstBytes payload, const codec::RecordForm& form,
                                     MutableBytes out_head, MutableBytes out_payload) {
                                   return codec::encode_record(head, payload, form, recipe, keys.get(), sim_.random(),
                                                               out_head, out_payload, workspace_);
                                 });
  if (made.ok()) ++coded_;
  EXPECT_TRUE(made.ok() || made.status().code() == Code::again) << made.status().message();
  tell(sim_.clock().now_ns() + 1000 + sim_.random().below(delay_ns), made.ok() ? Status() : made.status(),
       made.ok() ? made.value() : 0, std::make_shared<Done>(std::move(done)));
}

void SimCoder::decode(cluster::session::PeerId, const SliceInSlot& slice, uint64_t bytes, Done done) {
  Scratch scratch(slice);
  const codec::DecodeRules rules{keys.get(), false};
  const Status status =
      decode_slice(slice, bytes, scratch.bytes(),
                   [&](const codec::HeadView& coded, ConstBytes stored, MutableBytes head, MutableBytes payload) {
                     return codec::decode_record(coded, stored, rules, 0, 0, head, payload, workspace_);
                   });
  ++(status.ok() ? decoded_ : refused_);
  tell(sim_.clock().now_ns() + 1000 + sim_.random().below(delay_ns), status, bytes,
       std::make_shared<Done>(std::move(done)));
}

void SimCoder::tell(uint64_t at_ns, const Status& status, uint64_t bytes, std::shared_ptr<Done> done) {
  ++under_way_;
  sim_.post_at(at_ns, [this, status, bytes, done, gone = gone_] {
    if (*gone) return;
    --under_way_;
    if (stopped && stopped()) return tell(sim_.clock().now_ns() + 5'000'000, status, bytes, done);
    sim_.note(code_name(status.code()), bytes);
    (*done)(status, bytes);
  });
}

}  // namespace kvbm::test
