#include "cluster/session/sender.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace kvbm::cluster::session {

Sender::Sender(const Options& options, Staging staging, Link& link, Holder& holder)
    : options_(options),
      staging_(std::move(staging)),
      link_(link),
      holder_(holder),
      outbox_(link, options.peer_outbox_bytes),
      names_(options.transfer_base),
      pushes_(staging_.slots()),
      direct_({staging_.slots(), round_up(staging_.slice_bytes(), Staging::kSharedAlignment), false,
               options.least_direct_bytes, options.note},
              link),
      hashes_(max_leaves(staging_.slice_bytes())) {}

Sender::Offer* Sender::find(const RequestId& request) {
  const auto it = offers_.find(request);
  return it == offers_.end() || it->second.ended ? nullptr : &it->second;
}

Sender::Sink* Sender::find(const SinkName& name) {
  Offer* offer = find(name.request);
  if (offer == nullptr) return nullptr;
  const auto it = offer->sinks.find(name.rank);
  const bool live =
      it != offer->sinks.end() && it->second.session == name.session && it->second.state == SinkState::live;
  return live ? &it->second : nullptr;
}

Status Sender::offer(const OfferRequest& request, uint64_t now_ns) {
  if (request.deadline_ns <= now_ns) return Status(Code::deadline, "the deadline of the offer has passed");
  if (auto s = check_facts(request.facts); !s.ok()) return s;
  if (auto s = check_local(request.facts, request.parts, Use::source); !s.ok()) return s;
  if (offers_.count(request.request) != 0) return Status(Code::exists, "the request is offered already");
  if (offers_.size() >= options_.max_offers) {
    return Status(Code::at_limit, "too many requests are offered", std::to_string(offers_.size()));
  }
  if (auto s = holder_.hold(request.request, request.parts); !s.ok()) return s;
  given_up_.erase(
      std::remove_if(given_up_.begin(), given_up_.end(), [&](const auto& g) { return g.first == request.request; }),
      given_up_.end());
  Offer& offer = offers_[request.request];
  offer.request = request;
  for (const LocalPart& p : request.parts) offer.published.emplace_back(p.part.shard.layers);
  const auto others = std::stable_partition(early_.begin(), early_.end(),
                                            [&](const Early& e) { return e.open.request != request.request; });
  std::vector<Early> came(std::make_move_iterator(others), std::make_move_iterator(early_.end()));
  early_.erase(others, early_.end());
  for (Early& e : came) opened(e.peer, e.header, std::move(e.open), now_ns);
  return {};
}

Status Sender::publish(const RequestId& request, Component component, uint32_t first_layer, uint32_t layers,
                       Range range) {
  Offer* offer = find(request);
  if (offer == nullptr) return Status(Code::stale_handle, "no such offer, or it has ended");
  const auto& parts = offer->request.parts;
  const auto it =
      std::find_if(parts.begin(), parts.end(), [&](const LocalPart& p) { return p.part.component == component; });
  if (it == parts.end()) {
    return Status(Code::invalid_argument, "published what was not offered", "component " + std::to_string(component));
  }
  const Shard& shard = it->part.shard;
  if (layers == 0 || first_layer < shard.first_layer ||
      uint64_t{first_layer} + layers > uint64_t{shard.first_layer} + shard.layers || range.empty() ||
      !it->part.range.holds(range)) {
    return Status(Code::invalid_argument, "published what was not offered",
                  "layers " + std::to_string(first_layer) + " + " + std::to_string(layers) + ", positions " +
                      std::to_string(range.begin) + " to " + std::to_string(range.end));
  }
  std::vector<IntervalSet>& sets = offer->published[static_cast<size_t>(it - parts.begin())];
  for (uint32_t l = first_layer; l < first_layer + layers; ++l) {
    if (!sets[l - shard.first_layer].add(range)) {
      return Status(Code::no_room, "a layer is published in too many separate pieces", "layer " + std::to_string(l));
    }
  }
  Published message;
  message.entries.push_back({component, static_cast<uint16_t>(first_layer), static_cast<uint16_t>(layers), range});
  for (auto& [rank, sink] : offer->sinks) {
    if (sink.state == SinkState::live) send(sink, rank, message);
  }
  return {};
}

