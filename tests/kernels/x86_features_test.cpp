// What CPUID says is what Linux says of the same processor in /proc/cpuinfo.
#ifdef __x86_64__
#include "kernels/x86_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace attend {
namespace {

std::set<std::string> flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(X86Features, AreThoseOfTheSystem) {
  const std::set<std::string> all = flags();
  if (all.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags here";
  const auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!all.contains(name)) return false;
    return true;
  };
  const bool avx2 = has({"avx2", "fma", "f16c"});
  const bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  EXPECT_EQ(kernels::x86_features().avx2, avx2);
  EXPECT_EQ(kernels::x86_features().avx2_vnni, avx2 && has({"avx_vnni"}));
  EXPECT_EQ(kernels::x86_features().avx512, avx512);
  EXPECT_EQ(kernels::x86_features().avx512_vnni, avx512 && has({"avx512_vnni"}));
  EXPECT_EQ(kernels::x86_features().avx512_bf16, avx512 && has({"avx512_bf16", "avx512_vnni"}));
}

}  // namespace
}  // namespace attend
#endif
