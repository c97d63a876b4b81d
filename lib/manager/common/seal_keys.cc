#include "manager/common/seal_keys.h"

#include <utility>

#include "manager/common/key_file.h"

namespace kvbm::manager {

namespace {

Result<std::shared_ptr<const codec::KeyRing>> read_ring(const std::string& path) {
  const auto keys = KeyText::read("seal.key_file cannot be used", path);
  if (!keys.ok()) return keys.status();
  auto ring = codec::KeyRing::parse(keys.value().text());
  if (!ring.ok()) return Status(Code::bad_config, "seal.key_file holds no keys", path + ": " + ring.status().message());
  return ring;
}

}  // namespace

Status load_seal_keys(Options& options) {
  if (options.seal_keys != nullptr || options.seal_key_file.empty()) return {};
  auto ring = read_ring(options.seal_key_file);
  if (!ring.ok()) return ring.status();
  options.seal_keys = std::move(ring).value();
  return {};
}

}  // namespace kvbm::manager
