#include "manager/manager.h"

#include <algorithm>
#include <utility>

#include "manager/common/seal_keys.h"
#include "manager/device/device_caches.h"
#include "manager/lower/coding_terms.h"

namespace kvbm::manager {

Manager::Manager(const Environment& environment, Options options)
    : env_(environment),
      options_(std::move(options)),
      events_(families_),
      coding_terms_(std::make_shared<CodingTerms>()),
      host_(env_, options_, families_, events_, counters_, lifetime_),
      lower_(host_, coding_terms_, [this](const NamespaceEpoch& row) { namespaces_.epoch_raised(row); }),
      stack_(host_, lower_),
      namespaces_(stack_, coding_terms_) {}

Manager::~Manager() = default;

Result<std::shared_ptr<Manager>> Manager::create(const Environment& environment, Options options) {
  if (options.tiers.size() > kMaxTiersBelow) {
    return Status(Code::bad_config, "too many tiers", "at most 6 below the host tier");
  }
  if (Status keys = load_seal_keys(options); !keys.ok()) return keys;
  auto manager = std::shared_ptr<Manager>(new Manager(environment, std::move(options)));
  manager->lifetime_.begin(manager);
  if (Status opened = manager->open(); !opened.ok()) return opened;
  return manager;
}

Status Manager::open() {
  if (Status opened = host_.open(); !opened.ok()) return opened;
  DeviceOptions device = options_.device;
  device.has_disk = std::any_of(options_.tiers.begin(), options_.tiers.end(),
                                [](const TierOptions& tier) { return !tier.path.empty(); });
  tier::HostArena& arena = host_.arena();
  devices_ =
      std::make_unique<DeviceCaches>(env_, device, arena.payloads(), arena.payload(0).size(), host_.shared_arena());
  if (Status there = devices_->require(); !there.ok()) return there;
  pins_ = std::make_unique<Pins>(host_);
  if (Status opened = lower_.open(); !opened.ok()) return opened;
  namespaces_.adopt_epochs();
  host_.recover();
  namespaces_.watch_families();
  return {};
}

void Manager::shutdown(UniqueFunction<void()> done) {
  host_.close();
  lower_.shutdown(std::move(done));
}

}  // namespace kvbm::manager
