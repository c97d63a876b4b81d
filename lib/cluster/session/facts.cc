#include "cluster/session/facts.h"

#include "cluster/node.h"
#include "layout/shard.h"

namespace kvbm::cluster::session {
namespace {

std::string quoted(std::string_view peer) { return "peer \"" + std::string(peer) + "\""; }

constexpr const char* kModel = "the model";

Status differ(std::string_view peer, const std::string& fact, const std::string& mine, const std::string& theirs) {
  const char* const remedy = fact == kModel ? "open both namespaces with the same tenant, model, adapter and secret"
                                            : "give both sides the model's own geometry";
  return Status(Code::mismatch, "the two sides of a session differ",
                fact + " is " + mine + " here and " + theirs + " at " + quoted(peer) + "; " + remedy);
}

// Limit of the shown name, which may be a path, or anything else.
constexpr size_t kNameShown = 80;

std::string called(const Facts& facts) {
  if (facts.model_name.empty()) return {};
  std::string name = facts.model_name.substr(0, kNameShown);
  for (char& c : name) {
    if (c < ' ' || c > '~' || c == '"') c = '?';
  }
  return " (\"" + name + "\")";
}

}  // namespace

Status check_same(const Facts& mine, const Facts& theirs, std::string_view peer) {
  if (mine.model != theirs.model) {
    return differ(peer, kModel, hex_text(mine.model) + called(mine), hex_text(theirs.model) + called(theirs));
  }
  const auto number = [&](const std::string& fact, uint64_t a, uint64_t b) -> Status {
    if (a == b) return {};
    return differ(peer, fact, std::to_string(a), std::to_string(b));
  };
  if (auto s = number("the number of components", mine.components.size(), theirs.components.size()); !s.ok()) return s;
  for (size_t i = 0; i < mine.components.size(); ++i) {
    const layout::ComponentGeometry& a = mine.components[i];
    const layout::ComponentGeometry& b = theirs.components[i];
    const std::string of = " of component " + std::to_string(i);
    if (a.kind != b.kind) {
      return differ(peer, "the kind" + of, component_kind_name(a.kind), component_kind_name(b.kind));
    }
    if (a.element != b.element) {
      return differ(peer, "the element type" + of, element_name(a.element), element_name(b.element));
    }
    if (auto s = number("the number of layers" + of, a.layers, b.layers); !s.ok()) return s;
    if (auto s = number("the number of planes" + of, a.planes, b.planes); !s.ok()) return s;
    if (auto s = number("the number of KV heads" + of, a.heads, b.heads); !s.ok()) return s;
    if (auto s = number("the head size" + of, a.head_dim, b.head_dim); !s.ok()) return s;
    if (auto s = number("the window" + of, a.window_tokens, b.window_tokens); !s.ok()) return s;
    if (auto s = number("the size of a state" + of, a.state_bytes, b.state_bytes); !s.ok()) return s;
  }
  return {};
}

std::string with_model_name(std::string text, const Facts& mine) {
  const std::string id = hex_text(mine.model);
  const std::string name = called(mine);
  const size_t at = text.find(id);
  if (at != std::string::npos && text.compare(at + id.size(), 2, " (") != 0) text.insert(at + id.size(), name);
  return text;
}

Status check_facts(const Facts& facts) { return layout::Geometry::make(1, facts.components).status(); }

uint64_t facts_hash(const Facts& facts) noexcept {
  uint64_t hash = 0xCBF29CE484222325ULL;
  const auto fold = [&hash](uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<uint8_t>(v >> (8 * i))) * 0x100000001B3ULL;
  };
  for (const uint8_t b : facts.model) fold(b, 1);
  fold(facts.components.size(), 4);
  for (const layout::ComponentGeometry& c : facts.components) {
    fold(static_cast<uint64_t>(c.kind), 1);
    fold(static_cast<uint64_t>(c.element), 1);
    fold(c.planes, 2);
    fold(c.layers, 4);
    fold(c.heads, 4);
    fold(c.head_dim, 4);
    fold(c.window_tokens, 4);
    fold(c.state_bytes, 8);
  }
  return hash;
}

Status check_parts(const Facts& facts, std::span<const Part> parts, std::string_view whose) {
  const auto refuse = [&](size_t i, const std::string& why) {
    return Status(Code::invalid_argument, "a part of a session is refused",
                  std::string(whose) + ", part " + std::to_string(i) + ": " + why);
  };
  if (parts.empty()) return refuse(0, "there is none");
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    if (p.component >= facts.components.size()) {
      return refuse(
          i, "component " + std::to_string(p.component) + ", the model has " + std::to_string(facts.components.size()));
    }
    if (i > 0 && p.component <= parts[i - 1].component) return refuse(i, "components are not ascending");
    const layout::ComponentGeometry& c = facts.components[p.component];
    const Shard& s = p.shard;
    if (s.layers == 0 || uint32_t{s.first_layer} + s.layers > c.layers) {
      return refuse(i, "layers " + std::to_string(s.first_layer) + " + " + std::to_string(s.layers) +
                           ", the component has " + std::to_string(c.layers));
    }
    if (s.heads == 0 || uint32_t{s.first_head} + s.heads > c.heads) {
      return refuse(i, "heads " + std::to_string(s.first_head) + " + " + std::to_string(s.heads) +
                           ", the component has " + std::to_string(c.heads));
    }
    if (p.range.empty() || p.range.end > kMaxPosition) {
      return refuse(i, "positions " + std::to_string(p.range.begin) + " to " + std::to_string(p.range.end));
    }
    if (c.kind == layout::ComponentKind::state && !(p.range == Range{0, c.state_bytes})) {
      return refuse(i, "a state is whole: bytes 0 to " + std::to_string(c.state_bytes));
    }
  }
  return {};
}

}  // namespace kvbm::cluster::session
