#include "attend/error.h"

#include <functional>
#include "attend/attention.h"
#include "core/message.h"

#include "tests/expect.h"

namespace attend {
namespace {

Error caught(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::bad_value, "", "");
}

TEST(Error, CarriesFunctionAndDetail) {
  const Tensor q({2, 4}), k({2, 3});
  const Error error = caught([&] { attention(q, k, k); });
  EXPECT_EQ(error.function(), "attention");
  EXPECT_THAT(std::string(error.detail()), testing::StartsWith("k has head size 3, q has 4"));
  EXPECT_EQ(error.what(), "attention: " + std::string(error.detail()));
}

TEST(Error, WithoutAFunctionIsTheDetailAlone) {
  const Error error = caught([] { element_count({2, -1}); });
  EXPECT_EQ(error.function(), "");
  EXPECT_EQ(error.detail(), "shape [2,-1] has a negative size");
  EXPECT_STREQ(error.what(), "shape [2,-1] has a negative size");
}

TEST(Error, APlaceIsPartOfTheDetail) {
  const Place file{"read_npz", "'q.npz'"};
  const Error error = caught([&] { fail(ErrorCode::bad_file, file.in("member 'a'"), "byte {}: {}", 7, "cut: short"); });
  EXPECT_EQ(error.function(), "read_npz");
  EXPECT_EQ(error.detail(), "'q.npz': member 'a': byte 7: cut: short");
  EXPECT_STREQ(error.what(), "read_npz: 'q.npz': member 'a': byte 7: cut: short");
}

}  // namespace
}  // namespace attend
