#include "command/node.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command/registry.h"
#include "node/coding_view.h"
#include "node/event_loop.h"
#include "node/health.h"
#include "node/http_server.h"
#include "node/member.h"
#include "node/supervisor.h"
#include "terminal/interrupt.h"
#include "terminal/json_text.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

using Json = nlohmann::ordered_json;

struct NodeArguments {
  node::MemberOptions member;
  std::string host = "256MiB";
  std::string disk;
  std::string block_bytes = "1MiB";
  std::string address_file;
  std::string http;  // empty: no pages
  bool http_anywhere = false;
  std::string name;
  std::string file;
  bool durable = false;
  bool makes_share = false;  // a missing tier set is created, and no lookup is needed in it
  double timeout = 5;
  [[nodiscard]] uint64_t timeout_ns() const { return static_cast<uint64_t>(timeout * 1e9); }
};

int take_sizes(NodeArguments& arguments) {
  const std::pair<const std::string*, uint64_t*> sizes[] = {{&arguments.host, &arguments.member.host_bytes},
                                                            {&arguments.disk, &arguments.member.disk_bytes},
                                                            {&arguments.block_bytes, &arguments.member.block_bytes}};
  for (const auto& [text, out] : sizes) {
    if (text->empty()) continue;
    const auto size = terminal::parse_size(*text);
    if (!size.ok()) return fail(size.status());
    *out = size.value();
  }
  // Refuses 0, for which the library would use its own default.
  if (arguments.member.host_bytes == 0) {
    return fail(kBadInput, "--host 0 leaves no memory for blocks", "give --host 64MiB, or more");
  }
  if (!arguments.member.share.empty()) return kDone;
  if ((arguments.member.disk_bytes == 0) == arguments.member.disk_path.empty()) return kDone;
  return fail(kBadInput, "--disk and --disk-path go together", "--disk 10GiB --disk-path /mnt/nvme/kvbm");
}

// ---- kvbm node ----

// Writes the file atomically, because a waiting reader reads it as soon as it exists.
bool write_address(const std::string& file, const std::string& address) {
  const std::string partial = file + ".partial";
  std::ofstream(partial) << address << "\n";
  return std::rename(partial.c_str(), file.c_str()) == 0;
}

void say_serving(const NodeArguments& arguments, const Output& output, const node::Member& member,
                 const std::string& http) {
  const std::string address = member.address();
  if (output.json) {
    Json line{{"address", address}, {"pool", arguments.member.pool}};
    if (!http.empty()) line["http"] = http;
    std::cout << terminal::json_text(line, -1) << std::endl;
    return;
  }
  std::cout << "kvbm node: pool " << arguments.member.pool
            << (address.empty() ? ", not listening" : ", listening on " + address) << "; "
            << terminal::format_binary_size(static_cast<double>(arguments.member.host_bytes)) << " of host memory"
            << (arguments.member.disk_path.empty() ? "" : ", disk in " + arguments.member.disk_path)
            << (arguments.member.share.empty() ? ""
                                               : ", " + arguments.member.share + " shared as " + member.share_role())
            << (http.empty() ? "" : "; http://" + http + " has " + node::health_pages()) << ". Ctrl-C ends it."
            << std::endl;
}

// Closes the member. This may take a while, because operations in flight end first.
int end(std::unique_ptr<node::Member> member, const Output& output) {
  const kvbm_manager_stats_t stats = member->stats();
  uint64_t served = 0;
  for (const kvbm_node_row_t& row : member->nodes()) served += row.served_bytes;
  member.reset();
  if (output.json) {
    std::cout << terminal::json_text(Json{{"ended", true}, {"blocks", stats.tiers[0].blocks}, {"served_bytes", served}},
                                     -1)
              << std::endl;
  } else {
    std::cout << "kvbm node: ended with " << stats.tiers[0].blocks << " blocks in host memory" << std::endl;
  }
  return kDone;
}

