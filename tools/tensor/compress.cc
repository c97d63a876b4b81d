#include "tensor/compress.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/memory/memory.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::tensor {

namespace {

// Memory of one job, aligned, grown as needed.
class Buffer {
 public:
  Result<MutableBytes> take(uint64_t bytes) {
    if (arena_ == nullptr || arena_->bytes() < bytes) {
      ArenaOptions options;
      options.bytes = std::max<uint64_t>(bytes, 1 << 16);
      options.huge_pages = false;
      auto arena = Arena::map(options);
      if (!arena.ok()) return arena.status();
      arena_ = std::move(arena).value();
    }
    return MutableBytes(arena_->data(), bytes);
  }

 private:
  std::unique_ptr<Arena> arena_;
};

Status cancelled() { return Status(Code::cancelled, "stopped; nothing was kept"); }

struct Compressor {
  const Input& input;
  codec::Mode mode;
  NewFile& out;
  const Watch& watch;
  Summary summary;
  uint64_t chain = 0;
  Buffer plain, coded, again;
  codec::Workspace workspace;

  Status head();
  Status segment(const Segment& segment);
  Status chunk(const Segment& segment, uint64_t offset, uint64_t bytes);
  Status end();
};

Status Compressor::head() {
  const std::string index = encode_index(summary.index);
  std::vector<std::byte> front(kContainerHeaderBytes + round_up(index.size(), 64));
  std::memcpy(front.data() + kContainerHeaderBytes, index.data(), index.size());
  chain = codec::leaf_hash(ConstBytes(front).subspan(kContainerHeaderBytes, index.size()));
  encode_header({summary.index.bytes, index.size(), chain}, MutableBytes(front).first(kContainerHeaderBytes));
  return out.write(front);
}

Status Compressor::chunk(const Segment& segment, uint64_t offset, uint64_t bytes) {
  const auto raw = plain.take(bytes);
  const auto room = coded.take(codec::stream_room(segment.form, bytes));
  const auto proof = again.take(bytes);
  for (const auto* memory : {&raw, &room, &proof}) {
    if (!memory->ok()) return memory->status();
  }
  Status done = input.read(offset, raw.value());
  if (!done.ok()) return done;
  const auto made = codec::encode_stream(segment.form, mode, raw.value(), room.value(), workspace);
  if (!made.ok()) return made.status();
  const ConstBytes stream = room.value().first(made.value());
  const auto view = codec::StreamView::parse(stream);
  if (!view.ok()) return view.status();
  done = view.value().decode(true, proof.value(), workspace);
  const codec::StreamInfo& info = view.value().info();
  if (!done.ok() || (!info.lossy && std::memcmp(proof.value().data(), raw.value().data(), bytes) != 0)) {
    return Status(Code::internal, "what was coded does not decode to the same bytes; nothing was kept", done.message());
  }
  if (segment.is_tensor) summary.kept.add(segment.tensor, segment.form, view.value(), raw.value());
  summary.lossy = summary.lossy || info.lossy;
  summary.difference += info.difference;
  summary.value += info.value;
  ++summary.chunks;
  chain = chain_next(chain, view.value().checksum());
  return out.write(stream);
}

Status Compressor::segment(const Segment& segment) {
  for (uint64_t at = 0; at < segment.tensor.bytes;) {
    if (watch.stop != nullptr && watch.stop->load()) return cancelled();
    const uint64_t bytes = next_chunk(segment, at);
    Status done = chunk(segment, segment.tensor.offset + at, bytes);
    if (!done.ok()) return done;
    at += bytes;
    if (watch.advance) watch.advance(bytes);
  }
  return {};
}

Status Compressor::end() {
  std::byte bytes[kContainerEndBytes];
  encode_end({summary.chunks, summary.index.bytes, chain}, bytes);
  return out.write(bytes);
}

struct Decompressor {
  const Input& input;
  bool allow_lossy;
  NewFile& out;
  const Watch& watch;
  Summary summary;
  uint64_t at = 0;  // in the input
  uint64_t chain = 0;
  Buffer coded, plain;
  codec::Workspace workspace;

