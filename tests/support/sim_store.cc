#include "support/sim_store.h"

#include <algorithm>

namespace kvbm::test {

using tier::store::ObjectRequest;
using tier::store::Verb;

void SimStore::start(std::unique_ptr<ObjectRequest> request) {
  const SimStoreFaults& faults = control_->faults;
  ++control_->requests;
  control_->gets += request->verb == Verb::get ? 1 : 0;
  if (control_->dead) return;
  if (chance(faults.hangs)) {
    if (sim_.random().below(2) == 0) apply(*request);
    hanging_[request->id] = std::move(request);
    return;
  }
  uint64_t wait = 100'000 + sim_.random().below(20'000'000);
  if (chance(faults.slow)) wait += sim_.random().below(8'000'000'000);
  // Lets the request take effect at a random moment before its answer.
  const uint64_t when = sim_.random().below(wait);
  auto held = std::make_shared<std::unique_ptr<ObjectRequest>>(std::move(request));
  const uint64_t now = sim_.clock().now_ns();
  sim_.post_at(now + when, [this, held, control = control_, left = now + wait] {
    if (control->dead) return;
    ObjectRequest& r = **held;
    if (control->down || chance(control->faults.refused)) {
      r.code = sim_.random().below(2) == 0 ? Code::again : Code::io_error;
    } else {
      apply(r);
      if (chance(control->faults.lost_answer)) r.code = Code::io_error;
    }
    sim_.post_at(left, [held, control] {
      if (!control->dead) answer(std::move(*held));
    });
  });
}

void SimStore::cancel(uint64_t id) noexcept {
  const auto at = hanging_.find(id);
  if (at == hanging_.end() || id % 2 == 0) return;
  auto request = std::move(at->second);
  hanging_.erase(at);
  request->code = Code::deadline;
  sim_.post([held = std::make_shared<std::unique_ptr<ObjectRequest>>(std::move(request)), control = control_] {
    if (!control->dead) answer(std::move(*held));
  });
}

std::unique_ptr<ObjectRequest> SimStore::run(std::unique_ptr<ObjectRequest> request, UniqueFunction<void()> late) {
  if (control_->dead) return nullptr;
  if (chance(control_->faults.hangs)) {
    const uint64_t id = request->id;
    request->finished = [late = std::move(late)](std::unique_ptr<ObjectRequest>) mutable { late(); };
    hanging_[id] = std::move(request);
    cancel(id);
    return nullptr;
  }
  if (control_->down || chance(control_->faults.refused)) {
    request->code = Code::io_error;
  } else {
    apply(*request);
  }
  return request;
}

void SimStore::apply(ObjectRequest& r) {
  r.code = Code::ok;
  switch (r.verb) {
    case Verb::put: {
      auto& object = bucket_->objects[r.name];
      object.bytes.assign(r.data.bytes.get(), r.data.bytes.get() + r.bytes);
      object.seen_ns =
          sim_.clock().now_ns() + (bucket_->list_delay_ns != 0 ? sim_.random().below(bucket_->list_delay_ns) : 0);
      return;
    }
    case Verb::remove:
      bucket_->objects.erase(r.name);
      return;
    case Verb::list:
      return list(r);
    case Verb::get:
      break;
  }
  auto at = bucket_->objects.find(r.name);
  if (at == bucket_->objects.end()) {
    r.code = Code::miss;
    return;
  }
  const bool wrong = chance(control_->faults.wrong_bytes);
  if (wrong && sim_.random().below(2) == 0) {
    at = bucket_->objects.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(sim_.random().below(bucket_->objects.size())));
  }
  const auto& bytes = at->second.bytes;
  uint64_t n = r.offset >= bytes.size() ? 0 : std::min<uint64_t>(r.bytes, bytes.size() - r.offset);
  if (n != 0 && chance(control_->faults.short_get)) n = sim_.random().below(n);
  if (n != 0) std::memcpy(r.data.bytes.get(), bytes.data() + r.offset, n);
  if (wrong && n != 0) r.data.bytes[sim_.random().below(n)] ^= std::byte{1};
  r.done = n;
}

void SimStore::list(ObjectRequest& r) {
  std::string out;
  const uint64_t now = sim_.clock().now_ns();
  const size_t most = std::min<size_t>(r.bytes, bucket_->page_bytes);
  std::vector<std::string> names;
  for (auto at = bucket_->objects.upper_bound(std::max(r.after, r.name)); at != bucket_->objects.end(); ++at) {
    if (!at->first.starts_with(r.name)) break;
    if (at->second.seen_ns > now) continue;
    if (out.size() + at->first.size() + 1 > most) {
      r.more = true;
      break;
    }
    out += at->first;
    out += '\0';
  }
  if (chance(control_->faults.lying_list)) {
    switch (sim_.random().below(3)) {
      case 0:
        out = out + out;
        break;
      case 1:
        out = std::string("v9/x") + '\0' + out;
        break;
      default:
        r.more = true;
        out.clear();
        break;
    }
    out.resize(std::min<size_t>(out.size(), r.bytes));
  }
  std::memcpy(r.data.bytes.get(), out.data(), out.size());
  r.done = out.size();
}

}  // namespace kvbm::test
