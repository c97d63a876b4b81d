#include "device/driver/loaded_library.h"

#include <gtest/gtest.h>

namespace kvbm::device::loaded_library_test {
namespace {

struct Table {
  int (*labs)(int) = nullptr;
  void (*missing)() = nullptr;
  void (*newer)() = nullptr;
};
constexpr TableEntry kEntries[] = {{"labs", "labs", offsetof(Table, labs), true},
                                   {"missing", "kvbm_no_such_entry", offsetof(Table, missing), true},
                                   {"newer", "kvbm_no_such_newer_entry", offsetof(Table, newer), false}};

TEST(LoadedLibrary, what_is_required_and_missing_is_named) {
  const auto library = open_library("libc.so.6", "no C library");
  ASSERT_TRUE(library.ok()) << library.status().message();
  Table table;
  EXPECT_EQ(fill_table(library.value(), kEntries, &table), "kvbm_no_such_entry");
  EXPECT_NE(table.labs, nullptr);
  EXPECT_EQ(table.newer, nullptr);
}

TEST(LoadedLibrary, one_that_is_not_there_is_named_with_what_it_was_for) {
  const auto library = open_library("/nowhere/libnone.so", "no usable none");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::unsupported);
  EXPECT_NE(library.status().message().find("no usable none"), std::string::npos);
  EXPECT_NE(library.status().message().find("/nowhere/libnone.so"), std::string::npos);
}

struct Counted {
  int number = 0;
};
int loads = 0;
Result<Counted> load(const std::string& path) {
  ++loads;
  if (path == "bad") return Status(Code::unsupported, "it does not begin");
  return Counted{loads};
}

TEST(LoadedLibrary, a_path_is_loaded_once_also_when_it_is_refused) {
  LoadedLibraries<Counted> all(load);
  EXPECT_FALSE(all.has_any());
  EXPECT_EQ(all.get("bad").status().code(), Code::unsupported);
  EXPECT_EQ(all.get("bad").status().code(), Code::unsupported);
  EXPECT_EQ(loads, 1);
  EXPECT_FALSE(all.has_any());
  const Counted* const first = all.get("good").value();
  EXPECT_EQ(all.get("good").value(), first);
  EXPECT_EQ(first->number, 2);
  EXPECT_TRUE(all.has_any());
  EXPECT_NE(all.get("another").value(), first);
}

}  // namespace
}  // namespace kvbm::device::loaded_library_test
