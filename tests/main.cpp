// Runs the tests; or, where ATTEND_TARGET names a target that the processor lacks, says so and exits with 4.
//   --other-targets  of the target that this processor chooses by itself only that it can be forced: the rest has run
//                    without ATTEND_TARGET
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kernels/targets.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool other_targets = argc > 1 && std::string_view(argv[1]) == "--other-targets";
  const char* name = std::getenv("ATTEND_TARGET");
  const attend::kernels::Target *forced = nullptr, *best = nullptr;
  for (const attend::kernels::Target* target : attend::kernels::targets()) {
    if (name && std::string_view(name) == target->name) forced = target;
    if (target->supported()) best = target;
  }
  if (forced && !forced->supported()) {
    std::printf("skipped: this processor does not run the target %s\n", name);
    return 4;
  }
  if (other_targets && forced == best) GTEST_FLAG_SET(filter, "Target.*");
  return RUN_ALL_TESTS();
}
