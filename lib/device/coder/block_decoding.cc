#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "codec/coded/leaf_codec.h"
#include "codec/leaf/frame.h"
#include "device/coder/block_encoding.h"
#include "device/transfer/transfers.h"

namespace kvbm::device {

BlockDecoding::BlockDecoding(const Device& device, CoderRoom& room, const codec::StridedBytes& to,
                             codec::Workspace& workspace)
    : device_(device), room_(room), runs_(to.runs()), workspace_(workspace) {
  leaves_.reserve(CoderRoom::kLeaves);
  order_.reserve(CoderRoom::kLeaves);
}

Status BlockDecoding::run(const codec::StreamView& stream) {
  if (Status s = stream.each_leaf([this](const codec::StreamLeaf& leaf) { return take(leaf); }); !s.ok()) return s;
  return flush();
}

CoderWay BlockDecoding::way_of(const codec::StreamLeaf& leaf) const noexcept {
  if (leaf.stored.size() < codec::kFrameBytes) return CoderWay::none;
  if (leaf.codec == codec::LeafCodec::zstd) {
    const auto element = static_cast<codec::Element>(load_le<uint8_t>(leaf.stored.data() + codec::kFrameElementAt));
    const bool planes = codec::element_bytes(element) > 1 && device_.kernels().has(Kernel::merge_planes);
    return planes ? CoderWay::planes : CoderWay::none;
  }
  if (!decodes_on(device_, leaf.codec, leaf.stored)) return CoderWay::none;
  return leaf.codec == codec::LeafCodec::planar ? CoderWay::planar : CoderWay::quantized;
}

// Puts the bytes that cross the bus for a leaf into the landing: its stored form, its planes, or its plain bytes.
Status BlockDecoding::take(const codec::StreamLeaf& leaf) {
  const uint64_t room = round_up(leaf.raw_bytes, codec::kCodedLeafUnit);
  if (held_ + leaf.raw_bytes > room_.window_bytes() || landed_ + room > room_.coded_bytes() ||
      leaves_.size() == CoderRoom::kLeaves) {
    if (Status s = flush(); !s.ok()) return s;
  }
  Leaf mine{leaf, way_of(leaf), codec::Element::bytes, held_, landed_};
  std::byte* const to = room_.landing() + landed_;
  Status done;
  if (mine.way == CoderWay::none || !padding_is_zero(leaf)) {
    mine.way = CoderWay::none;
    done = codec::decode_stream_leaf(leaf, to, workspace_);
  } else if (mine.way == CoderWay::planes) {
    done = codec::decode_planes(leaf.stored, {to, leaf.raw_bytes}, mine.element, workspace_);
  } else {
    std::memcpy(to, leaf.stored.data(), leaf.stored.size());
  }
  if (!done.ok()) return done;
  leaves_.push_back(mine);
  held_ += leaf.raw_bytes;
  landed_ += room;
  return {};
}

// Decodes all taken leaves into the window, and scatters whole runs of it into the cache.
Status BlockDecoding::flush() {
  if (Status s = decode_there(); !s.ok()) return s;
  leaves_.clear();
  landed_ = 0;
  if (Status s = scatter(); !s.ok()) return s;
  // Less than a run is left. If it lies too near the start to be moved without overlap, the window has enough space
  // behind it.
  const uint64_t left = held_ - begin_;
  if (left <= begin_) {
    if (Status s = room_.move_window(begin_, 0, left); !s.ok()) return s;
    begin_ = 0;
    held_ = left;
  }
  return room_.wait();
}

Status BlockDecoding::decode_there() {
  for (const Leaf& leaf : leaves_) {
    const uint64_t up = leaf.way == CoderWay::planes ? leaf.stored.raw_bytes : leaf.stored.stored.size();
    Status s = leaf.way == CoderWay::none ? room_.send_window(leaf.coded_at, leaf.window_at, leaf.stored.raw_bytes)
                                          : room_.send_coded(leaf.coded_at, up);
    if (!s.ok()) return s;
  }
  size_t jobs = 0;
  order_.clear();
  if (Status s = launch(CoderWay::quantized, Kernel::dequantize, jobs); !s.ok()) return s;
  if (Status s = launch(CoderWay::planar, Kernel::decode_planar, jobs); !s.ok()) return s;
  if (Status s = launch(CoderWay::planes, Kernel::merge_planes, jobs); !s.ok()) return s;
  if (Status s = room_.wait(); !s.ok()) return s;
  bool again = false;
  for (size_t job = 0; job < jobs; ++job) {
    if (room_.result(job).status == kCodedOk) continue;
    // The CPU decides: the leaf is wrong, or has a form that kernels do not take.
    const Leaf& leaf = leaves_[order_[job]];
    if (Status s = codec::decode_stream_leaf(leaf.stored, room_.landing() + leaf.coded_at, workspace_); !s.ok())
      return s;
    if (Status s = room_.send_window(leaf.coded_at, leaf.window_at, leaf.stored.raw_bytes); !s.ok()) return s;
    again = true;
  }
  return again ? room_.wait() : Status();
}

Status BlockDecoding::launch(CoderWay way, Kernel kernel, size_t& jobs) {
  const size_t first = jobs;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    if (leaf.way != way) continue;
    const DeviceRun plain = make_run(room_.window() + leaf.window_at, leaf.stored.raw_bytes, 1, 0, 0);
    CodedJob& job = room_.leaf(jobs++);
    job = {make_leaf_job(plain, 1, room_.coded() + leaf.coded_at, true, leaf.stored.hash),
           static_cast<uint32_t>(leaf.stored.stored.size()),
           static_cast<uint32_t>(leaf.element),
           0,
           0,
           0,
           0,
           0};
    order_.push_back(static_cast<uint32_t>(i));
  }
  return room_.launch(kernel, first, jobs - first);
}

Status BlockDecoding::scatter() {
  while (run_ < runs_.size() && begin_ + runs_[run_].total() <= held_) {
    size_t jobs = 0;
    for (; run_ < runs_.size() && jobs < CoderRoom::kRuns; ++run_) {
      const uint64_t bytes = runs_[run_].total();
      if (begin_ + bytes > held_) break;
      room_.set_run(jobs++, runs_[run_], begin_);
      begin_ += bytes;
    }
    if (Status s = room_.scatter(jobs); !s.ok()) return s;
    if (Status s = room_.wait(); !s.ok()) return s;
  }
  return {};
}

}  // namespace kvbm::device
