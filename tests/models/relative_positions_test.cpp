// Buckets of distances: Transformers' (make_relative_positions_golden.py), and no more of them than texts need.
#include "models/families/relative_positions.h"

#include "tests/expect.h"

namespace attend {
namespace {

using models::relative_bias;
using test::data;

// Whose numbers are their buckets, but for the head.
Tensor numbered(std::int64_t buckets, std::int64_t heads, DType dtype = DType::f32) {
  Tensor out({buckets, heads});
  for (std::int64_t n = 0; n < out.count(); ++n) {
    const std::int64_t bucket = n / heads, head = n % heads;
    out.data<float>()[n] = static_cast<float>(bucket) + static_cast<float>(head) / 2;
  }
  return out.view().to(dtype);
}

void expect_buckets(const View& expected, const Tensor& bias, const std::string& what) {
  ASSERT_EQ(bias.dtype(), DType::f32);
  const std::int64_t most = expected.size(0) / 2, H = bias.size(0), R = bias.size(1) / 2;
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t n = -most; n <= most; ++n)
      EXPECT_EQ(bias.data<float>()[h * (2 * R + 1) + R + std::clamp(n, -R, R)],
                static_cast<const float*>(expected.raw())[most + n] + static_cast<float>(h) / 2)
          << what << " distance " << n;
  }
}

TEST(RelativePositions, HaveTransformersBuckets) {
  const TensorMap golden = read_safetensors(data("golden/relative_positions.safetensors")).tensors;
  expect_buckets(golden.at("mpnet"), relative_bias(numbered(32, 3), true, 32, 128, 1000), "mpnet");
  expect_buckets(golden.at("mpnet"), relative_bias(numbered(40, 2, DType::bf16), true, 32, 128, 1000), "mpnet bf16");
  const std::pair<int, int> sizes[] = {{32, 128}, {64, 256}, {33, 100},  {12, 27},
                                       {20, 243}, {4, 2},    {10, 2000}, {18, 128}};
  for (const auto& [buckets, most] : sizes) {
    const std::string name = std::to_string(buckets) + "." + std::to_string(most);
    expect_buckets(golden.at("t5." + name), relative_bias(numbered(buckets, 1), true, buckets, most, 5000), name);
    expect_buckets(golden.at("t5.one." + name),
                   relative_bias(numbered(buckets, 2), false, buckets, std::max(most, buckets), 5000), name + " one");
  }
}

TEST(RelativePositions, EndWhereNothingChanges) {
  const auto radius = [](std::int64_t max_distance, std::int64_t longest) {
    return relative_bias(numbered(32, 2), true, 32, max_distance, longest).size(1) / 2;
  };
  EXPECT_EQ(radius(128, 512), 91);  // 8 + 8 log(91 / 8) / log(16) is above 15, the last
  EXPECT_EQ(radius(128, 40), 40);
  EXPECT_EQ(radius(std::int64_t{1} << 40, 512), 512);
}

}  // namespace
}  // namespace attend
