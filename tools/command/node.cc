#include "command/node.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "command/registry.h"
#include "node/member.h"
#include "terminal/interrupt.h"
#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  node::MemberOptions member;
  std::string host = "256MiB";
  std::string disk;
  std::string block_bytes = "1MiB";
  std::string address_file;
  std::string name;
  std::string file;
  double timeout = 5;
  [[nodiscard]] uint64_t timeout_ns() const { return static_cast<uint64_t>(timeout * 1e9); }
};

int take_sizes(Arguments& arguments) {
  const std::pair<const std::string*, uint64_t*> sizes[] = {{&arguments.host, &arguments.member.host_bytes},
                                                            {&arguments.disk, &arguments.member.disk_bytes},
                                                            {&arguments.block_bytes, &arguments.member.block_bytes}};
  for (const auto& [text, out] : sizes) {
    if (text->empty()) continue;
    const auto size = terminal::parse_size(*text);
    if (!size.ok()) return fail(size.status());
    *out = size.value();
  }
  if (!arguments.member.share.empty()) return kDone;
  if ((arguments.member.disk_bytes == 0) == arguments.member.disk_path.empty()) return kDone;
  return fail(kBadInput, "--disk and --disk-path go together", "--disk 10GiB --disk-path /mnt/nvme/kvbm");
}

// ---- kvbm node ----

Json to_json(const kvbm_node_row_t& row) {
  std::string id;
  char two[3];
  for (const uint8_t byte : row.node) {
    std::snprintf(two, sizeof two, "%02x", byte);
    id += two;
  }
  return {{"node", id},
          {"address", row.address},
          {"state", row.state},
          {"capacity_bytes", row.capacity_bytes},
          {"used_bytes", row.used_bytes},
          {"records", row.records},
          {"fetched_bytes", row.fetched_bytes},
          {"served_bytes", row.served_bytes}};
}

int serve(Arguments& arguments, const Output& output) {
  const int sizes = take_sizes(arguments);
  if (sizes != kDone) return sizes;
  arguments.member.log = !output.json;
  const terminal::Interrupt interrupt;
  auto member = node::Member::open(arguments.member);
  if (!member.ok()) return fail(member.status());
  const std::string address = member.value()->address();
  if (output.json) {
    std::cout << Json{{"address", address}, {"pool", arguments.member.pool}}.dump() << std::endl;
  } else {
    std::cout << "kvbm node: pool " << arguments.member.pool << (address.empty() ? ", not listening" : ", listening on " + address) << "; "
              << terminal::format_binary_size(static_cast<double>(arguments.member.host_bytes)) << " of host memory"
              << (arguments.member.disk_path.empty() ? "" : ", disk in " + arguments.member.disk_path)
              << (arguments.member.share.empty()
                      ? ""
                      : ", " + arguments.member.share + " shared as " + member.value()->share_role())
              << ". Ctrl-C ends it." << std::endl;
  }
  if (!arguments.address_file.empty()) {
    // Whole or not at all: who waits for the file reads it as soon as it is there.
    const std::string partial = arguments.address_file + ".partial";
    std::ofstream(partial) << address << "\n";
    if (std::rename(partial.c_str(), arguments.address_file.c_str()) != 0) {
      return fail(kFailed, "the address could not be written to " + arguments.address_file);
    }
  }
  while (!terminal::Interrupt::asked().load()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const kvbm_manager_stats_t stats = member.value()->stats();
  uint64_t served = 0;
  for (const kvbm_node_row_t& row : member.value()->nodes()) served += row.served_bytes;
  member.value().reset();
  if (output.json) {
    std::cout << Json{{"ended", true}, {"blocks", stats.tiers[0].blocks}, {"served_bytes", served}}.dump() << std::endl;
  } else {
    std::cout << "kvbm node: ended with " << stats.tiers[0].blocks << " blocks in host memory" << std::endl;
  }
  return kDone;
}

// ---- By hand ----

// A member that only dials; null, with the exit code in `code`, where nobody answers.
std::unique_ptr<node::Member> join(Arguments& arguments, int& code) {
  code = take_sizes(arguments);
  if (code != kDone) return nullptr;
  auto member = node::Member::open(arguments.member);
  if (!member.ok()) {
    code = fail(member.status());
    return nullptr;
  }
  if (!arguments.member.share.empty()) return std::move(member).value();
  if (arguments.member.peers.empty()) {
    code = fail(kBadInput, "no node is named", "--peer 127.0.0.1:7000, or --share DIR");
    return nullptr;
  }
  const Status ready = member.value()->wait_for_peers(arguments.timeout_ns());
  if (!ready.ok()) {
    code = fail(ready, "start one with `kvbm node --listen 127.0.0.1:7000`, or give its address with --peer");
    return nullptr;
  }
  return std::move(member).value();
}

int put(Arguments& arguments, const Output& output) {
  std::ostringstream text;
  if (arguments.file.empty() || arguments.file == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(arguments.file, std::ios::binary);
    if (file) text << file.rdbuf();
    if (!file) return fail(kBadInput, "cannot read " + arguments.file);
  }
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  const std::string bytes = text.str();
  const Status stored = member->put(arguments.name, bytes);
  if (!stored.ok()) return fail(stored);
  if (output.json) {
    std::cout << Json{{"name", arguments.name}, {"bytes", bytes.size()}}.dump() << std::endl;
  } else {
    std::cerr << "stored " << arguments.name << ", " << terminal::format_size(static_cast<double>(bytes.size()))
              << "\n";
  }
  return kDone;
}

int get(Arguments& arguments, const Output& output) {
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
    std::cout << Json{{"name", arguments.name}, {"bytes", bytes.value().size()}, {"file", arguments.file}}.dump()
              << std::endl;
  }
  return kDone;
}

