#include "manager/lower/coding_terms.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvbm::test::coding_terms_test {
namespace {

using manager::CodingTerms;

class CodingTermsTest : public ::testing::Test {
 protected:
  static codec::Recipe recipe(const char* text) { return codec::Recipe::parse(text).value(); }
  std::shared_ptr<const void> join(const char* text, bool allow_lossy) {
    CodingTerms::Wish wish;
    if (text != nullptr) wish.recipe = recipe(text);
    wish.allow_lossy = allow_lossy;
    return terms_->join(id_, std::move(wish));
  }
  codec::Recipe now() const { return terms_->of(1)->recipe; }
  bool lossy_is_read() const { return terms_->of(1)->allow_lossy; }

  const std::shared_ptr<CodingTerms> terms_ = std::make_shared<CodingTerms>();
  const NamespaceId id_{};
};

TEST_F(CodingTermsTest, knows_nothing_of_a_family_that_nobody_added) {
  EXPECT_EQ(terms_->of(1), nullptr);
  const auto handle = join("int8", true);
  EXPECT_EQ(terms_->of(1), nullptr);
  terms_->add(id_, 1, {});
  EXPECT_EQ(now(), recipe("int8"));
}

TEST_F(CodingTermsTest, writes_lossy_only_while_every_handle_is_for_it) {
  terms_->add(id_, 1, {});
  const auto writer = join("int8", false);
  EXPECT_TRUE(now().lossy());
  EXPECT_FALSE(lossy_is_read());
  const auto reader = join(nullptr, true);
  EXPECT_TRUE(now().lossy());
  EXPECT_TRUE(lossy_is_read());
  {
    const auto exact = join(nullptr, false);
    EXPECT_FALSE(now().lossy());
    EXPECT_TRUE(now().rules.empty());
    const auto exact_too = join("max", false);
    EXPECT_EQ(now(), recipe("max"));
  }
  EXPECT_TRUE(now().lossy());
}

TEST_F(CodingTermsTest, keeps_what_was_decided_last_but_reads_nothing_lossy_without_a_handle) {
  terms_->add(id_, 1, {});
  { const auto handle = join("int6", true); }
  EXPECT_EQ(now(), recipe("int6"));
  EXPECT_FALSE(lossy_is_read());
}

TEST_F(CodingTermsTest, says_the_form_of_a_shape) {
  auto geometry = layout::Geometry::make(16, {layout::attention(4, 2, 64, layout::Element::bf16)}, 1);
  ASSERT_TRUE(geometry.ok());
  auto shape = layout::RecordShape::make(geometry.value(), 0, {1, 2, 0, 2, 0}, 1);
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  terms_->add(id_, 1, shape.value(), 4);
  const auto terms = terms_->of(1);
  EXPECT_EQ(terms->plain_bytes, shape.value().payload_bytes());
  EXPECT_EQ(terms->form.element, codec::Element::bf16);
  EXPECT_EQ(terms->form.row, 64U);
  EXPECT_EQ(terms->form.rows, 16U);
  EXPECT_EQ(terms->form.planes, 2U);
  EXPECT_EQ(terms->form.layer(0), 1U);
  EXPECT_EQ(terms->form.layer(shape.value().leaf_count() - 1), 2U);
  EXPECT_EQ(terms->form.leaf_form(0).depth, 0U);
  EXPECT_EQ(terms->form.leaf_form(shape.value().leaf_count() - 1).depth, 1U);
  EXPECT_EQ(terms->form.plane(shape.value().leaf_count() - 1), 1U);
}

TEST_F(CodingTermsTest, handles_may_outlive_the_manager_that_gave_them) {
  auto own = std::make_shared<CodingTerms>();
  const auto handle = own->join(id_, {});
  own.reset();
}

TEST_F(CodingTermsTest, keeps_nothing_of_namespaces_that_have_no_handle_and_no_family) {
  for (uint8_t n = 1; n <= 100; ++n) {
    NamespaceId id;
    id.bytes.fill(n);
    const auto handle = terms_->join(id, {recipe("int8"), true});
    if (n > 50) terms_->add(id, n, {});
  }
  EXPECT_EQ(terms_->namespaces(), 50U) << "those that were stored into";
  const auto handle = join("int8", true);
  terms_->add(id_, 1, {});
  std::vector<FamilyId> gone;
  for (FamilyId family = 51; family <= 100; ++family) gone.push_back(family);
  terms_->forget_families(gone);
  EXPECT_EQ(terms_->namespaces(), 1U);
  EXPECT_EQ(terms_->of(60), nullptr);
  const std::vector<FamilyId> last = {1};
  terms_->forget_families(last);
  EXPECT_EQ(terms_->of(1), nullptr);
  EXPECT_EQ(terms_->namespaces(), 1U) << "it is open";
  terms_->add(id_, 2, {});
  EXPECT_EQ(terms_->of(2)->recipe, recipe("int8"));
}

}  // namespace
}  // namespace kvbm::test::coding_terms_test
