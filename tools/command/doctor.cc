#include "command/doctor.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "doctor/finding.h"
#include "terminal/json_text.h"
#include "terminal/table.h"

namespace kvbm::command {

namespace {

constexpr size_t kWidth = 100;  // advice is in sentences, which continue in further lines

int run(const std::string& dir, const std::string& driver, const std::string& cufile, const Output& output) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
    return fail(kBadInput, "--dir " + dir + " is not a directory", "give the directory that a disk tier would use");
  }
  doctor::Findings findings;
  const MachineLimits limits = read_machine_limits();
  doctor::probe_cpu(limits, findings);
  doctor::probe_memory(limits, findings);
  doctor::probe_storage(dir, findings);
  doctor::probe_devices(findings);
  doctor::probe_gpu(driver, cufile, findings);
  doctor::probe_same_host(findings);
  if (output.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& f : findings) {
      list.push_back({{"area", f.area},
                      {"name", f.name},
                      {"state", doctor::state_name(f.state)},
                      {"value", f.value},
                      {"advice", f.advice}});
    }
    std::printf("%s\n", terminal::json_text(list).c_str());
    return kDone;
  }
  terminal::Table table({{"area"}, {"what"}, {"state"}, {"found"}, {"what follows"}});
  for (const auto& f : findings) table.add_row({f.area, f.name, doctor::state_name(f.state), f.value, f.advice});
  std::fputs(table.render(kWidth).c_str(), stdout);
  return kDone;
}

}  // namespace

void add_doctor(Registry& registry) {
  auto dir = std::make_shared<std::string>(".");
  auto driver = std::make_shared<std::string>();
  auto cufile = std::make_shared<std::string>();
  Command app =
      registry.add("doctor", "What this machine offers, and what follows from what it lacks",
                   [dir, driver, cufile](const Output& output) { return run(*dir, *driver, *cufile, output); });
  app.add_option("--dir", *dir, "Directory that a disk tier would use").type_name("DIR");
  app.add_option("--cuda-library", *driver, "CUDA driver to look at, as the option device.library; libcuda.so.1")
      .type_name("FILE")
      .environment("KVBM_DEVICE_LIBRARY");
  app.add_option("--cufile-library", *cufile, "cuFile to look at, as the option device.storage_library; libcufile.so.0")
      .type_name("FILE")
      .environment("KVBM_DEVICE_STORAGE_LIBRARY");
  app.footer("Example:\n  kvbm doctor --dir /mnt/nvme --json");
}

}  // namespace kvbm::command