int exists(Arguments& arguments, const Output& output) {
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  const auto found = member->exists(arguments.name, arguments.timeout_ns());
  if (!found.ok()) return fail(found.status());
  if (output.json) {
    std::cout << Json{{"name", arguments.name}, {"exists", found.value()}}.dump() << std::endl;
  } else {
    std::cout << (found.value() ? "yes" : "no") << std::endl;
  }
  return found.value() ? kDone : kFailed;
}

int peers(Arguments& arguments, const Output& output) {
  int code = kDone;
  const auto member = join(arguments, code);
  if (member == nullptr) return code;
  if (output.json) {
    Json rows = Json::array();
    for (const kvbm_node_row_t& row : member->nodes()) rows.push_back(to_json(row));
    std::cout << rows.dump(2) << std::endl;
    return kDone;
  }
  terminal::Table table({{"address"},
                         {"state"},
                         {"blocks", terminal::Align::right},
                         {"used", terminal::Align::right},
                         {"of", terminal::Align::right}});
  for (const kvbm_node_row_t& row : member->nodes()) {
    table.add_row({row.address, row.state, terminal::format_count(row.records),
                   terminal::format_binary_size(static_cast<double>(row.used_bytes)),
                   terminal::format_binary_size(static_cast<double>(row.capacity_bytes))});
  }
  std::cout << table.render();
  return kDone;
}

// ---- Options ----

void add_pool(CLI::App& app, Arguments& arguments) {
  app.add_option("--key-file", arguments.member.key_file, "File with the pool's key; needed beyond this machine")
      ->type_name("FILE");
  app.add_option("--pool", arguments.member.pool, "Name of the pool")->type_name("NAME")->capture_default_str();
  app.add_option("--host", arguments.host, "Host memory for blocks")->type_name("SIZE")->capture_default_str();
  app.add_option("--block-bytes", arguments.block_bytes, "Largest block; the same on every node")
      ->type_name("SIZE")
      ->capture_default_str();
}

void add_share(CLI::App& app, Arguments& arguments) {
  app.add_option("--share", arguments.member.share, "Share the tier set in this directory with other processes of this host")
      ->type_name("DIR");
}

