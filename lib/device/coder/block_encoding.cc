#include "device/coder/block_encoding.h"

#include "codec/coded/leaf_codec.h"
#include "codec/leaf/frame.h"
#include "codec/lossless/zstd_leaf.h"

namespace kvbm::device {

namespace {

// Returns the part of a mode's work that kernels do.
CoderWay way_of(const Device& device, const codec::LeafForm& form, codec::Mode mode) noexcept {
  const size_t width = codec::element_bytes(form.element);
  if (mode >= codec::Mode::fp8_e4m3 && mode <= codec::Mode::int4) {
    return width > 1 && device.kernels().has(Kernel::quantize) ? CoderWay::quantized : CoderWay::none;
  }
  // An element of one byte is its own plane.
  const bool planes = mode == codec::Mode::zstd && width > 1 && codec::has_zstd();
  return planes && device.kernels().has(Kernel::split_planes) ? CoderWay::planes : CoderWay::none;
}

}  // namespace

BlockEncoding::BlockEncoding(const Device& device, CoderRoom& room, const codec::LeafForm& form, codec::Mode mode,
                             const codec::StridedBytes& from, MutableBytes out, codec::Workspace& workspace)
    : room_(room),
      mode_(mode),
      runs_(from.runs()),
      writer_(form, mode, from.bytes(), out),
      workspace_(workspace),
      way_(way_of(device, form, mode)) {
  leaves_.reserve(CoderRoom::kLeaves);
}

Result<uint64_t> BlockEncoding::run() {
  while (writer_.leaf_bytes(0) != 0) {
    if (Status s = fill(); !s.ok()) return s;
    choose();
    if (Status s = code_here(); !s.ok()) return s;
    if (Status s = bring(); !s.ok()) return s;
    for (size_t i = 0; i < leaves_.size(); ++i) {
      if (Status s = write(i); !s.ok()) return s;
      begin_ += leaves_[i].bytes;
    }
  }
  return writer_.finish();
}

// Gathers as many runs as fit into the window. The rest of the turn before is less than a leaf whenever it must be
// moved.
Status BlockEncoding::fill() {
  if (held_ - begin_ >= codec::kMaxLeafBytes) return {};  // a whole leaf: the turn before had more than it could take
  if (run_ < runs_.size() && held_ + runs_[run_].total() > room_.window_bytes()) {
    if (Status s = room_.move_window(begin_, 0, held_ - begin_); !s.ok()) return s;
    held_ -= begin_;
    begin_ = 0;
  }
  size_t jobs = 0;
  for (; run_ < runs_.size() && jobs < CoderRoom::kRuns; ++run_) {
    const uint64_t bytes = runs_[run_].total();
    if (held_ + bytes > room_.window_bytes()) break;
    room_.set_run(jobs++, runs_[run_], held_);
    held_ += bytes;
  }
  return room_.gather(jobs);
}

// Chooses the leaves with all their bytes in the window.
void BlockEncoding::choose() {
  leaves_.clear();
  uint64_t ahead = 0;
  uint64_t coded_at = 0;
  while (leaves_.size() < CoderRoom::kLeaves) {
    const uint32_t bytes = writer_.leaf_bytes(ahead);
    if (bytes == 0 || begin_ + ahead + bytes > held_) break;
    leaves_.push_back({begin_ + ahead, coded_at, bytes});
    ahead += bytes;
    coded_at += round_up(bytes, codec::kCodedLeafUnit);
  }
}

Status BlockEncoding::code_here() {
  if (way_ == CoderWay::none) return {};
  const codec::LeafForm& form = writer_.leaf_form();
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    const DeviceRun plain = make_run(room_.window() + leaf.window_at, leaf.bytes, 1, 0, 0);
    CodedJob& job = room_.leaf(i);
    job = {make_leaf_job(plain, 1, room_.coded() + leaf.coded_at, false, 0),
           static_cast<uint32_t>(round_up(leaf.bytes, codec::kCodedLeafUnit)),
           static_cast<uint32_t>(form.element),
           static_cast<uint32_t>(mode_),
           form.row,
           form.rows,
           0,
           0};
  }
  const Kernel kernel = way_ == CoderWay::quantized ? Kernel::quantize : Kernel::split_planes;
  return room_.launch(kernel, 0, leaves_.size());
}

// Copies to the landing: the kernel's result of each leaf, or the leaf itself.
Status BlockEncoding::bring() {
  // Wait also if no leaf is whole yet, because the jobs are rewritten.
  if (way_ != CoderWay::none || leaves_.empty()) {
    if (Status s = room_.wait(); !s.ok()) return s;
  }
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    const bool made = way_ != CoderWay::none && room_.result(i).status == kCodedOk;
    const uint64_t bytes = made && way_ == CoderWay::quantized ? room_.result(i).stored_bytes : leaf.bytes;
    if (bytes < codec::kFrameBytes ? made && way_ == CoderWay::quantized : bytes > leaf.bytes) {
      return {Code::internal, "a kernel says that it wrote a coded leaf of an impossible size"};
    }
    Status s =
        made ? room_.bring_coded(leaf.coded_at, bytes) : room_.bring_window(leaf.window_at, leaf.coded_at, bytes);
    if (!s.ok()) return s;
  }
  return leaves_.empty() ? Status() : room_.wait();
}

Status BlockEncoding::write(size_t i) {
  const std::byte* const at = room_.landing() + leaves_[i].coded_at;
  if (way_ == CoderWay::none || room_.result(i).status != kCodedOk) {
    return writer_.code({at, leaves_[i].bytes}, workspace_);
  }
  if (way_ == CoderWay::planes) return write_planes(i);
  const CodedResult& made = room_.result(i);
  writer_.put({codec::LeafCodec::quantized, made.stored_bytes, true, made.difference, made.value}, at, made.hash);
  return {};
}

Status BlockEncoding::write_planes(size_t i) {
  const Leaf& leaf = leaves_[i];
  std::byte* const to = workspace_.stage();
  if (to == nullptr) return {Code::no_memory, "no memory for the codec's work space"};
  const uint64_t hash = room_.result(i).hash;
  const auto made = codec::encode_planes(writer_.leaf_form(), {room_.landing() + leaf.coded_at, leaf.bytes}, hash,
                                         {to, codec::encode_room(leaf.bytes)}, workspace_);
  if (!made.ok()) return made.status();
  if (made.value().codec == codec::LeafCodec::raw) return write_plain(i);
  writer_.put(made.value(), to, hash);
  return {};
}

// Writes a leaf that coding did not make smaller; its plain bytes are still in the window.
Status BlockEncoding::write_plain(size_t i) {
  const Leaf& leaf = leaves_[i];
  if (Status s = room_.bring_window(leaf.window_at, leaf.coded_at, leaf.bytes); !s.ok()) return s;
  if (Status s = room_.wait(); !s.ok()) return s;
  return writer_.code({room_.landing() + leaf.coded_at, leaf.bytes}, workspace_);
}

}  // namespace kvbm::device