int serve(NodeArguments& arguments, const Output& output) {
  const int sizes = take_sizes(arguments);
  if (sizes != kDone) return sizes;
  const node::MemberOptions& asked = arguments.member;
  if (asked.listen.empty() && asked.peers.empty() && asked.peers_file.empty() && asked.share.empty()) {
    return fail(kBadInput, "a node needs an address to listen at, other nodes, or a shared tier set",
                "give --listen 127.0.0.1:7000, --peers, --peers-file or --share DIR");
  }
  arguments.member.log = !output.json;
  const terminal::Interrupt interrupt;
  auto loop = node::EventLoop::create();
  if (!loop.ok()) return fail(loop.status());
  std::unique_ptr<node::HttpServer> http;
  if (!arguments.http.empty()) {
    const auto reach =
        arguments.http_anywhere ? node::HttpServer::Reach::everybody : node::HttpServer::Reach::this_machine;
    auto listening = node::HttpServer::listen(*loop.value(), arguments.http, reach);
    if (!listening.ok()) return fail(listening.status());
    http = std::move(listening).value();
  }
  auto member = node::Member::open(arguments.member);
  if (!member.ok()) return fail(member.status());
  if (http != nullptr) node::add_health_pages(*http, *member.value());
  const std::string address = member.value()->address();
  say_serving(arguments, output, *member.value(), http != nullptr ? http->address() : "");
  if (!arguments.address_file.empty() && !write_address(arguments.address_file, address)) {
    return fail(kFailed, "the address could not be written to " + arguments.address_file);
  }
  (void)node::tell_supervisor("READY=1\nSTATUS=listening on " + address);
  const Status ran = loop.value()->run_until(terminal::Interrupt::fd());
  (void)node::tell_supervisor("STOPPING=1");
  http.reset();
  const int ended = end(std::move(member).value(), output);
  return ran.ok() ? ended : fail(ran);
}

// ---- kvbm put, get, exists, peers ----

