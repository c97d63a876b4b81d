#include "support/sim_disk_state.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace kvbm::test {

uint64_t SimInode::charged() const { return std::max(round_up(size, kSimPage), round_up(allocated, kSimPage)); }

void SimInode::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const uint64_t in_page = offset % kSimPage;
    const size_t n = static_cast<size_t>(std::min<uint64_t>(out.size(), kSimPage - in_page));
    const auto page = pages.find(offset / kSimPage);
    if (page == pages.end()) {
      std::memset(out.data(), 0, n);
    } else {
      std::memcpy(out.data(), page->second.data() + in_page, n);
    }
    out = out.subspan(n);
    offset += n;
  }
}

// Returns the page for writing. Keeps its last durable content for a power cut.
SimPage& SimInode::change(uint64_t page) {
  SimPage& now = pages[page];  // zero if it was not there
  durable.try_emplace(page, now);
  ++version[page];
  lost.erase(page);
  return now;
}

void SimInode::write(uint64_t offset, std::span<const std::byte> bytes) {
  size = std::max(size, offset + bytes.size());
  while (!bytes.empty()) {
    const uint64_t in_page = offset % kSimPage;
    const size_t n = static_cast<size_t>(std::min<uint64_t>(bytes.size(), kSimPage - in_page));
    std::memcpy(change(offset / kSimPage).data() + in_page, bytes.data(), n);
    bytes = bytes.subspan(n);
    offset += n;
  }
}

void SimInode::resize(uint64_t bytes) {
  if (bytes < size) {
    const uint64_t keep = bytes / kSimPage;
    for (auto it = pages.lower_bound(keep); it != pages.end();) {
      const uint64_t page = it->first;
      const uint64_t from = page == keep ? bytes % kSimPage : 0;
      SimPage& now = change(page);
      std::fill(now.begin() + static_cast<ptrdiff_t>(from), now.end(), std::byte{0});
      it = from == 0 ? pages.erase(it) : std::next(it);
    }
    allocated = std::min(allocated, bytes);
  }
  size = bytes;
}

void SimInode::power_cut(Random& random) {
  for (auto& [page, old] : durable) {
    switch (random.below(4)) {
      case 0:
        pages[page] = old;
        break;
      case 1:
        for (uint64_t at = 0; at < kSimPage; at += kSimSector) {
          if (random.below(2) == 0) std::memcpy(pages[page].data() + at, old.data() + at, kSimSector);
        }
        break;
      default:
        break;
    }
  }
  durable.clear();
  version.clear();
  const uint64_t new_size = random.below(2) == 0 ? durable_size : size;
  resize(new_size);
  durable.clear();
  version.clear();
  lost.clear();
  durable_size = size;
}

SimSnapshot take_snapshot(const SimInode& inode) {
  SimSnapshot out;
  out.version = inode.version;
  out.size = inode.size;
  for (const auto& [page, old] : inode.durable) {
    const auto now = inode.pages.find(page);
    out.pages[page] = now == inode.pages.end() ? SimPage{} : now->second;
  }
  return out;
}

void make_durable(SimInode& inode, const SimSnapshot& snapshot) {
  for (const auto& [page, bytes] : snapshot.pages) {
    const auto version = inode.version.find(page);
    if (version == inode.version.end()) continue;  // another sync was faster
    if (inode.lost.contains(page)) continue;
    if (version->second == snapshot.version.at(page)) {
      inode.version.erase(version);
      inode.durable.erase(page);
    } else {
      inode.durable[page] = bytes;
    }
  }
  inode.durable_size = snapshot.size;
}

void lose(SimInode& inode, const SimSnapshot& snapshot) {
  for (const auto& [page, bytes] : snapshot.pages) {
    const auto version = inode.version.find(page);
    if (version != inode.version.end() && version->second == snapshot.version.at(page)) inode.lost.insert(page);
  }
}

void apply_change(SimEntries& entries, const SimEntryChange& change) {
  switch (change.kind) {
    case SimEntryChange::Kind::create:
      entries[change.name] = change.inode;
      break;
    case SimEntryChange::Kind::remove:
      entries.erase(change.name);
      break;
    case SimEntryChange::Kind::rename:
      entries[change.to] = change.inode;
      entries.erase(change.name);
      break;
  }
}

Status SimDisk::State::enter(Op op) {
  const auto i = static_cast<size_t>(op);
  ++counts[i];
  sim.note("disk", i);
  if (planned[i].left > 0 && --planned[i].left == 0)
    return Status(planned[i].code, "planned fault of the simulated disk");
  return {};
}

bool SimDisk::State::chance(double p) { return p > 0 && static_cast<double>(sim.random().next() >> 11) * 0x1p-53 < p; }

uint64_t SimDisk::State::used() const {
  uint64_t sum = 0;
  for (const auto& [path, folder] : folders) {
    for (const auto& [name, inode] : folder.entries) sum += inode->charged();
  }
  return sum;
}

