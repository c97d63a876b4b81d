#include "operation.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace kvbm_redis {
namespace {

constexpr const char* kPartsMark = "kvbm-parts-1";
// Seconds after which parts without a list expire, because the process that wrote them died.
constexpr uint64_t kOrphanSeconds = 3600;
constexpr uint64_t kMostSeconds = 1'000'000'000;
constexpr uint64_t kInline = 4096;  // less data is copied behind its request
constexpr uint64_t kMostOffset = 1ULL << 60;
constexpr unsigned kMostRounds = 16;  // rounds of reading an object that other clients write meanwhile

bool read_number(const Reply& reply, uint64_t* out) {
  const char* end = reply.text.data() + reply.text.size();
  const auto read = std::from_chars(reply.text.data(), end, *out);
  return reply.is(Reply::Type::value) && !reply.text.empty() && read.ec == std::errc() && read.ptr == end;
}

std::string field(const std::string& info, const std::string& name) {
  const size_t at = info.find(name + ":");
  if (at == std::string::npos) return {};
  const size_t begin = at + name.size() + 1;
  return info.substr(begin, std::min(info.find_first_of("\r\n", begin), info.size()) - begin);
}

}  // namespace

Operation::Operation(Services* services, kvbm_store_op_t* operation, Own own, std::string name)
    : op(operation), services_(services), own_(own), name_(std::move(name)) {}

Command& Operation::ask(const std::string& key, std::initializer_list<std::string_view> words) {
  auto command = std::make_unique<Command>();
  command->op = this;
  command->key = key;
  if (words.size() > 0) append_request(&command->head, words);
  Command& out = *command;
  commands.push_back(&out);
  ++outstanding_;
  services_->send(std::move(command));
  return out;
}

void Operation::ask_unlink(const std::string& key) { ask(key, {services_->lacks_unlink ? "DEL" : "UNLINK", key}); }

void Operation::unlink_parts(const Parts& parts) {
  for (uint64_t i = 0; i < parts.count(); ++i) ask_unlink(part_key(parts, i));
}

Command& Operation::put(const std::string& key, const char* data, uint64_t bytes, uint64_t expire_s) {
  Command& command = ask(key, {});
  if (expire_s > 0) {
    append_request_head(&command.head,
                        {"SETEX", key, std::to_string(std::min(expire_s, kMostSeconds + kOrphanSeconds))}, bytes);
  } else {
    append_request_head(&command.head, {"SET", key}, bytes);
  }
  if (bytes <= kInline) {
    command.head.append(bytes == 0 ? "" : data, bytes).append("\r\n");
  } else {
    command.data = data;
    command.bytes = bytes;
  }
  return command;
}

void Operation::begin() {
  if (own_ != Own::none) {
    return go(own_ == Own::prune                              ? Step::prune_name
              : own_ == Own::slots                            ? Step::slots
              : services_->settings().cluster == Cluster::off ? Step::probe_write
                                                              : Step::probe_slots);
  }
  const bool is_list = op->kind == KVBM_STORE_LIST;
  name_ = op->name == nullptr ? "" : std::string(op->name, ::strnlen(op->name, KVBM_STORE_NAME_BYTES + 1));
  if (!(is_list ? is_prefix(name_) : is_name(name_)) || (op->bytes > 0 && op->data == nullptr)) {
    return end(KVBM_ERR_CONFIG, "the name or the operation is not one");
  }
  const uint64_t part = services_->settings().part_bytes;
  switch (op->kind) {
    case KVBM_STORE_PUT:
      if (op->bytes > part * kMaxParts) return end(KVBM_ERR_CONFIG, "the object is too large: raise part");
      parts_.part_bytes = part;
      return go(op->bytes > part ? Step::put_parts : Step::put);
    case KVBM_STORE_GET:
      return go(op->bytes == 0 || op->offset >= kMostOffset ? Step::get_check : Step::get);
    case KVBM_STORE_REMOVE:
      return go((op->flags & KVBM_STORE_LISTED) != 0 ? Step::remove_name : Step::remove_look);
    case KVBM_STORE_LIST:
      list_after_ = op->after == nullptr ? "" : std::string(op->after, ::strnlen(op->after, KVBM_STORE_NAME_BYTES + 1));
      return go(Step::list);
    default:
      return end(KVBM_ERR_CONFIG, "the name or the operation is not one");
  }
}

void Operation::go(Step step) {
  step_ = step;
  error_.clear();
  failure_ = {};
  start_step();
}