Status Sender::publish_all(const RequestId& request) {
  Offer* offer = find(request);
  if (offer == nullptr) return Status(Code::stale_handle, "no such offer, or it has ended");
  for (const LocalPart& p : offer->request.parts) {
    const Shard& s = p.part.shard;
    if (auto st = publish(request, p.part.component, s.first_layer, s.layers, p.part.range); !st.ok()) return st;
  }
  return {};
}

Status Sender::abort(const RequestId& request, Code code, const std::string& why) {
  Offer* offer = find(request);
  if (offer == nullptr) return Status(Code::stale_handle, "no such offer, or it has ended");
  give_up(*offer, Status(code, "the prefill side gave up", why));
  forget_if_quiet(request);
  return {};
}

void Sender::give_up(Offer& offer, const Status& why) {
  if (given_up_.size() >= options_.max_early_opens) given_up_.pop_front();
  given_up_.emplace_back(offer.request.request, why);
  end_offer(offer, why);
}

void Sender::send(Sink& sink, uint16_t rank, const Body& body) {
  Header h;
  h.type = Type::source_abort;
  h.source_rank = options_.rank;
  h.sink_rank = rank;
  h.session = sink.session;
  h.sequence = sink.out++;
  // A peer that is gone, or has too many unread messages, is reported by on_closed.
  (void)outbox_.send(sink.peer, encode(h, body));
}

void Sender::refuse(PeerId peer, const Header& header, const Status& why, uint32_t sequence) {
  ++stats_.refused_opens;
  Header h = header;
  h.type = Type::source_abort;
  h.sequence = sequence;
  (void)outbox_.send(peer, encode(h, Abort{why.code(), why.message()}));
}

void Sender::opened(PeerId peer, const Header& header, Open open, uint64_t now_ns) {
  if (Offer* offer = find(open.request); offer != nullptr) {
    if (auto s = admit(*offer, peer, header, open, now_ns); !s.ok()) refuse(peer, header, offer->refusal = s);
    if (auto s = at_odds(*offer, peer, header, open); !s.ok()) turn_away(*offer, header, open, s);
    return;
  }
  const auto gone =
      std::find_if(given_up_.begin(), given_up_.end(), [&](const auto& g) { return g.first == open.request; });
  if (gone != given_up_.end()) return refuse(peer, header, gone->second);
  if (early_.size() >= options_.max_early_opens) {
    return refuse(peer, header, Status(Code::no_room, "too many sessions wait for a request that is not there yet"));
  }
  const uint64_t left = std::min(open.remaining_ns, kNever - now_ns);
  early_.push_back({peer, header, std::move(open), now_ns + left});
}

Status Sender::admit(Offer& offer, PeerId peer, const Header& header, const Open& open, uint64_t now_ns) {
  // Worded from the decode side's point of view, because its user reads the text.
  if (auto s = check_same(open.facts, offer.request.facts, "prefill rank " + std::to_string(options_.rank)); !s.ok()) {
    return s;
  }
  if (options_.coder != nullptr && options_.coder->seals() && (open.ways & kWayCoded) == 0) return must_be_sealed();
  if (offer.sink_count != 0 && offer.sink_count != open.sink_count) {
    return Status(Code::mismatch, "decode ranks disagree on how many they are",
                  std::to_string(open.sink_count) + " here, another said " + std::to_string(offer.sink_count));
  }
  if (header.sink_rank >= open.sink_count) {
    return Status(Code::invalid_argument, "no such decode rank",
                  std::to_string(header.sink_rank) + " of " + std::to_string(open.sink_count));
  }
  const auto it = offer.sinks.find(header.sink_rank);
  // A rank that failed may try again; one that is live or done may not.
  if (it != offer.sinks.end() && it->second.state != SinkState::failed) {
    return Status(Code::exists, "this decode rank has a session for the request already",
                  "decode rank " + std::to_string(header.sink_rank));
  }
  offer.sink_count = open.sink_count;
  Sink sink;
  sink.peer = peer;
  sink.session = header.session;
  sink.deadline_ns = now_ns + std::min(open.remaining_ns, kNever - now_ns);
  sink.in = 1;
  Sink& kept = offer.sinks[header.sink_rank] = sink;
  sinks_[{peer, header.sink_rank, header.session}] = open.request;
  accept(offer, header.sink_rank, kept);
  return {};
}

