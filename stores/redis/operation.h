// An operation: the commands of its steps, one step after the other.
//
// An object is one value of Redis. If it is larger than a part, it is several values, and a list that names them. The
// value or list has the key PREFIX:NAME, a part PREFIX:#TOKEN:NUMBER. Names that are listed are members of the sorted
// set PREFIX:#names.
#pragma once

#include <string>
#include <vector>

#include "connection.h"
#include "settings.h"

namespace kvbm_redis {

// Services of the store that an operation uses. None of these functions calls back before it returns.
class Services {
 public:
  virtual void send(OwnedCommand command) = 0;
  // Ends the operation, which is not touched afterwards.
  virtual void finish(Operation& operation, const Verdict& verdict) = 0;
  // Removes from the listing a name without an object.
  virtual void prune(const std::string& name) = 0;
  virtual bool learn_slots(const Reply& reply, const Connection* from) = 0;
  virtual std::string new_token() = 0;
  [[nodiscard]] virtual const Settings& settings() const = 0;
  bool lacks_unlink = false;  // the server is older than Redis 4

 protected:
  ~Services() = default;
};

class Operation {
 public:
  enum class Own : uint8_t { none, prune, slots, probe };

  // `op` may be null for the store's own operations. `name` is that of a prune.
  Operation(Services* services, kvbm_store_op_t* op, Own own = Own::none, std::string name = {});

  void begin();
  void replied(const Command& command, Reply& reply, const Connection& connection);
  // Reports that a command was given up.
  void failed(const Verdict& verdict);

  [[nodiscard]] Own own() const { return own_; }

  kvbm_store_op_t* const op;
  Clock::time_point deadline;
  std::vector<Command*> commands;  // commands in transit
  bool is_cancelled = false;       // under the store's lock
  std::string server;              // the server that was asked last
  std::string policy_note;         // of a probe: a remark for people

 private:
  enum class Step : uint8_t {
    put,
    put_parts,
    put_head,
    put_drop,
    put_keep,
    put_name,
    get,
    get_check,
    get_head,
    get_parts,
    remove_name,
    remove_look,
    remove_object,
    remove_parts,
    list,
    prune_name,
    prune_check,
    prune_again,
    slots,
    probe_slots,
    probe_write,
    probe_read,
    probe_remove,
    probe_index,
    probe_policy
  };

  // An object in parts.
  struct Parts {
    std::string token;
    uint64_t total = 0;
    uint64_t part_bytes = 1;

    [[nodiscard]] uint64_t count() const { return (total + part_bytes - 1) / part_bytes; }
  };

  std::string object_key() const { return services_->settings().prefix + ":" + name_; }
  std::string index_key() const { return services_->settings().prefix + ":#names"; }
  std::string part_key(const Parts& parts, uint64_t number) const {
    return services_->settings().prefix + ":#" + parts.token + ":" + std::to_string(number);
  }

  Command& ask(const std::string& key, std::initializer_list<std::string_view> words);
  void ask_unlink(const std::string& key);
  void unlink_parts(const Parts& parts);
  Command& put(const std::string& key, const char* data, uint64_t bytes, uint64_t expire_s);
  static std::string begin_with_look(const std::string& key);
  void put_value();
  void put_parts();
  void put_head();
  void remove_object();
  void check_get();
  void begin_list();
  void begin_get();
  void get_parts();
  void take_list(const Reply& reply);
  // Reads the list that names the parts. Returns false if another program wrote it.
  static bool read_head(const Reply& reply, Parts* out);
  bool read_again();
  void next();
  void next_of_get();
  void go(Step step);
  void start_step();
  bool handles_error();
  void end(const Verdict& verdict = {}) { services_->finish(*this, verdict); }
  void end(kvbm_status_t status, const char* clause) { end(Verdict{status, clause, false, false}); }

  Services* const services_;
  const Own own_;
  std::string name_;
  Step step_ = Step::put;
  size_t outstanding_ = 0;
  Reply reply_;        // last one
  std::string error_;  // first one of the step, as sent by the server
  Verdict failure_;    // of commands that never returned
  const Connection* from_ = nullptr;
  unsigned rounds_ = 0;
  bool was_retried_ = false;

  Parts parts_;
  Parts old_;               // parts that a put replaces
  std::string read_token_;  // of parts that were read in vain
  uint64_t get_bytes_ = 0;
  bool is_short_ = false;  // a part had fewer bytes than expected
  std::string list_after_;
  uint64_t list_count_ = 0;
};

inline constexpr uint64_t kMaxParts = 1024;

}  // namespace kvbm_redis