void add_peer(CLI::App& app, Arguments& arguments) {
  app.add_option("--peer", arguments.member.peers, "Address of a node, or several with commas")
      ->type_name("HOST:PORT");
  add_share(app, arguments);
  app.add_option("--timeout", arguments.timeout, "Seconds to wait for a node")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--disk", arguments.disk, "With --share: size of the disk in that directory")->type_name("SIZE");
  add_pool(app, arguments);
}

using Handler = int (*)(Arguments&, const Output&);

CLI::App& add_by_hand(Registry& registry, const char* name, const char* what, Handler handler,
                      const std::shared_ptr<Arguments>& arguments) {
  CLI::App& app =
      registry.add(name, what, [arguments, handler](const Output& output) { return handler(*arguments, output); });
  add_peer(app, *arguments);
  return app;
}

}  // namespace

void add_node(Registry& registry) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = registry.add("node", "Offer host memory and a disk to a pool of nodes, until Ctrl-C",
                               [arguments](const Output& output) { return serve(*arguments, output); });
  arguments->member.listen = "127.0.0.1:7000";
  app.add_option("--listen", arguments->member.listen, "Address to listen on; port 0 takes a free one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--peers", arguments->member.peers, "Addresses of other nodes, with commas")
      ->type_name("HOST:PORT,...");
  app.add_option("--name", arguments->member.name, "Name of this node, the same after a restart")->type_name("NAME");
  app.add_option("--disk", arguments->disk, "Size of a disk tier")->type_name("SIZE");
  app.add_option("--disk-path", arguments->member.disk_path, "Its directory")->type_name("DIR");
  app.add_option("--address-file", arguments->address_file, "Write the address here once it listens")
      ->type_name("FILE");
  add_share(app, *arguments);
  add_pool(app, *arguments);
  app.footer(
      "Examples:\n  kvbm node --listen 127.0.0.1:7000 --host 1GiB\n  kvbm put --peer 127.0.0.1:7000 notes notes.txt\n"
      "  kvbm get --peer 127.0.0.1:7000 notes\n"
      "  kvbm node --listen '' --share /dev/shm/kv --disk 1GiB\n  kvbm put --share /dev/shm/kv --disk 1GiB notes notes.txt");

  auto to_put = std::make_shared<Arguments>();
  CLI::App& putting = add_by_hand(registry, "put", "Store a file in a pool under a name", put, to_put);
  putting.add_option("name", to_put->name, "Name to store it under")->type_name("NAME")->required();
  putting.add_option("file", to_put->file, "What to store; standard input if missing")->type_name("FILE");
  putting.footer("Example:\n  kvbm put --peer 127.0.0.1:7000 notes notes.txt");

  auto to_get = std::make_shared<Arguments>();
  CLI::App& getting = add_by_hand(registry, "get", "Read a file of a pool, every byte verified", get, to_get);
  getting.add_option("name", to_get->name, "Name that it was stored under")->type_name("NAME")->required();
  getting.add_option("-o,--output", to_get->file, "Where to write it; standard output if missing")->type_name("FILE");
  getting.footer("Example:\n  kvbm get --peer 127.0.0.1:7000 notes -o notes.txt");

  auto to_ask = std::make_shared<Arguments>();
  CLI::App& asking =
      add_by_hand(registry, "exists", "Ask whether a pool has a file; exit code 1 if not", exists, to_ask);
  asking.add_option("name", to_ask->name, "Name that it was stored under")->type_name("NAME")->required();
  asking.footer("Example:\n  kvbm exists --peer 127.0.0.1:7000 notes");

  auto to_list = std::make_shared<Arguments>();
  add_by_hand(registry, "peers", "List the nodes at the given addresses: state, blocks, room", peers, to_list)
      .footer("Example:\n  kvbm peers --peer 127.0.0.1:7000,127.0.0.1:7001");
}

}  // namespace kvbm::command
