#include "watch/event.h"

#include <array>
#include <span>

namespace kvbm::watch {

namespace {

using nlohmann::json;

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxHashBytes = 64;

// Fields of an array, in vLLM's order.
constexpr std::array kStoredFields = {"block_hashes",
                                      "parent_block_hash",
                                      "token_ids",
                                      "block_size",
                                      "lora_id",
                                      "medium",
                                      "lora_name",
                                      "extra_keys",
                                      "group_idx",
                                      "kv_cache_spec_kind",
                                      "kv_cache_spec_sliding_window",
                                      "locality",
                                      "ownership",
                                      "session_id"};
constexpr std::array kRemovedFields = {"block_hashes", "medium", "group_idx", "locality", "ownership"};

// A first walk that stores nothing. The parser recurses, so the depth is checked before it runs.
class Limits : public json::json_sax_t {
 public:
  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(size_t) override { return ++depth_ <= kMaxDepth && count(); }
  bool key(string_t&) override { return count(); }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return ++depth_ <= kMaxDepth && count(); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  bool count() { return ++values_ <= kMaxValues; }

  size_t depth_ = 0;
  size_t values_ = 0;
};

Status wrong(const char* what) { return {Code::damaged, what}; }

bool is_text(const json& value) { return value.is_string() && value.get_ref<const std::string&>().size() <= kMaxText; }

// Returns null for an absent field.
const json& field(const json& fields, const char* name) {
  static const json kNone;
  const auto found = fields.find(name);
  return found == fields.end() ? kNone : *found;
}

bool read_hash(const json& value, uint64_t& out) {
  if (value.is_number_unsigned()) {
    out = value.get<uint64_t>();
    return true;
  }
  if (value.is_number_integer()) {
    out = static_cast<uint64_t>(value.get<int64_t>());
    return true;
  }
  if (!value.is_binary()) return false;
  const json::binary_t& bytes = value.get_binary();
  if (bytes.empty() || bytes.size() > kMaxHashBytes) return false;
  out = 0;
  for (size_t i = bytes.size() < 8 ? 0 : bytes.size() - 8; i < bytes.size(); ++i) out = out << 8 | bytes[i];
  return true;
}

bool read_hashes(const json& value, std::vector<uint64_t>& out) {
  if (!value.is_array()) return false;
  out.resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    if (!read_hash(value[i], out[i])) return false;
  }
  return true;
}

bool is_token(const json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
}

// Returns whether these are numbers, or pairs of them if keys are bigrams.
bool are_tokens(const json& value) {
  if (!value.is_array()) return value.is_null();
  for (const json& token : value) {
    const bool pair = token.is_array() && token.size() == 2 && is_token(token[0]) && is_token(token[1]);
    if (!pair && !is_token(token)) return false;
  }
  return true;
}

bool optional_text(const json& fields, const char* name) {
  const json& value = field(fields, name);
  return value.is_null() || is_text(value);
}

bool optional_number(const json& fields, const char* name) {
  const json& value = field(fields, name);
  return value.is_null() || value.is_number_integer();
}

bool check_common(Event& event) {
  const json& fields = event.fields;
  for (const char* name : {"medium", "locality", "ownership"}) {
    if (!optional_text(fields, name)) return false;
  }
  const json& medium = field(fields, "medium");
  event.medium = medium.is_null() ? "GPU" : medium.get<std::string>();
  return optional_number(fields, "group_idx") && read_hashes(field(fields, "block_hashes"), event.hashes);
}

bool check_stored(Event& event) {
  const json& fields = event.fields;
  for (const char* name : {"lora_name", "kv_cache_spec_kind", "session_id", "cache_salt"}) {
    if (!optional_text(fields, name)) return false;
  }
  for (const char* name : {"lora_id", "kv_cache_spec_sliding_window"}) {
    if (!optional_number(fields, name)) return false;
  }
  uint64_t ignored = 0;
  const json& parent = field(fields, "parent_block_hash");
  const json& size = field(fields, "block_size");
  const json& tokens = field(fields, "token_ids");
  const json& extra = field(fields, "extra_keys");
  if (!parent.is_null() && !read_hash(parent, ignored)) return false;
  if (!size.is_null() && !is_token(size)) return false;
  if (!extra.is_null() && !extra.is_array()) return false;
  if (!are_tokens(tokens)) return false;
  event.tokens = tokens.size();
  return true;
}

json named(json& row, std::span<const char* const> names) {
  json fields = json::object();
  for (size_t i = 1; i < row.size() && i <= names.size(); ++i) fields[names[i - 1]] = std::move(row[i]);
  return fields;
}

void add_event(json& row, Batch& batch) {
  const bool array = row.is_array() && !row.empty();
  if (!array && !row.is_object()) {
    ++batch.malformed;
    return;
  }
  const json& tag = array ? row[0] : field(row, "type");
  if (!is_text(tag)) {
    ++batch.malformed;
    return;
  }
  const std::string kind = tag.get<std::string>();
  Event event;
  if (kind == "BlockStored")
    event.kind = Kind::stored;
  else if (kind == "BlockRemoved")
    event.kind = Kind::removed;
  else if (kind != "AllBlocksCleared") {
    ++batch.unknown;
    return;
  }
  const auto names = event.kind == Kind::stored ? std::span<const char* const>(kStoredFields)
                                                : std::span<const char* const>(kRemovedFields);
  if (event.kind != Kind::cleared) {
    event.fields = array ? named(row, names) : std::move(row);
    if (!check_common(event) || (event.kind == Kind::stored && !check_stored(event))) {
      ++batch.malformed;
      return;
    }
  }
  batch.events.push_back(std::move(event));
}

nlohmann::ordered_json plain(const json& value) {
  if (value.is_binary()) {
    static const char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (const uint8_t byte : value.get_binary()) {
      hex += kDigits[byte >> 4];
      hex += kDigits[byte & 15];
    }
    return hex;
  }
  if (value.is_array()) {
    auto out = nlohmann::ordered_json::array();
    for (const json& item : value) out.push_back(plain(item));
    return out;
  }
  if (value.is_object()) {
    auto out = nlohmann::ordered_json::object();
    for (const auto& [name, item] : value.items()) out[name] = plain(item);
    return out;
  }
  return value;
}

}  // namespace

