#include "policy/admission.h"

#include <array>

#include "policy/sketch.h"

namespace kvbm::policy {
namespace {

constexpr std::array<std::string_view, 5> kAdmissionNames = {"all", "on_eviction", "after_uses", "frequency",
                                                             "on_request"};

class Everything final : public Admission {
 public:
  explicit Everything(bool on_eviction) : on_eviction_(on_eviction) {}
  std::string_view name() const noexcept override { return kAdmissionNames[on_eviction_ ? 1 : 0]; }
  void used(uint64_t) noexcept override {}
  bool admits(uint64_t) const noexcept override { return true; }
  bool on_eviction() const noexcept override { return on_eviction_; }
  size_t bytes() const noexcept override { return sizeof *this; }

 private:
  bool on_eviction_;
};

class Nothing final : public Admission {
 public:
  std::string_view name() const noexcept override { return kAdmissionNames[4]; }
  void used(uint64_t) noexcept override {}
  bool admits(uint64_t) const noexcept override { return false; }
  size_t bytes() const noexcept override { return sizeof *this; }
};

class Counted final : public Admission {
 public:
  Counted(const AdmissionOptions& options, bool fades)
      : sketch_(options.capacity, fades), uses_(options.uses), fades_(fades) {}
  std::string_view name() const noexcept override { return kAdmissionNames[fades_ ? 3 : 2]; }
  void used(uint64_t block) noexcept override { sketch_.add(block); }
  bool admits(uint64_t block) const noexcept override { return sketch_.count(block) >= uses_; }
  size_t bytes() const noexcept override { return sizeof *this + sketch_.bytes(); }

 private:
  Sketch sketch_;
  uint32_t uses_;
  bool fades_;
};

}  // namespace

std::unique_ptr<Admission> make_admission(std::string_view name, const AdmissionOptions& options) {
  if (options.uses < 1 || options.uses > 15) return nullptr;
  if (name == kAdmissionNames[0] || name == kAdmissionNames[1])
    return std::make_unique<Everything>(name == kAdmissionNames[1]);
  if (name == kAdmissionNames[2] || name == kAdmissionNames[3])
    return std::make_unique<Counted>(options, name == kAdmissionNames[3]);
  if (name == kAdmissionNames[4]) return std::make_unique<Nothing>();
  return nullptr;
}

}  // namespace kvbm::policy
