// The one place that knows where the tests' files lie: all else compiles alike in every clone, so that a cache serves
// them.
#include "tests/expect.h"

namespace attend::test {

std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(ATTEND_TEST_DATA) / name;
}

}  // namespace attend::test