  Status chunk(const Segment& segment, uint64_t left, uint64_t& raw_bytes);
  Status segment(const Segment& segment);
  Status end();
};

Status Decompressor::chunk(const Segment& segment, uint64_t left, uint64_t& raw_bytes) {
  std::byte front[24];
  Status done = input.read(at, front);
  if (!done.ok()) return done;
  const auto peek = codec::peek_stream(front);
  if (!peek.ok()) return peek.status();
  const uint64_t raw = peek.value().raw_bytes;
  const uint64_t stored = peek.value().stored_bytes;
  // All leaves but the last are at least half of 64 KiB, so a stream is always smaller than twice its raw bytes.
  if (raw == 0 || raw > kChunkBytes || raw > left || stored > 2 * kChunkBytes) {
    return Status(Code::damaged, "damaged: a chunk says that it is larger than its tensor, or than any chunk",
                  std::to_string(stored) + " bytes at " + std::to_string(at));
  }
  if (stored > input.bytes() - at) return Status(Code::damaged, "the file is cut short", input.path());
  const auto stream = coded.take(stored);
  const auto room = plain.take(raw);
  if (!stream.ok()) return stream.status();
  if (!room.ok()) return room.status();
  done = input.read(at, stream.value());
  if (!done.ok()) return done;
  const auto view = codec::StreamView::parse(stream.value());
  if (!view.ok()) return view.status();
  done = view.value().decode(allow_lossy, room.value(), workspace);
  if (!done.ok()) return done;
  const codec::StreamInfo& info = view.value().info();
  if (segment.is_tensor) summary.kept.add(segment.tensor, info.form, view.value(), room.value());
  summary.lossy = summary.lossy || info.lossy;
  summary.difference += info.difference;
  summary.value += info.value;
  ++summary.chunks;
  chain = chain_next(chain, view.value().checksum());
  at += stored;
  raw_bytes = raw;
  return out.write(room.value());
}

Status Decompressor::segment(const Segment& segment) {
  for (uint64_t done = 0; done < segment.tensor.bytes;) {
    if (watch.stop != nullptr && watch.stop->load()) return cancelled();
    uint64_t bytes = 0;
    Status read = chunk(segment, segment.tensor.bytes - done, bytes);
    if (!read.ok()) return read;
    done += bytes;
    if (watch.advance) watch.advance(bytes);
  }
  return {};
}

Status Decompressor::end() {
  std::byte bytes[kContainerEndBytes];
  Status read = input.read(at, bytes);
  if (!read.ok()) return read;
  const auto end = decode_end(bytes);
  if (!end.ok()) return end.status();
  if (at + kContainerEndBytes != input.bytes())
    return Status(Code::damaged, "damaged: bytes follow the end of the file");
  if (end.value() != ContainerEnd{summary.chunks, summary.index.bytes, chain}) {
    return Status(Code::damaged, "damaged: chunks are missing, doubled or of another file");
  }
  return {};
}

// The index, and the offset of the first chunk.
struct Opened {
  Index index;
  uint64_t chunks_at = 0;
  uint64_t hash = 0;
};

Result<Opened> open_container(const Input& input) {
  std::byte front[kContainerHeaderBytes];
  const MutableBytes header_bytes = MutableBytes(front).first(std::min<uint64_t>(input.bytes(), sizeof front));
  Status read = input.read(0, header_bytes);
  if (!read.ok()) return read;
  const auto header = decode_header(header_bytes);
  if (!header.ok()) return header.status();
  const uint64_t padded = round_up(header.value().index_bytes, 64);
  if (padded > input.bytes() - kContainerHeaderBytes)
    return Status(Code::damaged, "the file is cut short", input.path());
  std::vector<std::byte> text(padded);
  read = input.read(kContainerHeaderBytes, text);
  if (!read.ok()) return read;
  const ConstBytes json = ConstBytes(text).first(header.value().index_bytes);
  const ConstBytes padding = ConstBytes(text).subspan(json.size());
  if (codec::leaf_hash(json) != header.value().index_hash ||
      std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return Status(Code::damaged, "damaged: the index of the file was changed");
  }
  auto index = decode_index({reinterpret_cast<const char*>(json.data()), json.size()});
  if (!index.ok()) return index.status();
  if (index.value().bytes != header.value().file_bytes)
    return Status(Code::damaged, "damaged: header and index disagree");
  return Opened{std::move(index).value(), kContainerHeaderBytes + padded, header.value().index_hash};
}

}  // namespace

Result<TensorFile> describe(const Input& input, const Claims& claims) {
  std::vector<std::byte> front(std::min<uint64_t>(input.bytes(), 64));
  Status read = input.read(0, front);
  if (!read.ok()) return read;
  const uint64_t wanted = header_bytes(front, input.bytes());
  if (wanted > front.size()) {
    front.resize(wanted);
    read = input.read(0, front);
    if (!read.ok()) return read;
  }
  return read_tensors(front, input.bytes(), claims);
}

Result<Summary> compress(const Input& input, const TensorFile& file, codec::Mode mode, uint64_t row, NewFile& out,
                         const Watch& watch) {
  Compressor job{input, mode, out, watch, {}, 0, {}, {}, {}, {}};
  job.summary.index = make_index(file, row);
  job.summary.note = file.note;
  job.summary.file_bytes = file.bytes;
  Status done = job.head();
  for (const Segment& segment : job.summary.index.segments) {
    if (!done.ok()) return done;
    done = job.segment(segment);
  }
  if (done.ok()) done = job.end();
  if (!done.ok()) return done;
  job.summary.container_bytes = out.written();
  return std::move(job.summary);
}

Result<Index> read_index(const Input& input) {
  auto opened = open_container(input);
  if (!opened.ok()) return opened.status();
  return std::move(opened.value().index);
}

Result<Summary> decompress(const Input& input, bool allow_lossy, NewFile& out, const Watch& watch) {
  auto opened = open_container(input);
  if (!opened.ok()) return opened.status();
  Decompressor job{input, allow_lossy, out, watch, {}, opened.value().chunks_at, opened.value().hash, {}, {}, {}};
  job.summary.index = std::move(opened.value().index);
  job.summary.file_bytes = job.summary.index.bytes;
  job.summary.container_bytes = input.bytes();
  for (const Segment& segment : job.summary.index.segments) {
    Status done = job.segment(segment);
    if (!done.ok()) return done;
  }
  Status done = job.end();
  if (!done.ok()) return done;
  return std::move(job.summary);
}

}  // namespace kvbm::tensor