void Operation::start_step() {
  const std::string key = object_key();
  switch (step_) {
    case Step::put:
      return put_value();
    case Step::put_parts:
      return put_parts();
    case Step::put_head:
      return put_head();
    case Step::put_drop:
      return unlink_parts(old_);
    case Step::put_keep:  // the list names them now
      for (uint64_t i = 0; i < parts_.count(); ++i) ask(part_key(parts_, i), {"PERSIST", part_key(parts_, i)});
      return;
    case Step::put_name:
    case Step::prune_again:
      ask(index_key(), {"ZADD", index_key(), "0", name_});
      return;
    case Step::get:
      return begin_get();
    case Step::get_check:
      return check_get();
    case Step::get_head:
    case Step::remove_look:
      ask(key, {"LRANGE", key, "0", "9"});
      return;
    case Step::get_parts:
      return get_parts();
    case Step::remove_name:
    case Step::prune_name:
      ask(index_key(), {"ZREM", index_key(), name_});
      return;
    case Step::remove_object:
      return remove_object();
    case Step::remove_parts:
      return unlink_parts(parts_);
    case Step::list:
      return begin_list();
    case Step::prune_check:
      ask(key, {"EXISTS", key});
      return;
    case Step::slots:
    case Step::probe_slots:
      ask("", {"CLUSTER", "SLOTS"}).limit = 4 << 20;
      return;
    case Step::probe_write:
      ask(key + "#open", {"SET", key + "#open", "kvbm", "EX", "1"});
      return;
    case Step::probe_read:
      ask(key + "#open", {"GETRANGE", key + "#open", "0", "3"});
      return;
    case Step::probe_remove:
      return ask_unlink(key + "#open");
    case Step::probe_index:
      ask(index_key(), {"ZREM", index_key(), "."});
      return;
    case Step::probe_policy:
      ask("", {"INFO", "memory"});
      return;
  }
}

// Begins a transaction with a read of the key's old list, so that exactly the parts of the replaced object are
// removed.
std::string Operation::begin_with_look(const std::string& key) {
  std::string requests;
  append_request(&requests, {"MULTI"});
  append_request(&requests, {"LRANGE", key, "0", "9"});
  return requests;
}

void Operation::put_value() {
  const std::string key = object_key();
  Command& command = put(key, static_cast<const char*>(op->data), op->bytes, op->expire_s);
  command.head.insert(0, begin_with_look(key));
  append_request(command.data != nullptr ? &command.tail : &command.head, {"EXEC"});
  command.skipped = 3;
}

void Operation::put_parts() {
  parts_.token = services_->new_token();
  parts_.total = op->bytes;
  for (uint64_t i = 0; i < parts_.count(); ++i) {
    const uint64_t at = i * parts_.part_bytes;
    put(part_key(parts_, i), static_cast<const char*>(op->data) + at, std::min(parts_.part_bytes, op->bytes - at),
        std::min(op->expire_s, kMostSeconds) + kOrphanSeconds);
  }
}

void Operation::put_head() {
  const std::string key = object_key();
  Command& command = ask(key, {});
  command.head = begin_with_look(key);
  append_request(&command.head, {"DEL", key});
  append_request(&command.head, {"RPUSH", key, kPartsMark, parts_.token, std::to_string(op->bytes),
                                 std::to_string(parts_.part_bytes)});
  command.skipped = 4;
  if (op->expire_s > 0) {
    append_request(&command.head, {"EXPIRE", key, std::to_string(std::min(op->expire_s, kMostSeconds))});
    ++command.skipped;
  }
  append_request(&command.head, {"EXEC"});
}

void Operation::remove_object() {
  const std::string key = object_key();
  Command& command = ask(key, {});
  command.head = begin_with_look(key);
  append_request(&command.head, {services_->lacks_unlink ? "DEL" : "UNLINK", key});
  append_request(&command.head, {"EXEC"});
  command.skipped = 3;
}

void Operation::check_get() {
  const std::string key = object_key();
  Command& command = ask(key, {"MULTI"});
  append_request(&command.head, {"EXISTS", key});
  append_request(&command.head, {"STRLEN", key});
  append_request(&command.head, {"EXEC"});
  command.skipped = 3;
}

void Operation::begin_get() {
  const std::string key = object_key();
  Command& command = ask(key, {"GETRANGE", key, std::to_string(op->offset),
                               std::to_string(op->offset + std::min(op->bytes, kMostOffset) - 1)});
  command.into = static_cast<char*>(op->data);
  command.room = op->bytes;
}

void Operation::get_parts() {
  get_bytes_ = op->offset >= parts_.total ? 0 : std::min(op->bytes, parts_.total - op->offset);
  is_short_ = false;
  if (get_bytes_ == 0) return end();
  for (uint64_t done = 0; done < get_bytes_;) {
    const uint64_t at = op->offset + done;
    const uint64_t begin = at % parts_.part_bytes;
    const uint64_t bytes = std::min(parts_.part_bytes - begin, get_bytes_ - done);
    const std::string key = part_key(parts_, at / parts_.part_bytes);
    Command& command = ask(key, {"GETRANGE", key, std::to_string(begin), std::to_string(begin + bytes - 1)});
    command.into = static_cast<char*>(op->data) + done;
    command.room = bytes;
    done += bytes;
  }
}

