#include "policy/admission.h"

namespace kvbm::policy {

std::unique_ptr<Admission> make_admission(std::string_view name, const AdmissionOptions& options) {
  if (options.uses < 1 || options.uses > 15) return nullptr;
  if (name == "all" || name == "on_eviction") return std::make_unique<Admission>(true);
  if (name == "on_request") return std::make_unique<Admission>(false);
  if (name == "after_uses" || name == "frequency") return std::make_unique<Admission>(options, name == "frequency");
  return nullptr;
}

}  // namespace kvbm::policy