Status SimDisk::State::room(const SimInode& inode, uint64_t new_size, uint64_t new_allocated) const {
  const uint64_t before = inode.charged();
  const uint64_t after = std::max({before, round_up(new_size, kSimPage), round_up(new_allocated, kSimPage)});
  if (after == before) return {};
  const uint64_t now = used();
  if (now > capacity || after - before > capacity - now) {
    return Status(Code::disk_full, "the simulated disk is full");
  }
  return {};
}

Status SimDisk::State::write(SimInode& inode, uint64_t offset, std::vector<std::byte>& data) {
  if (Status s = enter(Op::write); !s.ok()) return s;
  if (Status s = room(inode, offset + data.size(), 0); !s.ok()) return s;
  if (chance(faults->write_error)) return Status(Code::io_error, "fault of the simulated disk");
  if (chance(faults->write_full)) {
    const auto part = static_cast<size_t>(sim.random().below(data.size() / kSimSector + 1) * kSimSector);
    inode.write(offset, std::span(data).first(part));
    return Status(Code::disk_full, "fault of the simulated disk");
  }
  if (chance(faults->lost_write)) return {};
  if (chance(faults->flip_at_rest) && !data.empty()) {
    const uint64_t bit = sim.random().below(data.size() * 8);
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  if (chance(faults->misdirected_write)) {
    const uint64_t away = (1 + sim.random().below(8)) * kSimPage;
    const bool after = offset + away + data.size() <= inode.size;
    if (!after && offset < away) return {};  // no place to land: lost
    offset = after ? offset + away : offset - away;
  }
  inode.write(offset, data);
  return {};
}

Result<size_t> SimDisk::State::read(const SimInode& inode, uint64_t offset, std::span<const IoRun> runs) {
  if (Status s = enter(Op::read); !s.ok()) return s;
  if (chance(faults->read_error)) return Status(Code::io_error, "fault of the simulated disk");
  size_t total = 0;
  for (const IoRun& run : runs) total += run.bytes;
  size_t give = offset >= inode.size ? 0 : static_cast<size_t>(std::min<uint64_t>(total, inode.size - offset));
  if (give > 0 && chance(faults->short_read)) give = static_cast<size_t>(sim.random().below(give));
  const uint64_t flip = give > 0 && chance(faults->flip_on_read) ? sim.random().below(give * 8) : UINT64_MAX;
  size_t moved = 0;
  for (const IoRun& run : runs) {
    const size_t n = std::min(run.bytes, give - moved);
    inode.read(offset + moved, {run.data, n});
    if (flip / 8 >= moved && flip / 8 < moved + n)
      run.data[flip / 8 - moved] ^= static_cast<std::byte>(1u << (flip % 8));
    moved += n;
  }
  return give;
}

Status SimDisk::State::sync(SimInode& inode, const SimSnapshot& snapshot) {
  Status failed = enter(Op::sync);
  if (failed.ok() && chance(faults->sync_error)) failed = Status(Code::io_error, "fault of the simulated disk");
  if (failed.ok())
    make_durable(inode, snapshot);
  else
    lose(inode, snapshot);
  return failed;
}

void SimDisk::State::start(SimPending pending) {
  const uint64_t id = next_id++;
  const uint64_t spread = *max_latency > *min_latency ? *max_latency - *min_latency : 0;
  const uint64_t at = sim.clock().now_ns() + *min_latency + sim.random().below(spread + 1);
  in_flight.emplace(id, std::move(pending));
  sim.post_at(at, [weak = weak_from_this(), id] {
    if (const auto state = weak.lock()) state->finish(id);
  });
}

void SimDisk::State::finish(uint64_t id) {
  const auto it = in_flight.find(id);
  if (it == in_flight.end()) return;  // a crash took it
  SimPending p = std::move(it->second);
  in_flight.erase(it);
  if (p.op == Op::sync) return p.synced(sync(*p.inode, p.snapshot));
  if (p.op == Op::read) return p.done(read(*p.inode, p.offset, p.runs));
  const size_t bytes = p.data.size();
  if (Status s = write(*p.inode, p.offset, p.data); !s.ok()) return p.done(std::move(s));
  p.done(bytes);
}

// Ends the process: each operation in flight takes effect, or not, or by half. Nothing completes.
void SimDisk::State::stop_all(bool forget_tasks) {
  for (auto& [id, p] : in_flight) {
    if (p.op != Op::write || !room(*p.inode, p.offset + p.data.size(), 0).ok()) continue;
    const uint64_t fate = sim.random().below(3);
    if (fate == 0) p.inode->write(p.offset, p.data);
    if (fate == 1) {
      const uint64_t part = sim.random().below(p.data.size() / kSimSector + 1) * kSimSector;
      if (part > 0) p.inode->write(p.offset, std::span(p.data).first(static_cast<size_t>(part)));
    }
  }
  ++generation;
  for (auto& [path, folder] : folders) folder.locked = false;
  const auto dropped = std::move(in_flight);
  in_flight.clear();
  if (forget_tasks) sim.drop_all();
}

}  // namespace kvbm::test
