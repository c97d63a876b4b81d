// Requests to both sides of sessions, their events, and their figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "cluster/session/block_map.h"
#include "cluster/session/facts.h"
#include "cluster/session/link.h"

namespace kvbm::cluster::session {

// ---- The prefill side (sender.h) ----
struct OfferRequest {
  RequestId request;
  Facts facts;
  std::vector<LocalPart> parts;
  uint64_t deadline_ns = kNever;
};

struct SenderEvent {
  RequestId request;
  // ok: every decode rank has all it wants. Otherwise the first error.
  Status status;
  uint32_t sinks_done = 0;  // decode ranks that are done
  uint32_t sinks = 0;       // all decode ranks; 0: the source is not open yet
  uint64_t bytes = 0;       // sent bytes
};

struct SenderStats {
  uint64_t slices = 0, straight_slices = 0, bytes = 0;
  uint64_t coded_slices = 0, coded_bytes = 0;    // coded or sealed ones, and their bytes as sent
  uint64_t shared_slices = 0, shared_bytes = 0;  // part of slices: those that stayed in shared memory
  uint64_t direct_slices = 0, direct_bytes = 0;  // and those that the transport has read from a device, to the end
  uint64_t ended = 0, failed = 0;                // offers; failed ones are a part of these
  uint64_t refused_opens = 0, protocol_errors = 0, late_messages = 0;
};

// ---- The decode side (receiver.h) ----
using SessionId = uint64_t;

struct SourceRank {
  PeerId peer = 0;
  uint16_t rank = 0;
  std::string name;  // of its node, for users
};

struct OpenRequest {
  RequestId request;
  Facts facts;
  std::vector<LocalPart> targets;
  std::vector<SourceRank> sources;  // every prefill rank of the request
  uint16_t sink_rank = 0;           // this decode rank, of sink_count
  uint16_t sink_count = 1;
  uint64_t deadline_ns = kNever;
  // Limit of staging that this session may use at once; at least one slot is always allowed.
  uint64_t budget_bytes = 64ULL << 20;
};

struct ReceiverEvent {
  enum class Kind : uint8_t { layer_ready, finished };
  Kind kind = Kind::finished;
  SessionId session = 0;
  RequestId request;
  // Set for layer_ready.
  Component component = 0;
  uint16_t layer = 0;  // of the whole model
  // Set for finished. With ok all layers were reported before.
  Status status;
};

struct ReceiverStats {
  uint64_t sessions = 0, finished = 0, failed = 0;
  uint64_t slices = 0, bytes = 0, damaged_slices = 0;
  uint64_t coded_slices = 0, coded_bytes = 0;    // slices that arrived coded or sealed, and their bytes on arrival
  uint64_t shared_slices = 0, shared_bytes = 0;  // part of slices: those that were read in shared memory
  uint64_t direct_slices = 0, direct_bytes = 0;  // and those that were written into device memory
  uint64_t maps = 0, refused_maps = 0;           // of prefill ranks' shared memory
  uint64_t late_slices = 0, late_messages = 0, protocol_errors = 0;
};

}  // namespace kvbm::cluster::session
