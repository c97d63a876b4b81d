#include "command/session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/crypto/random.h"
#include "base/process/machine_limits.h"
#include "command/node.h"
#include "session/side.h"
#include "terminal/json_text.h"
#include "terminal/quantity.h"

namespace kvbm::command {

namespace {

using Json = nlohmann::ordered_json;
using Time = std::chrono::steady_clock;

struct SessionArguments {
  session::SideOptions side;
  std::string request = "request";
  std::string file;  // file to send, or to write received bytes to
  std::string address_file;
  std::string from = "prefill";  // names or addresses of the nodes that a receiver reads from
  int rank = -1;                 // -1: all
  uint32_t peer_tp = 1;
  double timeout = 60;
  uint32_t layer_ms = 0;
  std::optional<Option> tokens_option;
  [[nodiscard]] uint64_t timeout_ns() const { return static_cast<uint64_t>(timeout * 1e9); }
};

Status failed(const kvbm_error_t& error) { return {static_cast<Code>(error.status), "", error.message}; }

double seconds_since(Time::time_point start) { return std::chrono::duration<double>(Time::now() - start).count(); }

std::string side_text(const session::SideOptions& side) {
  return std::to_string(side.ranks) + " of " + std::to_string(side.tp) + " ranks, " + side.order + ", blocks of " +
         std::to_string(side.block_tokens);
}

constexpr uint64_t kFirstLookNs = 1'000'000'000;

// Returns an error if all peers refuse this side, because waiting is useless then. A peer that is not up yet may
// still connect.
Status refusal_of_peers(const session::Side& side, uint64_t timeout_ns) {
  Status waited = side.member().wait_for_peers(std::min(timeout_ns, kFirstLookNs));
  if (waited.ok()) return waited;
  const std::vector<kvbm_node_row_t> rows = side.member().nodes();
  const auto refused = [](const kvbm_node_row_t& row) { return std::string_view(row.state).starts_with("refused: "); };
  return !rows.empty() && std::all_of(rows.begin(), rows.end(), refused) ? std::move(waited) : Status();
}

// Opens the side with its node. Returns null with the exit code on failure.
std::unique_ptr<session::Side> open_side(SessionArguments& arguments, const Output& output, int& code) {
  session::SideOptions& side = arguments.side;
  side.first_rank = arguments.rank < 0 ? 0 : static_cast<uint32_t>(arguments.rank);
  side.ranks = arguments.rank < 0 ? side.tp : 1;
  if (side.node.listen.empty() && side.node.peers.empty()) {
    code = fail(kBadInput, "neither --listen nor --peer", "one side listens, the other gives its address with --peer");
    return nullptr;
  }
  auto opened = session::Side::open(side);
  if (!opened.ok()) {
    code = fail(opened.status());
    return nullptr;
  }
  const std::string address = opened.value()->member().address();
  if (!address.empty() && !output.json) std::cerr << "kvbm session: listening on " << address << "\n";
  if (!arguments.address_file.empty()) {
    // The file is written atomically, because a waiting reader reads it as soon as it exists.
    const std::string partial = arguments.address_file + ".partial";
    std::ofstream(partial) << address << "\n";
    if (std::rename(partial.c_str(), arguments.address_file.c_str()) != 0) {
      code = fail(kFailed, "the address could not be written to " + arguments.address_file);
      return nullptr;
    }
  }
  if (!side.node.peers.empty()) {
    if (const Status s = refusal_of_peers(*opened.value(), arguments.timeout_ns()); !s.ok()) {
      code = fail(s);
      return nullptr;
    }
  }
  return std::move(opened).value();
}

// ---- Memory ----

// Returns the memory that the side needs at once: the caches of its ranks, and the bytes to send. The result may
// exceed 64 bits.
double memory_needed(const SessionArguments& arguments, double bytes_per_token, bool sends) {
  // Each rank has a head at least.
  const double each = std::max(1.0 / arguments.side.tp, 1.0 / arguments.side.heads);
  const double share = each * (arguments.rank < 0 ? arguments.side.tp : 1);
  return static_cast<double>(arguments.side.tokens) * bytes_per_token * (share + (sends ? 1 : 0));
}

int no_memory(const SessionArguments& arguments, bool sends) {
  const auto each = session::bytes_per_token(arguments.side);
  if (!each.ok()) return fail(each.status());
  const auto bytes = static_cast<double>(each.value());
  return fail(kBadInput,
              "the request needs " + terminal::format_size(memory_needed(arguments, bytes, sends)) +
                  " of memory, more than there is: " + std::to_string(arguments.side.tokens) + " tokens of " +
                  std::to_string(each.value()) + " bytes",
              "see --tokens, --layers, --heads, --head-size, --element");
}

// Checks the memory in advance. The system would grant more memory than the machine has, and kill the process when it
// is touched.
bool fits_memory(const SessionArguments& arguments, bool sends) {
  const auto each = session::bytes_per_token(arguments.side);
  if (!each.ok()) return true;  // refused elsewhere
  const auto there = static_cast<double>(read_machine_limits().memory());
  return memory_needed(arguments, static_cast<double>(each.value()), sends) <= there;
}

// ---- send ----

// Returns canonical bytes of the whole model, from a file or made up. Sets `tokens` to their number of tokens.
Result<std::string> bytes_to_send(SessionArguments& arguments) {
  const auto each = session::bytes_per_token(arguments.side);
  if (!each.ok()) return each.status();
  if (arguments.file.empty()) {
    std::string made(each.value() * arguments.side.tokens, '\0');
    SeededRandom random(1);
    random.fill({reinterpret_cast<std::byte*>(made.data()), made.size()});
    return made;
  }
  std::ifstream file(arguments.file, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status(Code::invalid_argument, "cannot read", arguments.file);
  std::string bytes = text.str();
  const uint64_t tokens = bytes.size() / each.value();
  const bool tokens_given = arguments.tokens_option && arguments.tokens_option->given();
  if (tokens == 0 || bytes.size() % each.value() != 0 || (tokens_given && tokens != arguments.side.tokens)) {
    return Status(Code::invalid_argument, "the file is not KV of this geometry",
                  arguments.file + ": " + std::to_string(bytes.size()) + " bytes, a token takes " +
                      std::to_string(each.value()) + "; see --layers, --heads, --head-size, --element, --tokens");
  }
  arguments.side.tokens = tokens;
  return bytes;
}

// Returns the heads of this side's ranks, of one layer of the file.
std::string layer_of(const std::string& bytes, const session::SideOptions& side, uint32_t layer) {
  const uint64_t plane = bytes.size() / side.layers / 2;
  const uint64_t head = plane / side.heads;
  const session::Heads heads = session::heads_of(side, side.first_rank, side.ranks);
  std::string out;
  for (uint32_t p = 0; p < 2; ++p)
    out += bytes.substr((2 * layer + p) * plane + head * heads.first, head * heads.count());
  return out;
}

class Offers {
 public:
  ~Offers() {
    for (kvbm_offer_t* offer : offers_) kvbm_offer_release(offer);
    kvbm_queue_release(queue_);
  }
  Offers() = default;
  Offers(const Offers&) = delete;
  Offers& operator=(const Offers&) = delete;

  Status open(session::Side& side, const SessionArguments& arguments, const kvbm_request_id_t& request) {
    kvbm_error_t refused{};
    const auto depth = static_cast<uint32_t>(side.ranks().size());
    if (kvbm_queue_create(side.member().context(), depth, &queue_, &refused) != KVBM_OK) return failed(refused);
    for (session::Side::Rank& rank : side.ranks()) {
      kvbm_offer_options_t options;
      kvbm_offer_options_init(&options, sizeof options);
      options.rank = rank.number;
      options.end = arguments.side.tokens;
      options.timeout_ns = arguments.timeout_ns();
      kvbm_error_t error{};
      kvbm_offer_t* offer = nullptr;
      if (kvbm_offer_open(rank.cache, &request, rank.blocks.data(), rank.blocks.size(), &options, queue_, 0, &offer,
                          &error) != KVBM_OK) {
        return failed(error);
      }
      offers_.push_back(offer);
    }
    return {};
  }
  // Publishes a layer of all offers. Returns false if one has ended; wait() then returns the reason.
  bool publish(uint32_t layer) {
    bool all = true;
    for (kvbm_offer_t* offer : offers_) all = kvbm_offer_publish(offer, 0, layer, 1, 0, 0, nullptr) == KVBM_OK && all;
    return all;
  }
  Status wait() {
    for (kvbm_offer_t* offer : offers_) {
      kvbm_error_t error{};
      if (kvbm_offer_wait(offer, KVBM_FOREVER, &error) != KVBM_OK) return failed(error);
    }
    // Each offer has a completion that is here or about to arrive.
    kvbm_completion_t completion{};
    for (size_t i = 0; i < offers_.size() && kvbm_queue_wait(queue_, &completion, 1, KVBM_FOREVER) == 1; ++i) {
      bytes_ += completion.bytes;
    }
    return {};
  }
  // Returns the bytes that the decode ranks took, once all offers have ended well.
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<kvbm_offer_t*> offers_;
  kvbm_queue_t* queue_ = nullptr;
  uint64_t bytes_ = 0;
};

// Prints the bytes taken as the bytes sent: a receiver may want fewer tokens. The hash covers all offered bytes.
void say_sent(const SessionArguments& arguments, const Output& output, const session::Side& side, uint64_t taken,
              double seconds, const std::string& hash) {
  const uint64_t offered = side.bytes();
  if (output.json) {
    const Json line{{"request", arguments.request},
                    {"tokens", arguments.side.tokens},
                    {"ranks", arguments.side.ranks},
                    {"tp", arguments.side.tp},
                    {"order", arguments.side.order},
                    {"bytes", std::min(taken, offered)},
                    {"offered_bytes", offered},
                    {"hash", hash},
                    {"seconds", seconds}};
    std::cout << terminal::json_text(line, -1) << std::endl;
    return;
  }
  std::cout << "sent " << terminal::format_size(static_cast<double>(std::min(taken, offered)));
  if (taken < offered) {
    std::cout << " of " << terminal::format_size(static_cast<double>(offered)) << ", the receiving side wanted no more";
  }
  std::cout << " (" << side_text(arguments.side) << ") in " << seconds << " s, hash " << hash
            << (taken < offered ? " of all that was offered" : "") << std::endl;
}

int send(SessionArguments& arguments, const Output& output) {
  const auto request = session::request_named(arguments.request);
  if (!request.ok()) return fail(request.status());
  if (arguments.file.empty() && !fits_memory(arguments, true)) return no_memory(arguments, true);
  auto bytes = bytes_to_send(arguments);
  if (!bytes.ok()) return fail(bytes.status());
  int code = kDone;
  if (arguments.rank >= 0 && arguments.side.node.name == "prefill") {
    arguments.side.node.name += "-" + std::to_string(arguments.rank);
  }
  const auto side = open_side(arguments, output, code);
  if (side == nullptr) return code;
  Offers offers;
  if (const Status s = offers.open(*side, arguments, request.value()); !s.ok()) return fail(s);
  const auto start = Time::now();
  session::Digest digest;
  for (uint32_t layer = 0; layer < arguments.side.layers; ++layer) {
    if (arguments.layer_ms != 0) std::this_thread::sleep_for(std::chrono::milliseconds(arguments.layer_ms));
    const std::string part = layer_of(bytes.value(), arguments.side, layer);
    const auto* data = reinterpret_cast<const std::byte*>(part.data());
    side->write_layer(layer, data);
    digest.add(data, part.size());
    if (!offers.publish(layer)) break;
    if (!output.json) std::cerr << "layer " << layer << " published after " << seconds_since(start) << " s\n";
  }
  const Status end = offers.wait();
  if (!end.ok()) {
    return fail(end, "the receiving side is `kvbm session receive` with the same request, model and geometry");
  }
  say_sent(arguments, output, *side, offers.bytes(), seconds_since(start), digest.text());
  return kDone;
}

// ---- receive ----

// Returns a node for each prefill rank. Each of k nodes has a run of neighbouring ranks.
Result<std::vector<std::string>> nodes_of(const SessionArguments& arguments) {
  std::vector<std::string> nodes;
  std::istringstream list(arguments.side.node.peers.empty() ? arguments.from : arguments.side.node.peers);
  for (std::string node; std::getline(list, node, ',');) nodes.push_back(node);
  if (nodes.empty() || arguments.peer_tp % nodes.size() != 0) {
    return Status(
        Code::invalid_argument, "the prefill ranks do not divide among the nodes",
        std::to_string(arguments.peer_tp) + " ranks, " + std::to_string(nodes.size()) + " nodes; see --peer-tp");
  }
  std::vector<std::string> out;
  for (uint32_t r = 0; r < arguments.peer_tp; ++r) out.push_back(nodes[r * nodes.size() / arguments.peer_tp]);
  return out;
}

class Sessions {
 public:
  ~Sessions() {
    for (kvbm_session_t* session : sessions_) kvbm_session_release(session);
  }
  Sessions() = default;
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  Status open(session::Side& side, const SessionArguments& arguments, const kvbm_request_id_t& request,
              const std::vector<std::string>& nodes) {
    std::vector<kvbm_source_t> sources;
    for (size_t r = 0; r < nodes.size(); ++r) sources.push_back({nodes[r].c_str(), static_cast<uint32_t>(r), 0});
    for (session::Side::Rank& rank : side.ranks()) {
      kvbm_session_options_t options;
      kvbm_session_options_init(&options, sizeof options);
      options.rank = rank.number;
      options.ranks = arguments.side.tp;
      options.end = arguments.side.tokens;
      options.timeout_ns = arguments.timeout_ns();
      kvbm_error_t error{};
      kvbm_session_t* session = nullptr;
      if (kvbm_session_open(rank.cache, &request, rank.blocks.data(), rank.blocks.size(), sources.data(),
                            sources.size(), &options, nullptr, 0, &session, &error) != KVBM_OK) {
        return failed(error);
      }
      sessions_.push_back(session);
    }
    return {};
  }
  Status wait_layer(uint32_t layer) {
    for (kvbm_session_t* session : sessions_) {
      kvbm_error_t error{};
      if (kvbm_session_wait_layer(session, 0, layer, KVBM_FOREVER, &error) != KVBM_OK) return failed(error);
    }
    return {};
  }
  Status wait() {
    for (kvbm_session_t* session : sessions_) {
      kvbm_error_t error{};
      if (kvbm_session_wait(session, KVBM_FOREVER, &error) != KVBM_OK) return failed(error);
    }
    return {};
  }

 private:
  std::vector<kvbm_session_t*> sessions_;
};

// Takes layers as they arrive, hashes them, and writes them to `file` if that is open.
Status take_layers(Sessions& sessions, const session::Side& side, const SessionArguments& arguments, bool quiet,
                   std::ofstream& file, session::Digest& digest, double& first) {
  const auto start = Time::now();
  std::vector<std::byte> layer_bytes(side.layer_bytes());
  for (uint32_t layer = 0; layer < arguments.side.layers; ++layer) {
    if (Status s = sessions.wait_layer(layer); !s.ok()) return s;
    if (layer == 0) first = seconds_since(start);
    if (!quiet) std::cerr << "layer " << layer << " in place after " << seconds_since(start) << " s\n";
    if (!side.read_layer(layer, layer_bytes.data())) {
      return {Code::damaged, "ranks that hold the same head hold other bytes of it", "layer " + std::to_string(layer)};
    }
    digest.add(layer_bytes.data(), layer_bytes.size());
    if (file.is_open()) {
      file.write(reinterpret_cast<const char*>(layer_bytes.data()), static_cast<std::streamsize>(layer_bytes.size()));
    }
  }
  return sessions.wait();
}

int receive(SessionArguments& arguments, const Output& output) {
  const auto request = session::request_named(arguments.request);
  if (!request.ok()) return fail(request.status());
  const auto nodes = nodes_of(arguments);
  if (!nodes.ok()) return fail(nodes.status());
  if (!fits_memory(arguments, false)) return no_memory(arguments, false);
  std::ofstream file;
  if (!arguments.file.empty()) {
    file.open(arguments.file, std::ios::binary);
    if (!file) return fail(kBadInput, "cannot write " + arguments.file);
  }
  int code = kDone;
  const auto side = open_side(arguments, output, code);
  if (side == nullptr) return code;
  const auto start = Time::now();
  Sessions sessions;
  if (const Status s = sessions.open(*side, arguments, request.value(), nodes.value()); !s.ok()) return fail(s);
  session::Digest digest;
  double first = 0;
  const Status end = take_layers(sessions, *side, arguments, output.json, file, digest, first);
  if (!end.ok()) {
    return fail(
        end,
        "the sending side is `kvbm session send` with the same request, model and geometry; --peer-tp is its --tp");
  }
  const double seconds = seconds_since(start);
  if (file.is_open()) {
    file.close();
    if (!file) return fail(kFailed, "cannot write " + arguments.file);
  }
  if (output.json) {
    const Json line{{"request", arguments.request}, {"tokens", arguments.side.tokens}, {"ranks", arguments.side.ranks},
                    {"tp", arguments.side.tp},      {"order", arguments.side.order},   {"bytes", side->bytes()},
                    {"hash", digest.text()},        {"first_layer_seconds", first},    {"seconds", seconds}};
    std::cout << terminal::json_text(line, -1) << std::endl;
  } else {
    std::cout << "received " << terminal::format_size(static_cast<double>(side->bytes())) << " ("
              << side_text(arguments.side) << ") in " << seconds << " s, first layer after " << first << " s, hash "
              << digest.text() << std::endl;
  }
  return kDone;
}

// Handles std::bad_alloc: a limit of the process, or other programs, may leave less memory than the machine has.
int within_memory(SessionArguments& arguments, const Output& output, bool sends) {
  try {
    return sends ? send(arguments, output) : receive(arguments, output);
  } catch (const std::bad_alloc&) {
    return no_memory(arguments, sends);
  }
}

// ---- Options ----

void add_common(Command app, SessionArguments& arguments) {
  session::SideOptions& side = arguments.side;
  app.add_option("--listen", side.node.listen, "Address to listen on; port 0 takes a free one").type_name("HOST:PORT");
  app.add_option("--peer", side.node.peers, "Address of the other side, or several with commas").type_name("HOST:PORT");
  app.add_option("--address-file", arguments.address_file, "Write the own address here once it listens")
      .type_name("FILE");
  app.add_option("--request", arguments.request, "Name of the request, the same on both sides: up to 16 characters")
      .type_name("ID")
      .show_default();
  app.add_option("--model", side.model, "Name of the model, the same on both sides").type_name("NAME").show_default();
  const auto number = [&](const char* name, uint32_t& value, const char* what) {
    app.add_option(name, value, what).type_name("N").range(1U, 4096U).show_default();
  };
  number("--layers", side.layers, "Layers of the model");
  number("--heads", side.heads, "KV heads of the model");
  number("--head-size", side.head_size, "Elements of a head");
  app.add_option("--element", side.element, "bf16, fp16, fp32, fp8_e4m3, fp8_e5m2 or int8")
      .type_name("TYPE")
      .show_default();
  arguments.tokens_option = app.add_option("--tokens", side.tokens, "Tokens of the request")
                                .type_name("N")
                                .range(uint64_t{1}, uint64_t{1} << 30)
                                .show_default();
  number("--tp", side.tp, "Tensor-parallel ranks of this side; more than there are heads share them");
  app.add_option("--rank", arguments.rank, "The one that this process is; all of them if missing")
      .type_name("N")
      .range(0, 4095);
  app.add_option("--order", side.order, "Form of the caches: nhd, hnd, blocks_nhd, layers_hnd, cross_nhd, ...")
      .type_name("FORM")
      .show_default();
  number("--block-tokens", side.block_tokens, "Tokens of an engine block");
  app.add_option("--timeout", arguments.timeout, "Seconds until the transfer fails")
      .type_name("SECONDS")
      .range(0.01, 86400.0)
      .show_default();
  app.add_option("--key-file", side.node.key_file,
                 "File with the pool's key (kvbm key new); without one only this user's processes on this machine")
      .type_name("FILE");
  add_protection(app, side.node);
  app.add_option("--pool", side.node.pool, "Name of the pool").type_name("NAME").show_default();
  app.add_option("--transport", side.node.transport, "What carries the link: auto, tcp, ucx; the same on both sides")
      .one_of({"auto", "tcp", "ucx"})
      .show_default();
  app.add_option("--codec", side.node.codec, "Codec of the layers: off, auto or a mode; off on one side is off")
      .type_name("MODE")
      .show_default();
  app.add_option("--seal-key-file", side.node.seal_key_file, "File with keys: layers are sealed on their way")
      .type_name("FILE");
}

}  // namespace

void add_session(Registry& registry) {
  Command group =
      registry.add_group("session", "Move a request's KV from a prefill side to a decode side, re-sliced and verified");
  auto sending = std::make_shared<SessionArguments>();
  Command sender =
      registry.add(group, "send", "Be the prefill side: offer a request's KV and publish it layer by layer",
                   [sending](const Output& output) { return within_memory(*sending, output, true); });
  sender
      .add_option("file", sending->file,
                  "KV of the whole model, [layer][K, V][head][token][element]; made up if missing")
      .type_name("FILE");
  add_common(sender, *sending);
  sending->side.node.name = "prefill";
  sender.add_option("--name", sending->side.node.name, "Name of this node, for a receiver that was dialled (--from)")
      .type_name("NAME")
      .show_default();
  sender.add_option("--layer-ms", sending->layer_ms, "Milliseconds that a layer takes to compute")
      .type_name("N")
      .show_default();
  sender.footer(
      "Example, in two shells:\n  kvbm session receive --listen 127.0.0.1:7001 --tp 2 --order hnd --peer-tp 4 --out "
      "kv.bin\n"
      "  kvbm session send --peer 127.0.0.1:7001 --tp 4 --layer-ms 100\nBoth print the same hash, of as many tokens. A "
      "receiver with fewer --tokens takes the first ones: its hash and size are of those.");

  auto receiving = std::make_shared<SessionArguments>();
  Command receiver =
      registry.add(group, "receive", "Be the decode side: open a session and take layers as they are ready",
                   [receiving](const Output& output) { return within_memory(*receiving, output, false); });
  receiver
      .add_option("-o,--out", receiving->file, "Where to write the received KV, in the order of `kvbm session send`")
      .type_name("FILE");
  add_common(receiver, *receiving);
  receiver
      .add_option("--peer-tp", receiving->peer_tp, "Tensor-parallel ranks of the sending side, over all of its nodes")
      .type_name("N")
      .range(1U, 4096U)
      .show_default();
  receiver.add_option("--from", receiving->from, "Names of the sending nodes, where they dial this one")
      .type_name("NAME,...")
      .show_default();
  receiver.footer(
      "Example, in two shells:\n  kvbm session send kv.bin --listen 127.0.0.1:7001\n"
      "  kvbm session receive --peer 127.0.0.1:7001 --tokens 1024 --order cross_hnd --out back.bin");
}

}  // namespace kvbm::command