Status Sender::at_odds(const Offer& offer, PeerId peer, const Header& header, const Open& open) const {
  std::string who = "decode rank " + std::to_string(header.sink_rank);
  if (options_.named) who += " at " + options_.named(peer);
  if (auto s = check_same(offer.request.facts, open.facts, who); !s.ok()) return s;
  if (options_.coder == nullptr || !options_.coder->seals() || (open.ways & kWayCoded) != 0) return {};
  const Status sealed = must_be_sealed();
  return Status(sealed.code(), sealed.what(), who + sealed.message().substr(std::strlen(sealed.what())));
}

void Sender::turn_away(Offer& offer, const Header& header, const Open& open, const Status& why) {
  if (offer.sink_count == 0) {
    const RequestId request = offer.request.request;
    give_up(offer, why);
    return forget_if_quiet(request);
  }
  // Other ranks of that side are served. Meanwhile this rank may try again, like any failed rank.
  if (open.sink_count != offer.sink_count || header.sink_rank >= open.sink_count) return;
  if (!offer.sinks.try_emplace(header.sink_rank, Sink{SinkState::failed}).second) return;
  if (offer.failure.ok()) offer.failure = why;
  const RequestId request = offer.request.request;
  end_offer_if_due(offer);
  forget_if_quiet(request);
}

void Sender::accept(Offer& offer, uint16_t rank, Sink& sink) {
  Accept message;
  message.facts_hash = facts_hash(offer.request.facts);
  message.slice_bytes = staging_.slice_bytes();
  const bool grained = link_.takes_grain(sink.peer);
  if (options_.coder != nullptr && link_.takes_ways(sink.peer)) message.ways |= kWayCoded;
  const bool shares = link_.takes_ways(sink.peer) && mover_that_shares(offer.request.parts) != nullptr;
  if (shares) message.ways |= kWayShared;
  if (link_.takes_ways(sink.peer)) message.ways |= kWayApart;
  for (const LocalPart& p : offer.request.parts) {
    message.parts.push_back(p.part);
    const uint32_t grain = block_grain(offer.request.facts.components[p.part.component], p.map);
    const uint32_t where = grain != 0 && p.map.mover != nullptr ? Accept::kOnDevice : 0;
    message.grains.push_back(grained ? grain | where : 0);
  }
  send(sink, rank, message);
  Published published;
  const auto flush = [&] {
    if (!published.entries.empty()) send(sink, rank, published);
    published.entries.clear();
  };
  for (size_t i = 0; i < offer.published.size(); ++i) {
    const Part& part = offer.request.parts[i].part;
    for (uint32_t l = 0; l < part.shard.layers; ++l) {
      const auto layer = static_cast<uint16_t>(part.shard.first_layer + l);
      for (const Range& r : offer.published[i][l].ranges()) {
        if (!published.entries.empty()) {  // one entry for layers that are equally far
          PublishedEntry& last = published.entries.back();
          if (last.component == part.component && last.first_layer + last.layers == layer && last.range == r) {
            ++last.layers;
            continue;
          }
        }
        if (published.entries.size() == kMaxPublishedEntries) flush();
        published.entries.push_back({part.component, layer, 1, r});
      }
    }
  }
  flush();
}

