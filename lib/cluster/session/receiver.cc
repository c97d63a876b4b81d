#include "cluster/session/receiver.h"

#include <algorithm>
#include <cstring>

namespace kvbm::cluster::session {
namespace {

std::string named(const SourceRank& source) {
  return "prefill rank " + std::to_string(source.rank) + " at \"" + source.name + "\"";
}

// Returns the error, then its rank, then the details: each once.
Status at_rank(const SourceRank& source, const Status& status) {
  return {status.code(), status.what(), named(source) + status.message().substr(std::strlen(status.what()))};
}

}  // namespace

Receiver::Receiver(const Options& options, Staging staging, Link& link)
    : options_(options),
      staging_(std::move(staging)),
      link_(link),
      outbox_(link, options.peer_outbox_bytes),
      names_(options.transfer_base),
      next_session_(uint64_t{options.transfer_base} << 48 | 1),
      transfers_(staging_.slots()),
      direct_({staging_.slots(), round_up(staging_.slice_bytes(), Staging::kSharedAlignment), true,
               options.least_direct_bytes, options.note},
              link),
      hashes_(max_leaves(staging_.slice_bytes())) {}

Receiver::Session* Receiver::find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

Status Receiver::check_open(const OpenRequest& request, uint64_t now_ns) const {
  const auto refuse = [](const std::string& why) { return Status(Code::invalid_argument, "session refused", why); };
  if (request.deadline_ns <= now_ns) return Status(Code::deadline, "the deadline of the session has passed");
  if (auto s = check_facts(request.facts); !s.ok()) return s;
  if (auto s = check_local(request.facts, request.targets, Use::target); !s.ok()) return s;
  if (request.sources.empty() || request.sources.size() > 4096) return refuse("1 to 4096 prefill ranks");
  if (request.sink_rank >= request.sink_count) {
    return refuse("decode rank " + std::to_string(request.sink_rank) + " of " + std::to_string(request.sink_count));
  }
  for (size_t i = 0; i < request.sources.size(); ++i) {
    const SourceRank& a = request.sources[i];
    if (a.peer == 0) return refuse(named(a) + " has no connection");
    for (size_t j = 0; j < i; ++j) {
      if (request.sources[j].peer == a.peer && request.sources[j].rank == a.rank) return refuse(named(a) + " twice");
    }
    uint32_t held = 0;
    for (const Transfer& t : transfers_) {
      if (t.name != 0 && !t.moving && t.peer == a.peer && sessions_.count(t.session) == 0) ++held;
    }
    if (held >= options_.max_quarantined_per_peer) {
      return Status(Code::no_room, "a peer holds too much staging with transfers that do not end; reconnect it",
                    named(a) + ": " + std::to_string(held) + " slots");
    }
  }
  if (sessions_.size() >= options_.max_sessions) {
    return Status(Code::at_limit, "too many sessions are open", std::to_string(sessions_.size()));
  }
  return {};
}

Result<SessionId> Receiver::open(OpenRequest request, uint64_t now_ns) {
  if (auto s = check_open(request, now_ns); !s.ok()) return s;
  const SessionId id = next_session_++;
  Session& session = sessions_[id];
  session.id = id;
  session.request = std::move(request);
  Open message;
  message.request = session.request.request;
  message.remaining_ns = session.request.deadline_ns == kNever ? kNever : session.request.deadline_ns - now_ns;
  message.sink_count = session.request.sink_count;
  message.slice_bytes = staging_.slice_bytes();
  message.facts = session.request.facts;
  bool shares = false, on_device = false;
  for (const LocalPart& p : session.request.targets) {
    message.parts.push_back(p.part);
    on_device = on_device || p.map.mover != nullptr;
    shares = shares || (p.map.mover != nullptr && !p.map.mover->place().empty());
  }
  for (const SourceRank& rank : session.request.sources) {
    session.sources.emplace_back();
    session.sources.back().rank = rank;
  }
  for (Source& source : session.sources) {
    const bool known = link_.takes_ways(source.rank.peer);
    const bool coded = known && options_.coder != nullptr;
    const bool direct = known && on_device && link_.takes_device_memory();
    message.ways =
        static_cast<uint16_t>((known && shares ? kWayShared : 0) | (coded ? kWayCoded : 0) | (direct ? kWayApart : 0));
    send(session, source, message);
  }
  ++stats_.sessions;
  return id;
}

void Receiver::send(Session& session, Source& source, const Body& body, Type type) {
  Header h;
  h.type = type;
  h.source_rank = source.rank.rank;
  h.sink_rank = session.request.sink_rank;
  h.session = session.id;
  h.sequence = source.out++;
  // A peer that is gone, or has too many unread messages, is reported by on_closed.
  (void)outbox_.send(source.rank.peer, encode(h, body));
}

Status Receiver::abort(SessionId id, Code code, const std::string& why) {
  if (find(id) == nullptr) return Status(Code::stale_handle, "no such session, or it has ended");
  end(id, Status(code, "the session was given up", why));
  pump();
  return {};
}

void Receiver::on_message(PeerId peer, ConstBytes bytes) {
  const auto header = peek(bytes);
  if (!header.ok() || goes_to_sender(header.value().type)) {
    ++stats_.protocol_errors;
    return;
  }
  Session* session = find(header.value().session);
  if (session == nullptr) {
    ++stats_.late_messages;
    return;
  }
  const auto source = std::find_if(session->sources.begin(), session->sources.end(), [&](const Source& s) {
    return s.rank.peer == peer && s.rank.rank == header.value().source_rank;
  });
  if (source == session->sources.end() || source->state == SourceState::gone) {
    ++stats_.protocol_errors;
    return;
  }
  if (header.value().sequence < source->in) return;  // a repeated message
  auto decoded = decode(bytes);
  Status status = decoded.status();
  if (status.ok() && header.value().sequence != source->in) {
    status = Status(Code::damaged, "a message of the session is missing");
  }
  if (!status.ok()) ++stats_.protocol_errors;
  ++source->in;
  if (status.ok()) status = apply(*session, *source, decoded.value());
  if (!status.ok()) end(session->id, at_rank(source->rank, status));
  pump();
}

Status Receiver::apply(Session& session, Source& source, Body& body) {
  if (const auto* shared = std::get_if<Shared>(&body)) return told_shared(session, source, *shared);
  if (source.done) return {};  // sent before the source learnt that nothing more is needed
  if (const auto* abort = std::get_if<Abort>(&body)) {
    return Status(abort->code, "a prefill rank gave up", with_model_name(abort->text, session.request.facts));
  }
  if (auto* accept = std::get_if<Accept>(&body)) return accepted(session, source, *accept);
  const auto* entries = std::get_if<Published>(&body);
  if (entries == nullptr || source.state != SourceState::accepted) {
    return Status(Code::damaged, "a message that is not expected now");
  }
  return published(session, static_cast<size_t>(&source - session.sources.data()), *entries);
}

Status Receiver::accepted(Session& session, Source& source, Accept& accept) {
  if (source.state != SourceState::asked) return Status(Code::damaged, "accepted twice");
  if (accept.facts_hash != facts_hash(session.request.facts)) {
    return Status(Code::mismatch, "the two sides of a session differ", "the facts of the model");
  }
  if (accept.slice_bytes < kMinSliceBytes) return Status(Code::damaged, "accepted with slices that are too small");
  if (auto s = check_parts(session.request.facts, accept.parts, "accepted"); !s.ok()) return s;
  if (options_.coder != nullptr && options_.coder->seals() && (accept.ways & kWayCoded) == 0) {
    return Status(Code::not_permitted, "a prefill rank does not seal, where all must be",
                  "it needs this node's seal.key_file");
  }
  source.state = SourceState::accepted;
  source.ways = accept.ways;
  source.slice_bytes = accept.slice_bytes;
  source.parts = std::move(accept.parts);
  source.grains = std::move(accept.grains);
  for (const Part& p : source.parts) source.published.emplace_back(p.shard.layers);
  ask_to_share(session, source, accept);
  return plan_if_known(session);
}

Status Receiver::plan_if_known(Session& session) {
  if (session.planned) return {};
  for (const Source& s : session.sources) {
    if (s.state == SourceState::asked) return {};
  }
  return make_plan(session);
}

Status Receiver::make_plan(Session& session) {
  PlanInput input;
  input.facts = &session.request.facts;
  input.targets = session.request.targets;
  input.sink_rank = session.request.sink_rank;
  input.slice_bytes = staging_.slice_bytes();
  std::vector<std::vector<Part>> parts;
  bool any_gone = false;
  for (const Source& s : session.sources) {
    any_gone |= s.state == SourceState::gone;
    parts.push_back(s.state == SourceState::accepted ? s.parts : std::vector<Part>{});
    if (s.state == SourceState::accepted) input.slice_bytes = std::min(input.slice_bytes, s.slice_bytes);
  }
  input.sources = parts;
  auto made = Plan::make(input);
  if (!made.ok()) return made.status();
  session.plan = std::move(made).value();
  if (!session.plan.gaps().empty()) {
    std::string text = gap_text(session.plan.gaps().front());
    if (session.plan.gaps().size() > 1) {
      text += " and " + std::to_string(session.plan.gaps().size() - 1) + " more";
    }
    return Status(any_gone ? Code::owner_gone : Code::mismatch, "no prefill rank has a part that is wanted", text);
  }
  session.planned = true;
  session.slices.resize(session.plan.slices().size());
  for (const Slice& s : session.plan.slices()) ++session.sources[s.source].left;
  for (const Plan::Layer& l : session.plan.layers()) session.layer_left.push_back(l.slices);
  session.layers_left = static_cast<uint32_t>(session.layer_left.size());
  for (size_t source = 0; source < session.sources.size(); ++source) {
    for (size_t layer = 0; layer < session.plan.layers().size(); ++layer) mark_ready(session, source, layer);
    done_if_all(session, session.sources[source]);  // only some of the replicas are used
  }
  return {};
}

// Releases the source's blocks once this rank needs nothing more from it.
void Receiver::done_if_all(Session& session, Source& source) {
  if (source.left > 0 || source.done || source.state != SourceState::accepted) return;
  source.done = true;
  send(session, source, Done{});
}

Status Receiver::published(Session& session, size_t index, const Published& message) {
  Source& source = session.sources[index];
  for (const PublishedEntry& e : message.entries) {
    const auto part = std::find_if(source.parts.begin(), source.parts.end(),
                                   [&](const Part& p) { return p.component == e.component; });
    if (part == source.parts.end() || e.first_layer < part->shard.first_layer || !part->range.holds(e.range) ||
        uint32_t{e.first_layer} + e.layers > uint32_t{part->shard.first_layer} + part->shard.layers) {
      return Status(Code::damaged, "published what was not offered");
    }
    auto& sets = source.published[static_cast<size_t>(part - source.parts.begin())];
    for (uint32_t l = e.first_layer; l < uint32_t{e.first_layer} + e.layers; ++l) {
      if (!sets[l - part->shard.first_layer].add(e.range)) {
        return Status(Code::no_room, "a layer is published in too many separate pieces");
      }
      if (!session.planned) continue;
      const size_t at = session.plan.find_layer(e.component, l);
      if (at < session.plan.layers().size()) mark_ready(session, index, at);
    }
  }
  return {};
}

void Receiver::mark_ready(Session& session, size_t index, size_t layer_index) {
  Source& source = session.sources[index];
  const Plan::Layer& layer = session.plan.layers()[layer_index];
  if (session.layer_left[layer_index] == 0) return;
  const auto part = std::find_if(source.parts.begin(), source.parts.end(),
                                 [&](const Part& p) { return p.component == layer.component; });
  if (part == source.parts.end() || layer.layer < part->shard.first_layer ||
      layer.layer - part->shard.first_layer >= part->shard.layers) {
    return;
  }
  const IntervalSet& set =
      source.published[static_cast<size_t>(part - source.parts.begin())][layer.layer - part->shard.first_layer];
  for (uint32_t i = layer.first_slice; i < layer.first_slice + layer.slices; ++i) {
    const Slice& slice = session.plan.slices()[i];
    SliceState& state = session.slices[i];
    if (slice.source != index || state.step != SliceState::Step::waiting || !set.covers(slice.extent.range)) continue;
    state.step = SliceState::Step::ready;
    source.ready.push(i);
    wanting_.insert(session.id);
  }
}

void Receiver::on_closed(PeerId peer) {
  outbox_.closed(peer);
  direct_.closed(peer);
  mapped_.erase(std::remove_if(mapped_.begin(), mapped_.end(), [&](const auto& m) { return m->peer == peer; }),
                mapped_.end());
  std::vector<std::pair<SessionId, Status>> failed;
  for (auto& [id, session] : sessions_) {
    for (Source& s : session.sources) {
      if (s.rank.peer != peer || s.state == SourceState::gone) continue;
      s.batch.entries.clear();
      s.state = SourceState::gone;
      Status status;
      if (!session.planned) {
        status = plan_if_known(session);
      } else if (s.left > s.moving) {
        status = Status(Code::owner_gone, "the connection to a prefill rank is gone");
      }
      if (status.ok()) continue;
      failed.emplace_back(id, at_rank(s.rank, status));
      break;
    }
  }
  for (const auto& [id, status] : failed) end(id, status);
  pump();
}

void Receiver::on_writable(PeerId peer) {
  outbox_.writable(peer);
  pump();
}

void Receiver::tick(uint64_t now_ns) {
  std::vector<std::pair<SessionId, std::string>> due;
  for (const auto& [id, session] : sessions_) {
    if (session.request.deadline_ns > now_ns) continue;
    std::string why;
    for (const Source& s : session.sources) {
      if (session.planned ? s.left == 0 : s.state != SourceState::asked) continue;
      if (!why.empty()) why += ", ";
      why += named(s.rank);
      why += session.planned ? " has " + std::to_string(s.left) + " slices to send" : " did not answer";
    }
    due.emplace_back(id, std::move(why));
  }
  for (const auto& [id, why] : due) end(id, Status(Code::deadline, "the deadline of the session has passed", why));
  pump();
}

uint64_t Receiver::next_deadline() const {
  uint64_t next = kNever;
  for (const auto& [id, session] : sessions_) next = std::min(next, session.request.deadline_ns);
  return next;
}

uint32_t Receiver::quarantined() const noexcept {
  uint32_t n = 0;
  for (const Transfer& t : transfers_) {
    if (t.name != 0 && !t.moving && sessions_.count(t.session) == 0) ++n;
  }
  return n;
}

void Receiver::end(SessionId id, const Status& status) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  Session& session = it->second;
  for (Source& s : session.sources) {
    if (s.state == SourceState::gone || s.done) continue;
    send(session, s, Abort{status.code(), status.message()}, Type::sink_abort);
  }
  for (const Transfer& t : transfers_) {
    if (t.name != 0 && !t.moving && t.session == id) cancel(t);
  }
  mapped_.erase(std::remove_if(mapped_.begin(), mapped_.end(),
                               [&](const auto& m) { return m->step == Mapped::Step::asked && m->by == id; }),
                mapped_.end());  // the answer has no receiver any more: the next session asks again
  ReceiverEvent event;
  event.session = id;
  event.request = session.request.request;
  event.status = status;
  if (session.moving > 0) {
    ending_[id] = {std::move(event), session.moving};
  } else {
    events_.push_back(std::move(event));
  }
  ++(status.ok() ? stats_.finished : stats_.failed);
  wanting_.erase(id);
  sessions_.erase(it);
}

bool Receiver::take_event(ReceiverEvent* event) {
  if (events_.empty()) return false;
  *event = std::move(events_.front());
  events_.pop_front();
  return true;
}

}  // namespace kvbm::cluster::session
