#include "benchmark/session_pair.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "benchmark/node_pair.h"
#include "benchmark/store.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kWaitNs = 10'000'000'000;
// The model, in bf16.
constexpr uint32_t kLayers = 8, kHeads = 8, kHeadSize = 128;
constexpr uint64_t kTokens = 1024;
constexpr uint64_t kLayerBytes = SessionPair::kLayerBytes;
static_assert(kLayerBytes == 2 * kTokens * kHeads * kHeadSize * 2 && kLayers * kLayerBytes == SessionPair::kBytes);

session::SideOptions side_options(const std::string& codec) {
  session::SideOptions out;
  out.layers = kLayers;
  out.heads = kHeads;
  out.head_size = kHeadSize;
  out.tokens = kTokens;
  out.node.local = "off";
  out.node.codec = codec;
  return out;
}

// Sets the layer's number, with which its numbers begin.
void number(std::vector<std::byte>& numbers, uint64_t layer) { std::memcpy(numbers.data(), &layer, sizeof layer); }

kvbm_request_id_t request_of(uint32_t number) {
  kvbm_request_id_t out{};
  std::memcpy(out.bytes, &number, sizeof number);
  return out;
}

// Runs in the child: offers and publishes all layers at once, writes the address, and then waits.
Status serve(const std::string& codec, uint32_t requests, std::vector<std::byte> numbers, int out) {
  session::SideOptions options = side_options(codec);
  options.node.listen = "127.0.0.1:0";
  auto side = session::Side::open(options);
  if (!side.ok()) return side.status();
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    number(numbers, layer);
    side.value()->write_layer(layer, numbers.data());
  }
  const session::Side::Rank& rank = side.value()->ranks().front();
  for (uint32_t i = 0; i < requests; ++i) {
    const kvbm_request_id_t request = request_of(i);
    kvbm_offer_options_t offering;
    kvbm_offer_options_init(&offering, sizeof offering);
    offering.timeout_ns = KVBM_FOREVER;
    kvbm_offer_t* offer = nullptr;  // as long as the process
    kvbm_error_t error{};
    kvbm_status_t status = kvbm_offer_open(rank.cache, &request, rank.blocks.data(), rank.blocks.size(), &offering,
                                           nullptr, 0, &offer, &error);
    if (status == KVBM_OK) status = kvbm_offer_publish_all(offer, &error);
    if (status != KVBM_OK) return failed("a request could not be offered", status, &error);
  }
  const std::string line = side.value()->member().address() + "\n";
  if (::write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return {Code::io_error, "the pipe is gone"};
  }
  for (;;) ::pause();
}

}  // namespace

Result<std::unique_ptr<SessionPair>> SessionPair::open(const std::string& codec, uint32_t requests,
                                                       std::vector<std::byte> numbers) {
  if (numbers.size() != kLayerBytes) return Status(Code::internal, "numbers of another size than a layer");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status(Code::io_error, "no pipe could be made");
  auto child = Child::start([&] { (void)serve(codec, requests, numbers, ends[1]).ok(); });
  ::close(ends[1]);
  char text[128] = {};
  const ssize_t n = child.ok() ? ::read(ends[0], text, sizeof text - 1) : 0;
  ::close(ends[0]);
  if (!child.ok()) return child.status();
  if (n <= 1) return Status(Code::io_error, "the prefill side did not start");
  auto made = std::unique_ptr<SessionPair>(new SessionPair());
  made->prefill_ = std::move(child).value();
  made->address_ = std::string(text, static_cast<size_t>(n) - 1);
  made->numbers_ = std::move(numbers);
  session::SideOptions options = side_options(codec);
  options.node.peers = made->address_;
  auto side = session::Side::open(options);
  if (!side.ok()) return side.status();
  made->decode_ = std::move(side).value();
  if (Status s = made->decode_->member().wait_for_peers(kWaitNs); !s.ok()) return s;
  return made;
}

void SessionPair::forget() {
  for (auto& memory : decode_->ranks().front().memory) std::memset(memory.data(), 0xFF, memory.size());
}

Status SessionPair::receive() {
  const session::Side::Rank& rank = decode_->ranks().front();
  const kvbm_request_id_t request = request_of(received_++);
  const kvbm_source_t source{address_.c_str(), 0, 0};
  kvbm_session_options_t options;
  kvbm_session_options_init(&options, sizeof options);
  options.no_layers = 1;
  kvbm_session_t* session = nullptr;
  kvbm_error_t error{};
  kvbm_status_t status = kvbm_session_open(rank.cache, &request, rank.blocks.data(), rank.blocks.size(), &source, 1,
                                           &options, nullptr, 0, &session, &error);
  if (status == KVBM_OK) status = kvbm_session_wait(session, KVBM_FOREVER, &error);
  kvbm_session_release(session);
  return status == KVBM_OK ? Status{} : failed("a request did not come", status, &error);
}

Status SessionPair::check() const {
  std::vector<std::byte> wanted = numbers_;
  std::vector<std::byte> layer_bytes(kLayerBytes);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    number(wanted, layer);
    if (!decode_->read_layer(layer, layer_bytes.data()) || layer_bytes != wanted)
      return {Code::damaged, "a layer has other bytes than were offered"};
  }
  return {};
}

}  // namespace kvbm::benchmark
