#include "session/side.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/crypto/random.h"
#include "codec/hash/leaf_hash.h"
#include "layout/engine_forms.h"

namespace kvbm::session {

namespace {

Status failed(const char* what, const kvbm_error_t& error) {
  return {static_cast<Code>(error.status), what, error.message};
}

Result<layout::Element> element_named(const std::string& name) {
  for (int e = KVBM_ELEMENT_BF16; e <= KVBM_ELEMENT_INT8; ++e) {
    if (name == layout::element_name(static_cast<layout::Element>(e))) return static_cast<layout::Element>(e);
  }
  return Status(Code::invalid_argument, "no such element", name + ": bf16, fp16, fp32, fp8_e4m3, fp8_e5m2 or int8");
}

constexpr uint64_t kDigestPiece = 1 << 20;

}  // namespace

Result<uint64_t> bytes_per_token(const SideOptions& options) {
  const auto element = element_named(options.element);
  if (!element.ok()) return element.status();
  return uint64_t{2} * options.layers * options.heads * options.head_size * layout::element_bytes(element.value());
}

Heads heads_of(const SideOptions& options, uint32_t rank, uint32_t ranks) {
  const auto first_of = [&](uint32_t r) { return static_cast<uint32_t>(uint64_t{r} * options.heads / options.tp); };
  const uint32_t last = rank + ranks - 1;
  return {first_of(rank), std::max(first_of(last) + 1, first_of(last + 1))};
}

Result<std::unique_ptr<Side>> Side::open(const SideOptions& options) {
  const auto element = element_named(options.element);
  if (!element.ok()) return element.status();
  // If there are more ranks than heads, they share them; else each has an equal number.
  if (options.tp == 0 || (options.tp < options.heads && options.heads % options.tp != 0) || options.ranks == 0 ||
      options.first_rank + options.ranks > options.tp) {
    return Status(Code::invalid_argument, "the ranks do not fit the heads",
                  std::to_string(options.heads) + " heads in " + std::to_string(options.tp) + " ranks, of which from " +
                      std::to_string(options.first_rank) + " on " + std::to_string(options.ranks) + " are here");
  }
  auto side = std::unique_ptr<Side>(new Side(options));
  side->row_bytes_ = uint64_t{options.head_size} * layout::element_bytes(element.value());
  side->heads_ = heads_of(options, options.first_rank, options.ranks);
  side->layer_bytes_ = 2 * options.tokens * side->row_bytes_ * side->heads_.count();
  node::MemberOptions node = options.node;
  const uint64_t block = 2 * uint64_t{options.layers} * options.block_tokens * options.heads * side->row_bytes_;
  node.block_bytes = std::max<uint64_t>(64 << 10, (block + 4095) / 4096 * 4096);
  node.host_bytes = 4 * node.block_bytes + (1 << 20);  // nothing is stored, but a manager needs a host tier
  auto member = node::Member::open(node);
  if (!member.ok()) return member.status();
  side->member_ = std::move(member).value();
  const kvbm_component_t component{KVBM_COMPONENT_ATTENTION,
                                   static_cast<uint32_t>(element.value()),
                                   options.layers,
                                   options.heads,
                                   options.head_size,
                                   0,
                                   0,
                                   {0, 0}};
  kvbm_error_t error{};
  if (kvbm_geometry_create(options.block_tokens, 1, &component, 1, &side->geometry_, &error) != KVBM_OK) {
    return failed("the geometry is refused", error);
  }
  kvbm_namespace_options_t who;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = options.model.c_str();
  who.geometry = side->geometry_;
  if (kvbm_namespace_open(side->member_->manager(), &who, &side->ns_, &error) != KVBM_OK) {
    return failed("the namespace could not be opened", error);
  }
  for (uint32_t i = 0; i < options.ranks; ++i) {
    if (Status s = side->open_rank(options.first_rank + i); !s.ok()) return s;
  }
  return side;
}

Side::~Side() {
  for (const Rank& rank : ranks_) kvbm_cache_release(rank.cache);
  kvbm_namespace_release(ns_);
  kvbm_geometry_release(geometry_);
}

Status Side::open_rank(uint32_t number) {
  const auto form = layout::form_named(options_.order);
  if (!form.has_value()) {
    return {Code::invalid_argument, "no such order", options_.order + ": nhd, hnd, layers_nhd, cross_hnd and so on"};
  }
  const auto element = element_named(options_.element).value();
  const auto geometry = layout::Geometry::make(
      options_.block_tokens, {layout::attention(options_.layers, options_.heads, options_.head_size, element)});
  if (!geometry.ok()) return geometry.status();
  const Heads heads = heads_of(options_, number, 1);
  const Shard shard{0, static_cast<uint16_t>(options_.layers), static_cast<uint16_t>(heads.first),
                    static_cast<uint16_t>(heads.count()), 0};
  const auto shape = layout::RecordShape::make(geometry.value(), 0, shard, 1);
  if (!shape.ok()) return shape.status();
  Rank& rank = ranks_.emplace_back();
  rank.number = number;
  rank.heads = heads;
  // Blocks of a request lie anywhere, as in an engine that has been running for a while.
  rank.blocks.resize((options_.tokens + options_.block_tokens - 1) / options_.block_tokens);
  std::iota(rank.blocks.begin(), rank.blocks.end(), 0U);
  SeededRandom random(number + 1);
  for (size_t i = rank.blocks.size(); i > 1; --i) std::swap(rank.blocks[i - 1], rank.blocks[random.below(i)]);
  const uint32_t tensors = layout::form_tensors(*form, shape.value());
  const uint64_t each = rank.blocks.size() * shape.value().payload_bytes() / tensors;
  std::vector<layout::Tensor> views;
  for (uint32_t i = 0; i < tensors; ++i) {
    rank.memory.emplace_back(each);
    views.push_back({rank.memory.back().data(), each});
  }
  auto arrangement = layout::arrange(*form, shape.value(), rank.blocks.size(), views);
  if (!arrangement.ok()) return arrangement.status();
  rank.arrangement = std::make_unique<layout::Arrangement>(std::move(arrangement).value());
  const kvbm_shard_t part{0, shard.layers, shard.first_head, shard.heads, 0, {0, 0, 0}};
  return make_cache(rank, static_cast<uint32_t>(*form), part);
}

Status Side::make_cache(Rank& rank, uint32_t form, const kvbm_shard_t& shard) {
  std::vector<kvbm_tensor_t> tensors;
  for (auto& memory : rank.memory) tensors.push_back({memory.data(), memory.size(), 0, 0});
  kvbm_cache_part_t part{};
  part.part.shard = shard;
  part.form = form;
  part.tensors = tensors.data();
  part.n_tensors = tensors.size();
  kvbm_cache_options_t options;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = static_cast<uint32_t>(rank.blocks.size());
  options.parts = &part;
  options.n_parts = 1;
  kvbm_error_t error{};
  if (kvbm_cache_attach(member_->manager(), ns_, &options, &rank.cache, &error) == KVBM_OK) return {};
  return failed("the cache is refused", error);
}

// Calls visit(row in a cache, its place among the layer's canonical bytes), for each rank with that row in turn.
template <class Visit>
void Side::rows_of(uint32_t layer, Visit&& visit) const {
  for (const Rank& rank : ranks_) {
    for (uint32_t plane = 0; plane < 2; ++plane) {
      const layout::PlaneView& view = rank.arrangement->view(layer, plane);
      for (uint32_t head = rank.heads.first; head < rank.heads.end; ++head) {
        uint64_t at = (uint64_t{plane} * heads_.count() + head - heads_.first) * options_.tokens * row_bytes_;
        for (uint64_t position = 0; position < options_.tokens; ++position, at += row_bytes_) {
          const auto block = static_cast<int64_t>(rank.blocks[position / options_.block_tokens]);
          const auto token = static_cast<int64_t>(position % options_.block_tokens);
          visit(rank, head,
                view.base + block * view.block_stride + int64_t{head - rank.heads.first} * view.head_stride +
                    token * view.token_stride,
                at);
        }
      }
    }
  }
}

void Side::write_layer(uint32_t layer, const std::byte* from) {
  rows_of(layer, [&](const Rank&, uint32_t, std::byte* row, uint64_t at) { std::memcpy(row, from + at, row_bytes_); });
}

bool Side::read_layer(uint32_t layer, std::byte* to) const {
  bool equal = true;
  rows_of(layer, [&](const Rank& rank, uint32_t head, const std::byte* row, uint64_t at) {
    const bool again = &rank != ranks_.data() && head < (&rank - 1)->heads.end;  // already read with an earlier rank
    if (again) {
      equal = std::memcmp(to + at, row, row_bytes_) == 0 && equal;
    } else {
      std::memcpy(to + at, row, row_bytes_);
    }
  });
  return equal;
}

void Digest::add(const std::byte* data, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kDigestPiece) {
    hashes_.push_back(codec::leaf_hash({data + at, std::min(kDigestPiece, bytes - at)}));
  }
}

std::string Digest::text() const {
  char out[17];
  const auto* bytes = reinterpret_cast<const std::byte*>(hashes_.data());
  std::snprintf(out, sizeof out, "%016llx",
                static_cast<unsigned long long>(codec::leaf_hash({bytes, hashes_.size() * sizeof(uint64_t)})));
  return out;
}

Result<kvbm_request_id_t> request_named(const std::string& text) {
  kvbm_request_id_t id{};
  const bool hex =
      text.size() == 2 * sizeof id.bytes && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (hex) {
    for (size_t i = 0; i < sizeof id.bytes; ++i) {
      id.bytes[i] = static_cast<uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
    }
    return id;
  }
  if (text.empty() || text.size() > sizeof id.bytes) {
    return Status(Code::invalid_argument, "a request is 32 hexadecimal digits, or up to 16 characters", text);
  }
  std::memcpy(id.bytes, text.data(), text.size());
  return id;
}

}  // namespace kvbm::session
