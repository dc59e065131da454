// What every test of the library uses: comparing tensors, and expecting an Error.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>

#include "attend/attend.h"

namespace attend::test {

// A file under tests/.
std::filesystem::path data(const std::string& name);

// The statement throws attend::Error with this code, and its message contains each of the given texts.
template <class Statement, class... Texts>
void expect_error(ErrorCode code, Statement statement, const Texts&... texts) {
  try {
    statement();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& text : {std::string(), std::string(texts)...})
      EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

// The largest difference, as a part of the largest magnitude in `expected`; infinite where NaN meets a number.
inline double relative_error(const View& actual, const View& expected) {
  const Tensor a = actual.to(DType::f64);
  const Tensor e = expected.to(DType::f64);
  double difference = 0;
  double magnitude = 0;
  for (std::int64_t i = 0; i < e.count(); ++i) {
    const double x = a.data<double>()[i];
    const double y = e.data<double>()[i];
    if (std::isnan(x) != std::isnan(y)) return INFINITY;
    if (std::isnan(x) || x == y) continue;
    difference = std::max(difference, std::abs(x - y));
    if (std::isfinite(y)) magnitude = std::max(magnitude, std::abs(y));
  }
  return difference == 0 ? 0 : difference / magnitude;
}

inline void expect_close(const View& actual, const View& expected, double tolerance, const std::string& what = "") {
  ASSERT_EQ(actual.shape().str(), expected.shape().str()) << what;
  EXPECT_LE(relative_error(actual, expected), tolerance) << what;
}

// Same shape, dtype and bits of every element, however the two lie in memory.
inline void expect_same(const View& actual, const View& expected, const std::string& what = "") {
  ASSERT_EQ(actual.shape().str(), expected.shape().str()) << what;
  ASSERT_EQ(name_of(actual.dtype()), name_of(expected.dtype())) << what;
  const Tensor a = actual.clone();
  const Tensor e = expected.clone();
  const auto bytes = static_cast<std::size_t>(a.count() * size_of(a.dtype()));
  EXPECT_TRUE(bytes == 0 || std::memcmp(a.raw(), e.raw(), bytes) == 0) << what;
}

}  // namespace attend::test