// Opens a member that only dials. Returns null, with the exit code in `code`, if no node answers.
std::unique_ptr<node::Member> join(NodeArguments& arguments, int& code) {
  code = take_sizes(arguments);
  if (code == kDone && arguments.member.peers.empty() && arguments.member.peers_file.empty() &&
      arguments.member.share.empty()) {
    code = fail(kBadInput, "no node is named", "--peer 127.0.0.1:7000, --peers-file FILE, or --share DIR");
  }
  if (code == kDone && !arguments.member.share.empty() &&
      !(arguments.member.peers.empty() && arguments.member.peers_file.empty())) {
    code = fail(kBadInput, "--share and nodes of a pool are two places",
                "give --share DIR for the tier set of this host, or --peer and --peers-file for a pool");
  }
  std::error_code unknown;
  if (code == kDone && !arguments.makes_share && !arguments.member.share.empty() &&
      !std::filesystem::is_directory(arguments.member.share, unknown)) {
    code = fail(kBadInput, "no such directory: " + arguments.member.share, "kvbm put --share DIR makes one");
  }
  if (code != kDone) return nullptr;
  // For a command, a late answer is not a miss. The library waits a minute at most.
  arguments.member.share_ask = std::to_string(std::min<uint64_t>(arguments.timeout_ns() / 1'000'000, 60'000)) + "ms";
  auto member = node::Member::open(arguments.member);
  if (!member.ok()) {
    code = fail(member.status());
    return nullptr;
  }
  if (!arguments.member.share.empty()) return std::move(member).value();
  const Status ready = member.value()->wait_for_peers(arguments.timeout_ns());
  if (!ready.ok()) {
    // A node that answered and refused has already reported the remedy.
    const bool nobody = ready.message().find("is a node listening there?") != std::string::npos;
    code = fail(ready,
                nobody ? "start one with `kvbm node --listen 127.0.0.1:7000`, or give its address with --peer" : "");
    return nullptr;
  }
  return std::move(member).value();
}

int put(NodeArguments& arguments, const Output& output) {
  std::ostringstream text;
  if (arguments.file.empty() || arguments.file == "-") {
    text << std::cin.rdbuf();
  } else {
    std::error_code fault;
    const auto kind = std::filesystem::status(arguments.file, fault).type();
    if (kind == std::filesystem::file_type::not_found) return fail(kBadInput, "no such file: " + arguments.file);
    if (kind == std::filesystem::file_type::directory) {
      return fail(kBadInput, arguments.file + " is a directory", "give a file");
    }
    errno = 0;
    std::ifstream file(arguments.file, std::ios::binary);
    const int refused = errno;
    if (file) text << file.rdbuf();
    // If a read fails, only the stream `text` records it. At the end of the file there is nothing more to read.
    if (!file || file.peek() != std::ifstream::traits_type::eof() || file.bad()) {
      return fail(kBadInput,
                  "cannot read " + arguments.file + (refused != 0 ? std::string(": ") + std::strerror(refused) : ""));
    }
  }
  if (arguments.durable && arguments.member.share.empty()) {
    return fail(kBadInput,
                "--durable is for a tier set on this host: other nodes do not report what survives a power cut",
                "give --share DIR --disk SIZE");
  }
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  const std::string bytes = text.str();
  const bool shared = !arguments.member.share.empty();
  if (shared && arguments.member.disk_bytes == 0 && member->share_role() == "the owner") {
    return fail(kFailed, "the file would be lost: no other process is in the tier set, and it has no disk",
                "give --disk SIZE, or start `kvbm node --listen '' --share " + arguments.member.share + "` first");
  }
  const auto kept = member->put(arguments.name, bytes, arguments.durable);
  if (!kept.ok() && kept.status().code() == Code::exists) {
    return fail(kBadInput, kept.status().message(),
                "choose another name: what is stored under one stays until it is evicted");
  }
  if (!kept.ok()) return fail(kept.status());
  const node::Member::Kept& blocks = kept.value();
  if (output.json) {
    const Json line{
        {"name", arguments.name}, {"bytes", bytes.size()}, {"blocks", blocks.of}, {"blocks_kept", blocks.blocks}};
    std::cout << terminal::json_text(line, -1) << std::endl;
  }
  if (!blocks.all()) {
    return fail(blocks.blocks == 0 ? kFailed : kInPart,
                (shared ? "the shared tier set" : "the pool") +
                    (blocks.blocks == 0 ? " did not store " + arguments.name
                                        : " stored " + arguments.name + " in part: " + std::to_string(blocks.blocks) +
                                              " of " + std::to_string(blocks.of) + " blocks"),
                shared ? "raise --disk, or --host where there is none; where the file system is full, free space on it"
                       : "raise --host of its nodes, or name more of them");
  }
  if (!output.json) {
    std::cerr << "stored " << arguments.name << ", " << terminal::format_size(static_cast<double>(bytes.size()))
              << "\n";
  }
  return kDone;
}

int get(NodeArguments& arguments, const Output& output) {
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  const auto bytes = member->get(arguments.name, arguments.timeout_ns());
  if (!bytes.ok()) return fail(bytes.status());
  if (arguments.file.empty() && output.json) {
    return fail(kBadInput, "--json with the bytes on standard output", "give a file: -o FILE");
  }
  if (arguments.file.empty() || arguments.file == "-") {
    std::cout.write(bytes.value().data(), static_cast<std::streamsize>(bytes.value().size()));
    std::cout.flush();
    return std::cout ? kDone : fail(kFailed, "the bytes could not be written");
  }
  std::ofstream file(arguments.file, std::ios::binary);
  file.write(bytes.value().data(), static_cast<std::streamsize>(bytes.value().size()));
  file.close();
  if (!file) return fail(kFailed, "cannot write " + arguments.file);
  if (output.json) {
    uint64_t local = 0;
    for (const kvbm_node_row_t& row : member->nodes()) local += row.local_bytes;
    const Json line{
        {"name", arguments.name}, {"bytes", bytes.value().size()}, {"local_bytes", local}, {"file", arguments.file}};
    std::cout << terminal::json_text(line, -1) << std::endl;
  }
  return kDone;
}

int exists(NodeArguments& arguments, const Output& output) {
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  const auto found = member->exists(arguments.name, arguments.timeout_ns());
  if (!found.ok()) return fail(found.status());
  using Extent = node::Member::Extent;
  const bool all = found.value() == Extent::all;
  const bool part = found.value() == Extent::part;
  if (output.json) {
    std::cout << terminal::json_text(Json{{"name", arguments.name}, {"exists", all}, {"in_part", part}}, -1)
              << std::endl;
  } else {
    std::cout << (all ? "yes" : part ? "in part" : "no") << std::endl;
  }
  return all ? kDone : part ? kInPart : kFailed;
}

int peers(NodeArguments& arguments, const Output& output) {
  int code = kDone;
  if (!arguments.member.share.empty()) {
    return fail(kBadInput, "a shared tier set has no peers: its members are processes of this host",
                "each asks the one that owns the set; give --peer for the nodes of a pool");
  }
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  if (output.json) {
    Json rows = Json::array();
    for (const kvbm_node_row_t& row : member->nodes()) rows.push_back(node::peer_json(row));
    std::cout << terminal::json_text(rows) << std::endl;
    return kDone;
  }
  terminal::Table table({{"address"},
                         {"state"},
                         {"blocks", terminal::Align::right},
                         {"used", terminal::Align::right},
                         {"of", terminal::Align::right},
                         {"coding"},
                         {"path"}});
  for (const kvbm_node_row_t& row : member->nodes()) {
    table.add_row({row.address, row.state, terminal::format_count(row.records),
                   terminal::format_binary_size(static_cast<double>(row.used_bytes)),
                   terminal::format_binary_size(static_cast<double>(row.capacity_bytes)), node::coding_text(row),
                   row.path_reason[0] == '\0' ? row.path : std::string(row.path) + ": " + row.path_reason});
  }
  std::cout << table.render();
  return kDone;
}

int locate(NodeArguments& arguments, const Output& output) {
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  const auto located = member->locate(arguments.name, arguments.timeout_ns());
  if (!located.ok()) return fail(located.status());
  std::map<std::string, std::string> addresses;
  for (const kvbm_node_row_t& row : member->nodes()) addresses[node::id_text(row.node)] = row.address;
  Json rows = Json::array();
  terminal::Table table({{"node"},
                         {"tier", terminal::Align::right},
                         {"leading blocks", terminal::Align::right},
                         {"in this tier", terminal::Align::right},
                         {"bytes", terminal::Align::right}});
  for (const kvbm_location_t& row : located.value()) {
    const std::string address = addresses[node::id_text(row.node)];
    rows.push_back({{"node", node::id_text(row.node)},
                    {"address", address},
                    {"tier", row.tier},
                    {"leading_blocks", row.n_prefix},
                    {"in_tier", row.n_in_tier},
                    {"bytes", row.bytes}});
    table.add_row({address, std::to_string(row.tier), terminal::format_count(row.n_prefix),
                   terminal::format_count(row.n_in_tier),
                   terminal::format_binary_size(static_cast<double>(row.bytes))});
  }
  if (output.json) {
    std::cout << terminal::json_text(Json{{"name", arguments.name}, {"locations", rows}}) << std::endl;
  } else if (rows.empty()) {
    std::cout << "no node has it" << std::endl;
  } else {
    std::cout << table.render();
  }
  return rows.empty() ? kFailed : kDone;
}

// ---- Options ----

}  // namespace

void add_protection(Command app, node::MemberOptions& member) {
  app.add_option("--protect", member.protect,
                 "What is done to what crosses a link: authenticate, encrypt, off; authenticate where there is a key")
      .type_name("MODE")
      .one_of({"auto", "authenticate", "encrypt", "off"});
  app.add_flag("--trusted-network", member.trusted_network,
               "Allow unprotected links: no one else can read or change the traffic of this network");
}

namespace {

void add_pool(Command app, NodeArguments& arguments) {
  app.add_option("--key-file", arguments.member.key_file,
                 "File with the pool's key (kvbm key new); without one only this user's processes on this machine")
      .type_name("FILE");
  add_protection(app, arguments.member);
  app.add_option("--pool", arguments.member.pool, "Name of the pool").type_name("NAME").show_default();
  app.add_option("--host", arguments.host, "Host memory for blocks").type_name("SIZE").show_default();
  app.add_option("--peers-file", arguments.member.peers_file, "File of nodes, looked at once a second")
      .type_name("FILE");
  app.add_option("--replicas", arguments.member.replicas, "Nodes that a block is offered to")
      .type_name("N")
      .range(1, 7)
      .show_default();
  app.add_option("--transport", arguments.member.transport, "What carries the links: auto, tcp, ucx; one for a pool")
      .one_of({"auto", "tcp", "ucx"})
      .show_default();
  app.add_option("--ucx-devices", arguments.member.ucx_devices, "Devices that UCX may use; loopback alone if missing")
      .type_name("NAME,...");
  app.add_option("--local", arguments.member.local, "Share memory in place with nodes on this machine")
      .one_of({"auto", "off"})
      .show_default();
  app.add_option("--block-bytes", arguments.block_bytes, "Largest block; the same on every node")
      .type_name("SIZE")
      .show_default();
  app.add_option("--codec", arguments.member.codec, "How what is read from others is coded: off, auto or a mode")
      .type_name("MODE")
      .show_default();
  app.add_option("--disk-codec", arguments.member.disk_codec, "How the disk's records are coded: off, auto or a mode")
      .type_name("MODE")
      .show_default();
  app.add_option("--seal-key-file", arguments.member.seal_key_file, "File with keys: what leaves this host is sealed")
      .type_name("FILE");
}

void add_share(Command app, NodeArguments& arguments) {
  app.add_option("--share", arguments.member.share,
                 "Share the tier set in this directory with other processes of this host")
      .type_name("DIR");
}

void add_peer(Command app, NodeArguments& arguments) {
  app.add_option("--peer", arguments.member.peers, "Address of a node, or several with commas").type_name("HOST:PORT");
  add_share(app, arguments);
  app.add_option("--timeout", arguments.timeout, "Seconds to wait for a node")
      .type_name("SECONDS")
      .range(0.01, 3600.0)
      .show_default();
  app.add_option("--disk", arguments.disk, "With --share: size of the disk in that directory").type_name("SIZE");
  add_pool(app, arguments);
}

using Handler = int (*)(NodeArguments&, const Output&);

Command add_by_hand(Registry& registry, const char* name, const char* what, Handler handler,
                    const std::shared_ptr<NodeArguments>& arguments) {
  Command app =
      registry.add(name, what, [arguments, handler](const Output& output) { return handler(*arguments, output); });
  add_peer(app, *arguments);
  return app;
}

std::string has_letters(const std::string& name) { return name.empty() ? "a name is empty; give the blocks one" : ""; }

}  // namespace

void add_node(Registry& registry) {
  auto arguments = std::make_shared<NodeArguments>();
  Command app = registry.add("node", "Offer host memory and a disk to a pool of nodes, until Ctrl-C",
                             [arguments](const Output& output) { return serve(*arguments, output); });
  arguments->member.listen = "127.0.0.1:7000";
  app.add_option("--listen", arguments->member.listen, "Address to listen on; port 0 takes a free one")
      .type_name("HOST:PORT")
      .show_default();
  app.add_option("--peers", arguments->member.peers, "Addresses of other nodes, with commas")
      .type_name("HOST:PORT,...");
  app.add_option("--name", arguments->member.name, "Name of this node, the same after a restart").type_name("NAME");
  app.add_option("--disk", arguments->disk, "Size of a disk tier").type_name("SIZE");
  app.add_option("--disk-path", arguments->member.disk_path, "Its directory").type_name("DIR");
  app.add_option(
         "--admission", arguments->member.admission,
         "Which blocks of its own it offers to other nodes: on_request, on_eviction, after_uses, frequency, all")
      .one_of({"on_request", "on_eviction", "after_uses", "frequency", "all"})
      .type_name("WHEN");
  app.add_option("--address-file", arguments->address_file, "Write the address here once it listens").type_name("FILE");
  app.add_flag("--join", arguments->member.join,
               "Write this node into --peers-file, and take it out at the end; needs --name");
  app.add_option("--http", arguments->http, "Answer " + node::health_pages() + " there, such as 127.0.0.1:9400")
      .type_name("ADDRESS:PORT");
  app.add_flag("--http-anywhere", arguments->http_anywhere,
               "Let --http listen beyond this machine; it asks for no password");
  add_share(app, *arguments);
  add_pool(app, *arguments);
  app.footer(
      "Examples:\n  kvbm node --listen 127.0.0.1:7000 --host 1GiB\n  kvbm put --peer 127.0.0.1:7000 notes notes.txt\n"
      "  kvbm get --peer 127.0.0.1:7000 notes\n"
      "  kvbm node --listen '' --share /dev/shm/kv --disk 1GiB\n  kvbm put --share /dev/shm/kv --disk 1GiB notes "
      "notes.txt");

  auto to_put = std::make_shared<NodeArguments>();
  to_put->makes_share = true;
  Command putting = add_by_hand(
      registry, "put", "Store a file in a pool under a name; exit code 3 if only a part was stored", put, to_put);
  putting.add_option("name", to_put->name, "Name to store it under").type_name("NAME").required().check(has_letters);
  putting.add_option("file", to_put->file, "What to store; standard input if missing").type_name("FILE");
  putting.add_flag("--durable", to_put->durable, "With --share: end when the disk has it where a power cut leaves it");
  putting.footer("Example:\n  kvbm put --peer 127.0.0.1:7000 notes notes.txt");

  auto to_get = std::make_shared<NodeArguments>();
  Command getting = add_by_hand(registry, "get", "Read a file of a pool, every byte verified", get, to_get);
  getting.add_option("name", to_get->name, "Name that it was stored under")
      .type_name("NAME")
      .required()
      .check(has_letters);
  getting.add_option("-o,--output", to_get->file, "Where to write it; standard output if missing").type_name("FILE");
  getting.footer("Example:\n  kvbm get --peer 127.0.0.1:7000 notes -o notes.txt");

  auto to_ask = std::make_shared<NodeArguments>();
  Command asking =
      add_by_hand(registry, "exists", "Ask whether a pool has a file; exit code 1 if not, 3 if it has a part of it",
                  exists, to_ask);
  asking.add_option("name", to_ask->name, "Name that it was stored under")
      .type_name("NAME")
      .required()
      .check(has_letters);
  asking.footer("Example:\n  kvbm exists --peer 127.0.0.1:7000 notes");

  auto to_locate = std::make_shared<NodeArguments>();
  Command locating =
      add_by_hand(registry, "locate", "Show which nodes have how much of a file, and in which tier", locate, to_locate);
  locating.add_option("name", to_locate->name, "Name that it was stored under")
      .type_name("NAME")
      .required()
      .check(has_letters);
  locating.footer("Example:\n  kvbm locate --peer 127.0.0.1:7000,127.0.0.1:7001 notes");

  auto to_list = std::make_shared<NodeArguments>();
  add_by_hand(registry, "peers", "List the nodes at the given addresses: state, blocks, room", peers, to_list)
      .footer("Example:\n  kvbm peers --peer 127.0.0.1:7000,127.0.0.1:7001");
}

}  // namespace kvbm::command
