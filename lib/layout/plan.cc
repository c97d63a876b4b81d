#include "layout/plan.h"

namespace kvbm::layout {

StridedRun plan_leaf(const Arrangement& arrangement, const LeafExtent& leaf, BlockId block) noexcept {
  const PlaneView& v = arrangement.view(leaf.layer, leaf.plane);
  const auto row = static_cast<int64_t>(arrangement.row_bytes());
  StridedRun run;
  run.data = v.base + int64_t{block} * v.block_stride + int64_t{leaf.first_head} * v.head_stride +
             int64_t{leaf.first_token} * v.token_stride;
  if (leaf.tokens != 1 && v.token_stride != row) {
    run.bytes = static_cast<uint64_t>(row);
    run.count0 = leaf.heads;
    run.stride0 = v.head_stride;
    run.count1 = leaf.tokens;
    run.stride1 = v.token_stride;
    return run;
  }
  const int64_t head = row * leaf.tokens;
  if (leaf.heads == 1 || v.head_stride == head) {
    run.bytes = leaf.bytes;
    return run;
  }
  run.bytes = static_cast<uint64_t>(head);
  run.count0 = leaf.heads;
  run.stride0 = v.head_stride;
  return run;
}

StridedRun plan_page(const PageArrangement& arrangement, const PageLeaf& leaf, BlockId block) noexcept {
  const PageTensor& t = arrangement.tensors()[leaf.tensor];
  StridedRun run;
  run.data = t.base + int64_t{block} * t.block_stride + leaf.page_offset;
  run.bytes = leaf.bytes;
  return run;
}

}  // namespace kvbm::layout