void Sender::on_message(PeerId peer, ConstBytes bytes, uint64_t now_ns) {
  const auto header = peek(bytes);
  auto body = decode(bytes);
  if (!body.ok()) {
    ++stats_.protocol_errors;
    // If the addressing is readable, the other side learns why no slices will arrive.
    if (header.ok() && header.value().type == Type::open) refuse(peer, header.value(), body.status());
    return;
  }
  const Header& said = header.value();
  if (!goes_to_sender(said.type) || said.source_rank != options_.rank) {
    ++stats_.protocol_errors;
    return;
  }
  if (auto* open = std::get_if<Open>(&body.value())) {
    if (said.sequence != 0 || sinks_.count({peer, said.sink_rank, said.session}) != 0) {
      ++stats_.protocol_errors;
      return;
    }
    opened(peer, said, std::move(*open), now_ns);
    return pump();
  }
  const auto early = std::find_if(early_.begin(), early_.end(), [&](const Early& e) {
    return e.peer == peer && e.header.sink_rank == said.sink_rank && e.header.session == said.session;
  });
  if (early != early_.end()) {  // gave up before the offer existed; an early open can get no other message
    early_.erase(early);
    return;
  }
  const auto known = sinks_.find({peer, said.sink_rank, said.session});
  if (known == sinks_.end()) {
    ++stats_.late_messages;
    return;
  }
  const SinkName name{known->second, said.sink_rank, said.session};
  Offer* offer = find(name.request);
  Sink* sink = find(name);
  if (offer == nullptr || sink == nullptr) return;
  if (said.sequence < sink->in) return;  // a repeated message
  if (said.sequence != sink->in) {
    ++stats_.protocol_errors;
    end_sink(*offer, name.rank, SinkState::failed, Status(Code::damaged, "a message of the session is missing"), true);
  } else {
    ++sink->in;
    answer(*offer, name, *sink, body.value());
  }
  end_offer_if_due(*offer);
  forget_if_quiet(name.request);
  pump();
}

void Sender::answer(Offer& offer, const SinkName& name, Sink& sink, const Body& body) {
  if (const auto* pull = std::get_if<Pull>(&body)) {
    pulled(offer, name.rank, sink, *pull);
  } else if (std::get_if<Done>(&body) != nullptr) {
    end_sink(offer, name.rank, SinkState::done, {}, false);
  } else if (const auto* map = std::get_if<Map>(&body)) {
    share(offer, name.rank, sink, *map);
  } else if (const auto* released = std::get_if<Release>(&body)) {
    for (auto& s : sharings_) {
      for (size_t i = 0; s->slots != nullptr && i < released->tags.size(); ++i) {
        s->slots->release(name, released->tags[i]);
      }
    }
  } else if (const auto* abort = std::get_if<Abort>(&body)) {
    end_sink(offer, name.rank, SinkState::failed, Status(abort->code, "a decode rank gave up", abort->text), false);
  }
}

void Sender::on_writable(PeerId peer) { outbox_.writable(peer); }

void Sender::on_closed(PeerId peer) {
  outbox_.closed(peer);
  direct_.closed(peer);
  for (auto& s : sharings_) {
    s->notified.erase(std::remove(s->notified.begin(), s->notified.end(), peer), s->notified.end());
  }
  early_.erase(std::remove_if(early_.begin(), early_.end(), [&](const Early& e) { return e.peer == peer; }),
               early_.end());
  std::vector<std::pair<RequestId, uint16_t>> ended;
  for (auto it = sinks_.lower_bound({peer, 0, 0}); it != sinks_.end() && it->first.peer == peer; ++it) {
    ended.emplace_back(it->second, it->first.rank);
  }
  for (const auto& [request, rank] : ended) {
    Offer* offer = find(request);
    if (offer == nullptr) continue;
    end_sink(*offer, rank, SinkState::failed, Status(Code::owner_gone, "the connection to a decode rank is gone"),
             false);
    end_offer_if_due(*offer);
    forget_if_quiet(request);
  }
  pump();
}

