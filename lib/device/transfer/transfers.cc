#include "device/transfer/transfers.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "base/thread/versioned.h"
#include "codec/coded/leaf_codec.h"
#include "codec/leaf/frame.h"
#include "codec/record/record.h"
#include "device/driver/driver_thread.h"
#include "device/kernels/kernel_set.h"
#include "device/transfer/landmark.h"
#include "device/transfer/stream_point.h"
#include "device/transfer/transfer_lane.h"
#include "device/transfer/transfer_work.h"

namespace kvbm::device {

namespace {

// Most leaves of a part: 4 MiB of 2 KiB leaves; 128 KiB of jobs.
constexpr size_t kPartLeaves = 2048;
constexpr uint64_t kMostPartBytes = 1ULL << 30;
// At least two, so that one part is copied while the next is packed. More only hide how late the watcher wakes.
constexpr uint64_t kFewestPlaces = 2;
constexpr uint64_t kMostPlaces = 256;

// Shapes of planar leaves that kvbm_decode_planar knows (codec/README.md): others are of a later version.
constexpr uint8_t kMostPlanarLevels = 8;
constexpr uint8_t kPlanarRows = 16;
constexpr uint8_t kPlanarSigns = 17;

}  // namespace

// The CPU decodes the others: entropy stages of lossy modes, zstd and delta.
bool decodes_on(const Device& device, codec::LeafCodec codec, ConstBytes coded) noexcept {
  if (coded.size() < codec::kFrameBytes) return false;
  const auto shape = static_cast<codec::Mode>(load_le<uint8_t>(coded.data() + codec::kFrameShapeAt));
  if (codec == codec::LeafCodec::planar) {
    const auto number = static_cast<uint8_t>(shape);
    const bool known = number <= kMostPlanarLevels || number == kPlanarRows || number == kPlanarSigns;
    return known && device.kernels().has(Kernel::decode_planar);
  }
  return codec == codec::LeafCodec::quantized && shape >= codec::Mode::fp8_e4m3 && shape <= codec::Mode::int4 &&
         device.kernels().has(Kernel::dequantize);
}

Result<std::unique_ptr<Transfers>> Transfers::create(std::shared_ptr<Device> device, const TransferOptions& options,
                                                     Executor& executor) {
  const MemoryWait patient;
  if (!device->facts().maps_host) return Status(Code::unsupported, "the device cannot map host memory");
  TransferOptions bounded = options;
  bounded.multiprocessors = std::max(options.multiprocessors, 1U);
  bounded.plan.always_mapped = options.plan.always_mapped || device->facts().integrated;
  bounded.part_bytes = round_up(std::clamp(options.part_bytes, codec::kMaxLeafBytes, kMostPartBytes), kRunAlignment);
  std::unique_ptr<Transfers> transfers(new Transfers(std::move(device), bounded));
  if (Status s = transfers->start(executor); !s.ok()) return s;
  return transfers;
}

Transfers::Transfers(std::shared_ptr<Device> device, const TransferOptions& options)
    : device_(std::move(device)), options_(options), landmarks_(std::make_shared<LandmarkPool>(device_)) {}

Transfers::~Transfers() {
  if (gathers_ != nullptr) gathers_->close();
  if (scatters_ != nullptr) scatters_->close();
  (void)has_run(*device_->thread(), device_->watch().limit_ns());
  device_->drop_events();
}

Status Transfers::start(Executor& executor) {
  (void)landmarks_->grow();  // if it fails, the first load with layers reports the reason
  const uint64_t places = std::clamp(options_.staging_bytes / 2 / options_.part_bytes, kFewestPlaces, kMostPlaces);
  for (Direction direction : {Direction::gather, Direction::scatter}) {
    Result<std::shared_ptr<TransferLane>> lane =
        TransferLane::create(direction, device_, landmarks_, options_, places, kPartLeaves, executor);
    if (!lane.ok()) return lane.status();
    (direction == Direction::gather ? gathers_ : scatters_) = std::move(lane.value());
  }
  gathers_->set_peer(scatters_);
  scatters_->set_peer(gathers_);
  device_->watch().add([landmarks = std::weak_ptr(landmarks_), gathers = std::weak_ptr(gathers_),
                        scatters = std::weak_ptr(scatters_)](DriverWatch::Step step) {
    if (step == DriverWatch::Step::raise) {
      if (const auto pool = landmarks.lock()) pool->release_waiters();
      return;
    }
    for (const auto& one : {gathers.lock(), scatters.lock()}) {
      if (one != nullptr) one->give_up();
    }
  });
  return {};
}

void Transfers::know(std::shared_ptr<const PinnedHost> memory) {
  known_.replace([&](std::vector<std::shared_ptr<const PinnedHost>>& known) { known.push_back(memory); });
}

Result<std::shared_ptr<StreamPoint>> Transfers::point(CuStream stream) {
  return StreamPoint::take(device_, *landmarks_, stream);
}

std::shared_ptr<TransferWork> Transfers::work_of(TransferBatch batch, Direction direction) {
  const MemoryWait patient;
  return make_work(std::move(batch), direction, known_.get(), options_.plan, static_cast<uint32_t>(options_.part_bytes),
                   kPartLeaves);
}

void Transfers::gather(TransferBatch batch) { gathers_->submit(work_of(std::move(batch), Direction::gather)); }
void Transfers::scatter(TransferBatch batch) { scatters_->submit(work_of(std::move(batch), Direction::scatter)); }

std::shared_ptr<Landmark> Transfers::landmark(LandmarkKind kind) { return landmarks_->take(kind); }

Status Transfers::wait_on(const std::shared_ptr<Landmark>& landmark, uint64_t value, CuStream stream) {
  if (value >= uint64_t{1} << 62) return Status(Code::invalid_argument, "a landmark's value must be below 2^62");
  Result<CuContext> context = context_of(*device_, stream);
  if (!context.ok()) return context.status();
  if (landmarks_->reached(*landmark, value)) return {};
  const bool by_event = LandmarkPool::kind(*landmark) == LandmarkKind::issued;
  if (by_event) landmarks_->await_promise(*landmark, value);
  const DriverCall watched(&device_->watch());
  const ContextScope entered(device_->driver(), context.value());
  // Parts that the driver has already are waited for by their event, an order that the driver sees. Its scheduler
  // does not see a wait for a word, which is used only for parts that are not issued yet.
  Result<bool> issued = scatters_->wait_for_part(*landmark, value, stream, context.value());
  if (!issued.ok()) return issued.status();
  if (issued.value() || by_event) return {};  // with neither it has landed, or it will not come
  if (!landmarks_->waits(landmark, value, context.value(), stream)) return {};
  const CuResult result = device_->driver().cuStreamWaitValue64(
      stream, LandmarkPool::address(*landmark), LandmarkPool::number(*landmark, value), kCuWaitValueGeq);
  return check_on_stream(*device_, result, context.value(), "cuStreamWaitValue64");
}

void Transfers::raise(Landmark& landmark, uint64_t value) {
  landmarks_->raise(landmark, value);
  scatters_->pump();  // a batch may have been held until this was promised
}

TransferStats Transfers::gathers() const { return gathers_->stats(); }
TransferStats Transfers::scatters() const { return scatters_->stats(); }

}  // namespace kvbm::device