// Requests one name more than it returns, to know whether names are left.
void Operation::begin_list() {
  list_count_ = std::clamp<uint64_t>(op->bytes / 48, 16, 1000);
  const std::string first = list_after_ >= name_ && !list_after_.empty() ? "(" + list_after_ : "[" + name_;
  std::string last = "+";
  if (!name_.empty()) {
    last = "(" + name_;
    ++last.back();  // names are ASCII
  }
  ask(index_key(), {"ZRANGEBYLEX", index_key(), first, last, "LIMIT", "0", std::to_string(list_count_ + 1)}).limit =
      512 << 10;
}

void Operation::take_list(const Reply& reply) {
  if (!reply.is(Reply::Type::array) || reply.items.size() > list_count_ + 1) {
    return end(KVBM_ERR_IO, "a listing cannot be read");
  }
  for (size_t i = 0; i < reply.items.size(); ++i) {
    const std::string& name = reply.items[i].text;
    if ((!list_after_.empty() && name <= list_after_) || !name.starts_with(name_))
      return end(KVBM_ERR_IO, "a listing is not in its order");
    const bool is_full = is_name(name) && op->done + name.size() + 1 > op->bytes;
    if (is_full && op->done == 0) return end(KVBM_ERR_CONFIG, "a listing is given no room for a name");
    if (i == list_count_ || is_full) {
      op->more = 1;
      break;
    }
    list_after_ = name;
    if (!is_name(name)) continue;  // written by another program
    std::memcpy(static_cast<char*>(op->data) + op->done, name.c_str(), name.size() + 1);
    op->done += name.size() + 1;
  }
  // The next request begins behind the names that were skipped.
  if (op->more == 0 || op->done > 0) return end();
  op->more = 0;
  go(Step::list);
}

bool Operation::read_head(const Reply& reply, Parts* out) {
  const auto& items = reply.items;
  if (items.size() != 4 || items[0].text != kPartsMark || !read_number(items[2], &out->total) ||
      !read_number(items[3], &out->part_bytes)) {
    return false;
  }
  out->token = items[1].text;
  return out->token.size() == 32 && out->token.find_first_not_of("0123456789abcdef") == std::string::npos &&
         out->part_bytes > 0 && out->part_bytes <= kMostOffset / kMaxParts && out->total > 0 &&
         out->total <= out->part_bytes * kMaxParts;
}

// Reads again an object that other clients write meanwhile.
bool Operation::read_again() {
  if (++rounds_ < kMostRounds) {
    go(Step::get);
  } else {
    end(KVBM_ERR_AGAIN, "the object changes all the time");
  }
  return true;
}

void Operation::replied(const Command& command, Reply& reply, const Connection& connection) {
  --outstanding_;
  from_ = &connection;
  was_retried_ = command.attempts > 0;
  if (reply.is(Reply::Type::error)) {
    if (error_.empty()) error_ = std::move(reply.text);
  } else if (step_ == Step::get_parts) {
    is_short_ |= !reply.is(Reply::Type::value) || static_cast<uint64_t>(reply.number) != command.room;
  } else {
    reply_ = std::move(reply);
    const bool looks = step_ == Step::put || step_ == Step::put_head || step_ == Step::remove_object;
    if (looks && (reply_.items.empty() || !read_head(reply_.items[0], &old_))) old_ = Parts();
    for (size_t i = 0; i < reply_.items.size(); ++i) {  // errors within a transaction
      const Reply& item = reply_.items[i];
      if (looks && i == 0 && item.text.starts_with("WRONGTYPE")) continue;  // the key had a value, not a list
      if (item.is(Reply::Type::error) && error_.empty()) error_ = item.text;
    }
  }
  if (outstanding_ == 0) next();
}

void Operation::failed(const Verdict& verdict) {
  --outstanding_;
  if (failure_.status == KVBM_OK) failure_ = verdict;
  if (outstanding_ == 0) next();
}

// Handles errors that do not end the operation. Returns true if the next step has begun.
bool Operation::handles_error() {
  const bool is_other_type = error_.starts_with("WRONGTYPE");
  if ((step_ == Step::get || step_ == Step::get_check) && is_other_type) return go(Step::get_head), true;
  if (step_ == Step::get_head && is_other_type) return read_again();
  if (step_ == Step::put_drop) return error_.clear(), next(), true;  // the old parts do not belong to the put
  if (step_ == Step::remove_look && is_other_type) return go(Step::remove_object), true;  // the object is one value
  const bool unlinks = step_ == Step::remove_object || step_ == Step::remove_parts || step_ == Step::probe_remove;
  if (unlinks && error_.starts_with("ERR unknown command") && !services_->lacks_unlink) {
    services_->lacks_unlink = true;
    return go(step_), true;
  }
  if (step_ == Step::probe_slots && services_->settings().cluster == Cluster::automatic &&
      !error_.starts_with("NOAUTH")) {
    return go(Step::probe_write), true;  // no cluster, or no permission to ask: a cluster redirects requests for a key
  }
  if (step_ == Step::probe_write && error_.starts_with("OOM")) return go(Step::probe_index), true;
  if (step_ == Step::probe_policy) return end(), true;
  return false;
}

