#include "size/model.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "size/fields.h"
#include "size/groups.h"
#include "size/layers.h"
#include "size/reader.h"
#include "size/types.h"

namespace kvbm::size {

namespace {

// Deeper than any config. A deeper text could overflow the parser's stack.
constexpr int kMaxDepth = 32;

// Replaces numbers that Python writes and JSON does not have. They mean no limit, and decide nothing here. Sets
// `depth` to the depth of nesting.
std::string without_infinities(std::string_view text, int* depth) {
  std::string out;
  bool quoted = false;
  int open = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (text[i] == 'I' || text[i] == 'N' || text[i] == '-')) {
      const std::string_view rest = text.substr(i);
      bool found = false;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (rest.substr(0, word.size()) != word) continue;
        out += "null";
        i += word.size() - 1;
        found = true;
        break;
      }
      if (found) continue;
    }
    if (!quoted && (text[i] == '[' || text[i] == '{')) *depth = std::max(*depth, ++open);
    if (!quoted && (text[i] == ']' || text[i] == '}')) --open;
    out += text[i];
  }
  return out;
}

Result<Json> parse_object(std::string_view text) {
  int depth = 0;
  const std::string plain = without_infinities(text, &depth);
  if (depth > kMaxDepth) return Status(Code::invalid_argument, "this JSON is nested deeper than any config.json");
  Json config = Json::parse(plain, nullptr, false);
  if (config.is_discarded()) return Status(Code::invalid_argument, "this is not JSON");
  if (!config.is_object()) return Status(Code::invalid_argument, "this is JSON, but not an object of fields");
  return config;
}

// Returns the part about the text model. `around`: the type of the object that holds it, empty if there is none.
Result<const Json*> text_part(const Json& config, std::string* around) {
  const Json* part = &config;
  for (bool nested = true; nested;) {
    nested = false;
    for (const char* name : {"text_config", "thinker_config", "llm_config", "language_config"}) {
      if (!part->contains(name) || part->at(name).is_null()) continue;
      if (!part->at(name).is_object()) {
        return Status(Code::invalid_argument, "this config.json does not say the KV size",
                      "`" + std::string(name) + "` must be an object, it is " + shown(part->at(name)));
      }
      if (part->contains("model_type") && part->at("model_type").is_string())
        *around = part->at("model_type").get<std::string>();
      part = &part->at(name);
      nested = true;
      break;
    }
  }
  return part;
}

// Adds a * b * c to *sum; false when it does not fit.
bool add_product(uint64_t a, uint64_t b, uint64_t c, uint64_t* sum) {
  uint64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_mul_overflow(product, c, &product) &&
         !__builtin_add_overflow(*sum, product, sum);
}

// Groups equal layers, in the order in which their kinds first appear.
void add_groups(Reader& in, const TypeFacts& type, const std::string& name, const std::vector<Layer>& layers,
                uint64_t loops) {
  std::map<std::tuple<Kind, uint64_t>, size_t> places;
  uint64_t beside = 0;
  for (const Layer& layer : layers) {
    beside += layer.mamba_beside ? loops : 0;
    if (layer.kind == Kind::none) continue;
    const auto [place, fresh] = places.try_emplace({layer.kind, layer.kv_heads}, in.model().groups.size());
    if (fresh) in.model().groups.push_back(group_of(in, type, name, layer));
    in.model().groups[place->second].layers += loops;
  }
  if (beside == 0) return;
  in.model().groups.push_back(mamba_group(in, name));
  in.model().groups.back().layers = beside;
}

void add_notes(Reader& in, const Json& config, const std::string& around, bool type_known) {
  const std::string& name = in.model().model_type;
  if (!type_known) {
    in.note(name.empty()
                ? "no `model_type` is given: counted by the fields alone"
                : "the model type `" + name.substr(0, 60) + "` is not known here: counted by its fields alone");
  }
  if (!around.empty() && !is_wrapper_type(around) && find_type(around) == nullptr) {
    in.note("the model type `" + around.substr(0, 60) + "` around the text model is not known here, and not counted");
  }
  for (const char* part : {"talker_config", "depth_decoder_config", "decoder_config", "audio_decoder_config"}) {
    if (config.contains(part) && config.at(part).is_object())
      in.note("`" + std::string(part) + "` is a model with a cache of its own, which is not counted");
  }
  if (in.maybe({"num_nextn_predict_layers"}) != 0) in.note("layers for multi-token prediction are not counted");
  if (in.has("index_head_dim") || in.has("sparse_attention_config")) {
    in.note("the cache of the sparse-attention indexer is not counted");
  }
}

}  // namespace