const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::stored:
      return "BlockStored";
    case Kind::removed:
      return "BlockRemoved";
    case Kind::cleared:
      break;
  }
  return "AllBlocksCleared";
}

Result<Batch> decode(std::string_view payload) {
  if (payload.size() > kMaxPayload) return wrong("the message is too large");
  Limits limits;
  if (!json::sax_parse(payload, &limits, json::input_format_t::msgpack)) return wrong("the message is no msgpack");
  json whole = json::from_msgpack(payload, true, false);
  if (!whole.is_array() || whole.size() < 2 || !whole[0].is_number() || !whole[1].is_array()) {
    return wrong("a batch is a time, a list of events and a rank");
  }
  Batch batch;
  batch.ts = whole[0].get<double>();
  if (whole.size() > 2 && !whole[2].is_null()) {
    if (!is_token(whole[2])) return wrong("a batch's rank is no number");
    batch.rank = whole[2].get<int64_t>();
  }
  for (json& row : whole[1]) add_event(row, batch);
  return batch;
}

nlohmann::ordered_json printable(const Event& event, bool with_tokens) {
  nlohmann::ordered_json out = {{"type", kind_name(event.kind)}};
  if (event.kind == Kind::cleared) return out;
  out["medium"] = event.medium;
  out["blocks"] = event.hashes.size();
  if (event.kind == Kind::stored) out["tokens"] = event.tokens;
  for (const auto& [name, value] : event.fields.items()) {
    if (name == "type" || name == "medium" || (name == "token_ids" && !with_tokens) || value.is_null()) continue;
    if (name != "tokens" && name != "blocks") out[name] = plain(value);
  }
  return out;
}

}  // namespace kvbm::watch
