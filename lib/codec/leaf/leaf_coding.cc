#include "codec/leaf/leaf_coding.h"

#include <new>

namespace kvbm::codec {
namespace {

constexpr std::align_val_t kWorkspaceAlign{64};

struct Name {
  Mode mode;
  std::string_view name;
};
constexpr Name kNames[] = {
    {Mode::off, "off"},
    {Mode::fast, "fast"},
    {Mode::standard, "default"},
    {Mode::max, "max"},
    {Mode::zstd, "zstd"},
    {Mode::fp8_e4m3, "fp8_e4m3"},
    {Mode::fp8_e5m2, "fp8_e5m2"},
    {Mode::int8, "int8"},
    {Mode::int6, "int6"},
    {Mode::int4, "int4"},
    {Mode::int8_coded, "int8_coded"},
    {Mode::int6_coded, "int6_coded"},
    {Mode::int4_coded, "int4_coded"},
    {Mode::delta, "delta"},
};

}  // namespace

std::optional<Mode> mode_by_name(std::string_view name) noexcept {
  for (const Name& known : kNames) {
    if (known.name == name) return known.mode;
  }
  return std::nullopt;
}

std::string_view mode_name(Mode mode) noexcept {
  for (const Name& known : kNames) {
    if (known.mode == mode) return known.name;
  }
  return "unknown";
}

void Workspace::Free::operator()(std::byte* p) const noexcept { ::operator delete(p, kWorkspaceAlign); }

std::byte* Workspace::allocated(Memory& memory, size_t bytes) noexcept {
  if (memory == nullptr) memory.reset(static_cast<std::byte*>(::operator new(bytes, kWorkspaceAlign, std::nothrow)));
  return memory.get();
}

std::byte* Workspace::take(size_t bytes) noexcept {
  return bytes > kWorkspaceBytes ? nullptr : allocated(memory_, kWorkspaceBytes);
}

std::byte* Workspace::stage() noexcept { return allocated(stage_, encode_room(kMaxLeafBytes)); }

}  // namespace kvbm::codec
