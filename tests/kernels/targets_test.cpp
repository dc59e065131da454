// Which target runs. tests/CMakeLists.txt starts the tests once for each that can be forced, and once with none such.
#include "kernels/targets.h"

#include <cstdlib>
#include <set>
#include <string>

#include "tests/expect.h"

namespace attend {
namespace {

std::string forced() {
  const char* name = std::getenv("ATTEND_TARGET");
  return name ? name : "";
}

bool is_known(const std::string& name) {
  for (const kernels::Target* target : kernels::targets())
    if (target->supported() && target->name == name) return true;
  return false;
}

TEST(Target, TheForcedOneRunsElseTheFastest) {
  if (!forced().empty() && !is_known(forced())) GTEST_SKIP() << "ATTEND_TARGET is no target here";
  std::string best;
  for (const kernels::Target* target : kernels::targets())
    if (target->supported()) best = target->name;
  EXPECT_EQ(kernels::target().name, forced().empty() ? best : forced());
  EXPECT_EQ(plan({5, 4}, {5, 4}, {5, 4}).target, forced().empty() ? best : forced());
}

TEST(UnknownTarget, IsAnErrorThatNamesTheChoices) {
  if (forced().empty() || is_known(forced())) GTEST_SKIP() << "ATTEND_TARGET is a target, or not set";
  const Tensor x({2, 3});
  std::string choices;
  for (const kernels::Target* target : kernels::targets())
    if (target->supported()) choices += (choices.empty() ? "" : ", ") + std::string(target->name);
  // Each time, not only the first.
  for (int i = 0; i < 2; ++i) {
    test::expect_error(
        ErrorCode::bad_value, [&] { attention(x, x, x); }, "ATTEND_TARGET is '" + forced() + "'", choices);
  }
  test::expect_error(
      ErrorCode::bad_value,
      [] {
        plan({2, 3}, {2, 3}, {2, 3});
      },
      "ATTEND_TARGET");
  // f64 needs no target.
  EXPECT_EQ(attention(Tensor({2, 3}, DType::f64), Tensor({2, 3}, DType::f64), Tensor({2, 3}, DType::f64)).out.count(),
            6);
}

TEST(Target, NamesAreDistinctAndSizesFitTheTiles) {
  std::set<std::string> names;
  for (const kernels::Target* target : kernels::targets()) {
    EXPECT_TRUE(names.insert(target->name).second) << target->name;
    EXPECT_EQ(kernels::tile_keys % target->tile_height, 0) << target->name;
    EXPECT_EQ(target->panel_rows % target->lanes, 0) << target->name;
  }
}

}  // namespace
}  // namespace attend