void Operation::next_of_get() {
  if (step_ == Step::get) {
    if (!reply_.is(Reply::Type::value)) return end(KVBM_ERR_IO, "the answer to a get cannot be read");
    if (reply_.number == 0) return go(Step::get_check);  // the object may be missing, empty or shorter than the offset
    op->done = static_cast<uint64_t>(reply_.number);
    return end();
  }
  if (step_ == Step::get_check) {
    if (reply_.items.size() != 2) return end(KVBM_ERR_IO, "the answer to a get cannot be read");
    if (reply_.items[0].number == 0) {
      services_->prune(name_);
      return end(KVBM_ERR_MISS, "no such object");
    }
    if (op->bytes == 0 || static_cast<uint64_t>(reply_.items[1].number) <= op->offset) return end();
    read_again();
  } else if (step_ == Step::get_head) {
    if (reply_.items.empty()) return end(KVBM_ERR_MISS, "no such object");
    if (!read_head(reply_, &parts_)) return end(KVBM_ERR_CONFIG, "another program uses this key: set another prefix");
    go(Step::get_parts);
  } else if (is_short_ && read_token_ == parts_.token) {
    end(KVBM_ERR_MISS, "a part of the object is gone");
  } else if (is_short_) {  // or the object was replaced
    read_token_ = parts_.token;
    read_again();
  } else {
    op->done = get_bytes_;
    end();
  }
}

void Operation::next() {
  if (failure_.status != KVBM_OK) return end(failure_);
  if (!error_.empty()) {
    if (!handles_error()) end(judge_error(error_, server));
    return;
  }
  const bool is_listed = op != nullptr && (op->flags & KVBM_STORE_LISTED) != 0;
  switch (step_) {
    case Step::put:
      if (reply_.items.size() != 2 || !reply_.items[1].is(Reply::Type::status)) {
        return end(KVBM_ERR_IO, "the answer to a put cannot be read");
      }
      if (old_.total > 0) return go(Step::put_drop);
      return is_listed ? go(Step::put_name) : end();
    case Step::put_parts:
      return go(Step::put_head);
    case Step::put_head:
      if (!reply_.is(Reply::Type::array)) return end(KVBM_ERR_IO, "the answer to a put cannot be read");
      if (old_.total > 0) return go(Step::put_drop);
      [[fallthrough]];
    case Step::put_drop:
      if (op->expire_s == 0 && parts_.total > 0) return go(Step::put_keep);
      return is_listed ? go(Step::put_name) : end();
    case Step::put_keep:
      return is_listed ? go(Step::put_name) : end();
    case Step::get:
    case Step::get_check:
    case Step::get_head:
    case Step::get_parts:
      return next_of_get();
    case Step::remove_name:
      return go(Step::remove_look);
    case Step::remove_look:
      if (!reply_.items.empty() && !read_head(reply_, &parts_))
        return end(KVBM_ERR_CONFIG, "another program uses this key: set another prefix");
      return reply_.items.empty() ? end() : go(Step::remove_object);
    case Step::remove_object:
      parts_ = old_;
      return parts_.total > 0 ? go(Step::remove_parts) : end();
    case Step::list:
      return take_list(reply_);
    case Step::prune_name:
      // The object may have been put again meanwhile, and its name must not be lost then.
      return reply_.number != 0 || was_retried_ ? go(Step::prune_check) : end();
    case Step::prune_check:
      return reply_.number != 0 ? go(Step::prune_again) : end();
    case Step::slots:
    case Step::probe_slots:
      services_->learn_slots(reply_, from_);
      return own_ == Own::probe ? go(Step::probe_write) : end();
    case Step::probe_write:
      return go(Step::probe_read);
    case Step::probe_read:
      return go(Step::probe_remove);
    case Step::probe_remove:
      return go(Step::probe_index);
    case Step::probe_index:
      return go(Step::probe_policy);
    case Step::probe_policy:
      if (field(reply_.text, "maxmemory") != "0" && field(reply_.text, "maxmemory_policy") == "noeviction") {
        policy_note = "it evicts nothing (maxmemory-policy noeviction), so puts fail once it is full: set allkeys-lru";
      }
      return end();
    case Step::put_name:
    case Step::prune_again:
    case Step::remove_parts:
      return end();
  }
}

}  // namespace kvbm_redis