Result<Model> parse_model(std::string_view config_json) {
  const Result<Json> config = parse_object(config_json);
  if (!config.ok()) return config.status();
  std::string around;
  const Result<const Json*> part = text_part(config.value(), &around);
  if (!part.ok()) return part.status();
  Model model;
  Reader in(*part.value(), model);
  std::string name = in.text("model_type");
  if (name.empty()) std::swap(name, around);
  if (name.empty() && in.all().contains("ssm_cfg")) name = "mamba";
  // A config may hold the text model's fields under the type of the whole model, and vice versa.
  if (find_type(name) == nullptr && find_type(name + "_text") != nullptr) name += "_text";
  model.model_type = name;
  const TypeFacts* known = find_type(name);
  const TypeFacts& type = known == nullptr ? *find_type("llama") : *known;
  if (const std::string why = refusal_of_type(name); !why.empty()) in.refuse(why);
  if (!in.status().ok()) return in.status();
  const uint64_t layers = layer_count(in, name);
  if (!in.status().ok()) return in.status();
  check_fields(in, known != nullptr, layers);
  if (!in.status().ok()) return in.status();
  const std::vector<Layer> list = layers_of(in, type, name, layers);
  if (!in.status().ok()) return in.status();
  // A model that runs its layers several times has separate KV for each time.
  const uint64_t loops = std::max<uint64_t>(in.maybe({"total_ut_steps"}), 1);
  add_groups(in, type, name, list, loops);
  add_notes(in, config.value(), around, known != nullptr);
  if (!in.status().ok()) return in.status();
  return model;
}

Result<Usage> usage_of(const Model& model, uint64_t tokens, uint64_t batch, uint64_t bits) {
  if (bits == 0 || bits > 64) return Status(Code::invalid_argument, "bits of a KV value must be 1 to 64");
  Usage usage;
  bool fits = true;
  for (const LayerGroup& group : model.groups) {
    // Each layer's share of one token starts on a byte.
    const uint64_t token_bytes = (group.values_per_token * bits + 7) / 8;
    const uint64_t state = group.conv_values * 2 + group.state_values * (group.state_bits / 8);
    const uint64_t kept = group.window == 0 ? tokens : std::min(tokens, group.window);
    fits = fits && add_product(group.layers, token_bytes, 1, &usage.bytes_per_token) &&
           add_product(group.layers, state, 1, &usage.state_bytes_per_sequence) &&
           add_product(group.layers, token_bytes, kept, &usage.bytes_per_sequence);
    if (group.window == 0) fits = fits && add_product(group.layers, token_bytes, 1, &usage.bytes_per_token_past_window);
  }
  fits = fits && add_product(usage.state_bytes_per_sequence, 1, 1, &usage.bytes_per_sequence) &&
         add_product(usage.bytes_per_sequence, batch, 1, &usage.total_bytes);
  if (!fits) return Status(Code::invalid_argument, "the total does not fit 64 bits; ask for fewer tokens or sequences");
  return usage;
}

Result<uint64_t> longest_sequence(const Model& model, uint64_t capacity, uint64_t bits) {
  if (bits == 0 || bits > 64) return Status(Code::invalid_argument, "bits of a KV value must be 1 to 64");
  uint64_t fits = 0;
  uint64_t too_long = uint64_t{1} << 63;
  const Result<Usage> endless = usage_of(model, too_long - 1, 1, bits);
  if (endless.ok() && endless.value().bytes_per_token_past_window == 0 &&
      endless.value().bytes_per_sequence <= capacity) {
    return kAnyLength;
  }
  while (fits + 1 < too_long) {
    const uint64_t middle = fits + (too_long - fits) / 2;
    const Result<Usage> usage = usage_of(model, middle, 1, bits);
    (usage.ok() && usage.value().bytes_per_sequence <= capacity ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace kvbm::size
