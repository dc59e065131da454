// Runs the tests; or, where ATTEND_TARGET names a target that the processor lacks, says so and exits with 4.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kernels/targets.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* forced = std::getenv("ATTEND_TARGET");
  for (const attend::kernels::Target* target : attend::kernels::targets()) {
    if (!forced || std::string_view(forced) != target->name || target->supported()) continue;
    std::printf("skipped: this processor does not run the target %s\n", target->name);
    return 4;
  }
  return RUN_ALL_TESTS();
}
