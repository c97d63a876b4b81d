#include "support/fatbin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#ifdef KVBM_WITH_ZSTD
#include <zstd.h>
#endif

namespace kvbm::test {

namespace {

constexpr uint32_t kMagic = 0xBA55ED50;
constexpr size_t kHeader = 16;
constexpr size_t kEntryHeader = 64;
constexpr uint16_t kPtx = 1, kElf = 2;
constexpr uint16_t kCudaMachine = 190;
constexpr uint32_t kCompressedBytesAt = 16;
constexpr uint32_t kArchitectureAt = 28;
constexpr uint32_t kPlainBytesAt = 56;

template <class T>
bool read_at(ConstBytes bytes, uint64_t at, T& out) {
  if (at > bytes.size() || sizeof out > bytes.size() - at) return false;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return true;
}

std::string_view text_at(ConstBytes bytes, uint64_t at) {
  if (at >= bytes.size()) return {};
  const auto* const text = reinterpret_cast<const char*>(bytes.data() + at);
  return {text, ::strnlen(text, bytes.size() - at)};
}

// Instructions of all architectures from 7.0 on are 16 bytes, and a 32-bit constant of one is its second word.
constexpr size_t kInstruction = 16;
constexpr size_t kImmediateAt = 4;
constexpr std::string_view kText = ".text.";

size_t count_immediates(ConstBytes code, uint32_t immediate) {
  size_t n = 0;
  uint32_t word = 0;
  for (uint64_t at = 0; read_at(code, at + kImmediateAt, word); at += kInstruction) n += word == immediate ? 1 : 0;
  return n;
}

// Kernels are the global functions of a cubin; what it was inlined from leaves none.
bool read_machine_code(ConstBytes elf, uint32_t immediate, FatbinEntry& out) {
  Elf64_Ehdr head;
  if (!read_at(elf, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (head.e_machine != kCudaMachine) return false;
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  for (size_t i = 0; i < sections.size(); ++i) {
    if (!read_at(elf, head.e_shoff + i * head.e_shentsize, sections[i])) return false;
  }
  if (head.e_shstrndx >= sections.size()) return false;
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = text_at(elf, sections[head.e_shstrndx].sh_offset + section.sh_name);
    if (name.starts_with(kText)) {
      if (section.sh_offset > elf.size() || section.sh_size > elf.size() - section.sh_offset) return false;
      out.immediates[std::string(name.substr(kText.size()))] =
          count_immediates(elf.subspan(section.sh_offset, section.sh_size), immediate);
    }
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (!read_at(elf, section.sh_offset + at, symbol)) return false;
      const bool global = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL;
      if (!global || symbol.st_shndx == SHN_UNDEF) continue;
      out.kernels.emplace_back(text_at(elf, sections[section.sh_link].sh_offset + symbol.st_name));
    }
  }
  return true;
}

void read_ptx(ConstBytes bytes, std::vector<std::string>& kernels) {
  const std::string_view text = text_at(bytes, 0);
  constexpr std::string_view kEntry = ".entry ";
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    kernels.emplace_back(text.substr(at, text.find_first_of("( \n", at) - at));
  }
}

// Decompressed bytes of an entry; empty if they are compressed by another codec than zstd.
std::vector<std::byte> plain_of(ConstBytes payload, uint32_t compressed, uint64_t plain_bytes) {
  if (compressed == 0) return {payload.begin(), payload.end()};
#ifdef KVBM_WITH_ZSTD
  constexpr uint64_t kMostPlainBytes = 64ULL << 20;
  if (compressed > payload.size() || plain_bytes > kMostPlainBytes) return {};
  std::vector<std::byte> out(plain_bytes);
  if (ZSTD_decompress(out.data(), out.size(), payload.data(), compressed) != plain_bytes) return {};
  return out;
#else
  (void)plain_bytes;
  return {};
#endif
}

// Reads the entry at the start of `rest`. Returns its length, or 0 if there is none.
uint64_t read_entry(ConstBytes rest, uint32_t immediate, Fatbin& out) {
  uint16_t kind = 0;
  uint32_t header = 0, compressed = 0, architecture = 0;
  uint64_t bytes = 0, plain_bytes = 0;
  if (!read_at(rest, 0, kind) || !read_at(rest, 4, header) || !read_at(rest, 8, bytes) ||
      !read_at(rest, kCompressedBytesAt, compressed) || !read_at(rest, kArchitectureAt, architecture) ||
      !read_at(rest, kPlainBytesAt, plain_bytes) || header < kEntryHeader || header > rest.size() ||
      bytes > rest.size() - header) {
    out.refused = "an entry reaches beyond the image";
    return 0;
  }
  FatbinEntry entry;
  entry.architecture = architecture;
  const std::vector<std::byte> plain = plain_of(rest.subspan(header, bytes), compressed, plain_bytes);
  const ConstBytes payload = plain;
  if (payload.empty()) {
    out.refused = "an entry is compressed in a way that is not known here";
    return 0;
  }
  if (kind == kElf) {
    entry.kind = FatbinEntry::Kind::machine_code;
    if (!read_machine_code(payload, immediate, entry)) {
      out.refused = "machine code is no ELF file of CUDA's";
      return 0;
    }
  } else if (kind == kPtx) {
    read_ptx(payload, entry.kernels);
  } else {
    out.refused = "an entry is of kind " + std::to_string(kind);
    return 0;
  }
  std::sort(entry.kernels.begin(), entry.kernels.end());
  out.entries.push_back(std::move(entry));
  return header + bytes;
}

}  // namespace

Fatbin read_fatbin(ConstBytes image, uint32_t immediate) {
  Fatbin out;
  uint32_t magic = 0;
  uint16_t header = 0;
  uint64_t bytes = 0;
  if (!read_at(image, 0, magic) || magic != kMagic || !read_at(image, 6, header) || !read_at(image, 8, bytes) ||
      header < kHeader || header > image.size() || bytes > image.size() - header) {
    out.refused = "it does not begin as a fatbin does";
    return out;
  }
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t used = read_entry(image.subspan(header + at, bytes - at), immediate, out);
    if (used == 0) return out;
    at += used;
  }
  return out;
}

}  // namespace kvbm::test
