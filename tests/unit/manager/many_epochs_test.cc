// More invalidated namespaces than a manager keeps epochs of, beside records of an earlier process.
#include <gtest/gtest.h>

#include "support/small_manager.h"

namespace kvbm::manager::many_epochs_test {
namespace {

NamespaceOptions who(const std::string& model) {
  NamespaceOptions out;
  out.model = model;
  return out;
}

class ManyEpochs : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::all); }
  void restart() {
    TearDown();
    ns_.reset();
    manager_.reset();
    make(AdmissionKind::all);
  }
};

// Which epoch such records are of is not known.
TEST_F(ManyEpochs, rows_go_also_where_records_are_whose_namespace_nobody_has_opened) {
  {
    auto other = manager_->open_namespace(who("not opened again"));
    family_ = other.value()->plan({}).value().family;
    put(2);
    flush();
    auto old = manager_->open_namespace(who("invalidated before"));
    ASSERT_TRUE(manager_->invalidate(*old.value()).ok());
  }
  restart();
  ASSERT_EQ(manager_->epoch_rows().all, 1U);
  for (uint64_t n = 0; n < EpochTable::kRows + 500; ++n) {
    auto one = manager_->open_namespace(who("model " + std::to_string(n)));
    ASSERT_TRUE(one.ok());
    ASSERT_TRUE(one.value()->plan({}).ok());
    const Status done = manager_->invalidate(*one.value());
    ASSERT_TRUE(done.ok()) << n << ": " << done.message();
  }
  EXPECT_EQ(manager_->open_namespace(who("invalidated before")).value()->epoch(), 1U) << "that one may be of its epoch 0";
}

}  // namespace
}  // namespace kvbm::manager::many_epochs_test
