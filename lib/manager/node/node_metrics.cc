#include "manager/node/node_metrics.h"

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/telemetry/metrics.h"
#include "cluster/coding/link_coder.h"
#include "cluster/mesh/mesh_counts.h"
#include "cluster/mesh/session_host.h"
#include "cluster/tier/peer_tier_context.h"
#include "manager/node/node.h"

namespace kvbm::manager {

namespace {

// Returns "KVBM_ERR_OWNER_GONE" as a label: "owner_gone".
std::string reason_of(Code code) {
  constexpr std::string_view kBefore = "KVBM_ERR_";
  std::string_view name = code_name(code);
  if (name.starts_with(kBefore)) name.remove_prefix(kBefore.size());
  std::string out;
  for (const char c : name) out.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return out;
}

void add_coding(MetricsRegistry& registry, const char* direction, const cluster::CodingCounts::Direction& now) {
  const MetricsRegistry::Labels labels = {{"direction", direction}};
  registry.counter("kvbm_node_codec_records_total", "Records that went over links coded or sealed.", labels)
      .add(now.coded);
  registry.counter("kvbm_node_codec_plain_records_total", "Records that went over links plain.", labels).add(now.plain);
  registry.counter("kvbm_node_codec_raw_bytes_total", "Payloads of coded records, before coding.", labels)
      .add(now.raw_bytes);
  registry.counter("kvbm_node_codec_coded_bytes_total", "Payloads of coded records, as they went.", labels)
      .add(now.coded_bytes);
  registry.counter("kvbm_node_codec_ns_total", "Time of coding (given) and decoding (taken), all threads.", labels)
      .add(now.ns);
  registry.counter("kvbm_node_codec_refused_total", "Records that could not be opened or used.", labels)
      .add(now.refused);
}

// Adds the results of `auto`; a way that was never measured has no speed.
void add_choices(MetricsRegistry& registry, const std::vector<cluster::LinkCoder::Choice>& choices) {
  for (const cluster::LinkCoder::Choice& one : choices) {
    MetricsRegistry::Labels labels = {{"node", cluster::short_text(one.node)},
                                      {"of", one.use == cluster::LinkCoder::Use::records ? "records" : "slices"},
                                      {"size", one.size}};
    registry.gauge("kvbm_node_codec_chosen", "1: requests of that size are asked for coded now, 0: plain.", labels)
        .set(one.state.way == copy::Way::coded ? 1 : 0);
    registry.counter("kvbm_node_codec_tries_total", "Runs of requests that went the other way, to measure it.", labels)
        .add(one.state.probes);
    labels.push_back({"way", ""});
    const std::pair<const char*, double> ways[] = {{"plain", one.state.plain_ns_per_byte},
                                                   {"coded", one.state.coded_ns_per_byte}};
    for (const auto& [way, ns_per_byte] : ways) {
      if (ns_per_byte <= 0) continue;
      labels.back().value = way;
      registry.gauge("kvbm_node_codec_bytes_per_second", "Plain bytes a second that such requests brought.", labels)
          .set(static_cast<int64_t>(1e9 / ns_per_byte));
    }
  }
}

// Adds one side of sessions, with its ReceiverStats or SenderStats. Of its slices, `shared` ones stayed in device
// memory that both processes map. `direct` ones were read from, or written to, device memory by the transport.
template <class Stats>
void add_side(MetricsRegistry& registry, const char* side, uint64_t open, uint64_t done, const Stats& now) {
  registry.gauge("kvbm_session_open", "Sessions (decode) and offers (prefill) that have not ended.", {{"side", side}})
      .set(static_cast<int64_t>(open));
  const std::pair<const char*, uint64_t> ends[] = {{"done", done}, {"failed", now.failed}};
  for (const auto& [result, n] : ends) {
    registry
        .counter("kvbm_session_ended_total", "Sessions and offers that ended; failed: aborted ones too.",
                 {{"side", side}, {"result", result}})
        .add(n);
  }
  const auto add_way = [&](const char* way, uint64_t slices, uint64_t bytes) {
    const MetricsRegistry::Labels labels = {{"side", side}, {"way", way}};
    registry.counter("kvbm_session_slices_total", "Pieces of requests that were sent or are in place.", labels)
        .add(slices);
    registry.counter("kvbm_session_bytes_total", "Their bytes.", labels).add(bytes);
  };
  add_way("link", now.slices - now.shared_slices - now.direct_slices, now.bytes - now.shared_bytes - now.direct_bytes);
  add_way("device", now.shared_slices, now.shared_bytes);
  add_way("rdma", now.direct_slices, now.direct_bytes);
}

void add_sessions(MetricsRegistry& registry, const cluster::SessionCounts& now) {
  const cluster::session::ReceiverStats& in = now.received;
  const cluster::session::SenderStats& out = now.sent;
  add_side(registry, "decode", now.sessions, in.finished, in);
  add_side(registry, "prefill", now.offers, out.ended - out.failed, out);
  registry.counter("kvbm_session_damaged_slices_total", "Pieces that came with a wrong hash, and were pulled again.")
      .add(in.damaged_slices);
  const char* const maps = "Prefill ranks whose device memory was mapped, or could not be.";
  registry.counter("kvbm_session_maps_total", maps, {{"result", "mapped"}}).add(in.maps);
  registry.counter("kvbm_session_maps_total", maps, {{"result", "refused"}}).add(in.refused_maps);
  registry
      .counter("kvbm_session_rdma_failed_total",
               "Connections and devices whose transfers of device memory failed, and go through host memory.")
      .add(now.direct_failures);
  const char* const slots =
      "Slots that pieces are in now: of host memory, of shared device memory, of device memory that the transport "
      "reaches.";
  registry.gauge("kvbm_session_slots", slots, {{"memory", "host"}}).set(static_cast<int64_t>(now.staging_taken));
  registry.gauge("kvbm_session_slots", slots, {{"memory", "device"}}).set(static_cast<int64_t>(now.shared_taken));
  registry.gauge("kvbm_session_slots", slots, {{"memory", "rdma"}}).set(static_cast<int64_t>(now.direct_taken));
}

}  // namespace

std::string node_metrics_text(Node& node) {
  const cluster::MeshCounts now = node.counts();
  MetricsRegistry registry;
  registry.counter("kvbm_node_connections_total", "Connections whose peer proved that it is of the pool.")
      .add(now.ready);
  registry.counter("kvbm_node_violations_total", "Messages of peers that broke the protocol or were changed.")
      .add(now.violations);
  registry.counter("kvbm_node_damaged_total", "Records of peers that were not what they have to be.").add(now.damaged);
  registry.counter("kvbm_node_epochs_refused_total", "Invalidations of peers that were not plausible, or had no room.")
      .add(now.epochs_refused);
  registry
      .counter("kvbm_node_epochs_put_off_total",
               "Invalidations of peers that came faster than they could be written down.")
      .add(now.epochs_put_off);
  registry
      .counter("kvbm_node_leases_short_total",
               "Records that were not held for a peer: leases had their share of the host.")
      .add(now.leases_short);
  const cluster::OfferCounts& offers = node.offers();
  registry.counter("kvbm_node_offers_refused_total", "Records that a node was offered and did not take.")
      .add(offers.refused.load(std::memory_order_relaxed));
  registry.counter("kvbm_node_offers_elsewhere_total", "Records that another node took then.")
      .add(offers.elsewhere.load(std::memory_order_relaxed));
  for (const auto& [code, n] : now.ended) {
    registry
        .counter("kvbm_node_connections_ended_total", "Connections, and tries to have one, that ended.",
                 {{"reason", reason_of(code)}})
        .add(n);
  }
  add_sessions(registry, node.session_counts());
  if (const cluster::LinkCoder* coder = node.coder(); coder != nullptr) {
    const cluster::CodingCounts coding = coder->counts();
    add_coding(registry, "given", coding.given);
    add_coding(registry, "taken", coding.taken);
    registry.counter("kvbm_node_codec_declined_total", "Records given plain for want of memory to code them in.")
        .add(coding.declined);
    registry.counter("kvbm_node_codec_useless_total", "Records given plain because coding made them no smaller.")
        .add(coding.useless);
    add_choices(registry, coder->choices());
  }
  return registry.text();
}

}  // namespace kvbm::manager