void Sender::end_sink(Offer& offer, uint16_t rank, SinkState state, const Status& why, bool tell) {
  Sink& sink = offer.sinks[rank];
  if (sink.state != SinkState::live) return;
  if (tell) send(sink, rank, Abort{why.code(), why.message()});
  sink.state = state;
  sinks_.erase({sink.peer, rank, sink.session});
  if (state == SinkState::failed && offer.failure.ok()) {
    offer.failure = Status(why.code(), why.what(),
                           "decode rank " + std::to_string(rank) + why.message().substr(std::strlen(why.what())));
  }
  for (auto& s : sharings_) {
    if (s->slots != nullptr) s->slots->release_all({offer.request.request, rank, sink.session});
  }
  for (const Push& p : pushes_) {
    if (p.name != 0 && !p.moving && p.sink.request == offer.request.request && p.sink.rank == rank &&
        p.sink.session == sink.session) {
      link_.cancel(p.peer, p.name);
      if (p.apart) link_.cancel(p.peer, TransferNames::payload_of(p.name));
    }
  }
}

void Sender::end_offer_if_due(Offer& offer) {
  if (offer.ended || offer.sink_count == 0 || offer.sinks.size() < offer.sink_count) return;
  bool all_done = true;  // a rank that failed may have been done in a second try
  for (const auto& [rank, sink] : offer.sinks) {
    if (sink.state == SinkState::live) return;
    all_done = all_done && sink.state == SinkState::done;
  }
  end_offer(offer, all_done ? Status{} : offer.failure);
}

void Sender::end_offer(Offer& offer, const Status& status) {
  SenderEvent event{offer.request.request, status, 0, offer.sink_count, offer.bytes};
  for (auto& [rank, sink] : offer.sinks) {
    if (sink.state == SinkState::live) end_sink(offer, rank, SinkState::failed, status, true);
    if (sink.state == SinkState::done) ++event.sinks_done;
  }
  offer.ended = true;
  ++stats_.ended;
  if (!status.ok()) ++stats_.failed;
  events_.push_back(std::move(event));
}

void Sender::forget_if_quiet(const RequestId& request) {
  const auto it = offers_.find(request);
  if (it == offers_.end() || !it->second.ended || it->second.readers != 0) return;
  offers_.erase(it);
  holder_.release(request);
}

void Sender::tick(uint64_t now_ns) {
  std::vector<RequestId> due;
  for (auto& [request, offer] : offers_) {
    if (offer.ended) continue;
    if (offer.request.deadline_ns <= now_ns) {
      std::string got = offer.sink_count == 0 ? "no decode rank has opened it" : "not every decode rank was done";
      if (!offer.refusal.ok()) got += "; a decode rank was told: " + offer.refusal.message();
      const bool links = offer.sink_count == 0 && options_.unlinked;
      const std::string unlinked = links ? options_.unlinked() : std::string();
      if (!unlinked.empty()) got += "; " + unlinked;
      end_offer(offer, Status(Code::deadline, "the deadline of the offer has passed", got));
    } else {
      for (auto& [rank, sink] : offer.sinks) {
        if (sink.state != SinkState::live || sink.deadline_ns > now_ns) continue;
        end_sink(offer, rank, SinkState::failed, Status(Code::deadline, "the decode rank's deadline has passed"), true);
      }
      end_offer_if_due(offer);
    }
    if (offer.ended) due.push_back(request);
  }
  for (const RequestId& request : due) forget_if_quiet(request);
  early_.erase(std::remove_if(early_.begin(), early_.end(), [&](const Early& e) { return e.expires_ns <= now_ns; }),
               early_.end());
  pump();
}

uint64_t Sender::next_deadline() const {
  uint64_t next = kNever;
  for (const auto& [request, offer] : offers_) {
    if (offer.ended) continue;
    next = std::min(next, offer.request.deadline_ns);
    for (const auto& [rank, sink] : offer.sinks) {
      if (sink.state == SinkState::live) next = std::min(next, sink.deadline_ns);
    }
  }
  for (const Early& e : early_) next = std::min(next, e.expires_ns);
  return next;
}

bool Sender::take_event(SenderEvent* event) {
  if (events_.empty()) return false;
  *event = std::move(events_.front());
  events_.pop_front();
  return true;
}

}  // namespace kvbm::cluster::session
