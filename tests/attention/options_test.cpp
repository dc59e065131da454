#include <cmath>
#include <map>

#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;

constexpr std::int64_t B = 1, H = 2, Tq = 3, Tk = 3, D = 4;

// What the entry says that it takes, as shape and dtype of a tensor of zeros.
Tensor fitting(const TensorOption& option) {
  const std::map<std::string_view, Dims> shapes{{"broadcast to [B,H,Tq,Tk]", {H, 1, Tk}},
                                                {"[H,2R+1]", {H, 5}},
                                                {"[H]", {H}},
                                                {"[B]", {B}},
                                                {"[sequences + 1]", {2}}};
  const std::map<std::string_view, DType> dtypes{
      {"bool", DType::boolean}, {"floating point", DType::f32}, {"i64", DType::i64}};
  return Tensor(shapes.at(name_of(option.shape)), dtypes.at(name_of(option.type)));
}

TEST(TensorOptions, EachIsThereOnce) {
  std::vector<std::string> names;
  AttentionOptions options;
  for (const TensorOption& option : tensor_options()) {
    names.emplace_back(option.name);
    EXPECT_FALSE(options.*option.value) << option.name << " stands in the list twice";
    (options.*option.value).emplace(View());
  }
  EXPECT_THAT(names, testing::ElementsAre("mask", "bias", "distance_bias", "alibi_slopes", "sinks", "key_lengths",
                                          "query_starts", "key_starts"));
}

TEST(TensorOptions, FloatingPointHasAGradient) {
  for (const TensorOption& option : tensor_options()) {
    const bool floating = option.type == TensorOption::Type::floating;
    EXPECT_EQ(option.wanted != nullptr, floating) << option.name;
    EXPECT_EQ(option.gradient != nullptr, floating) << option.name;
    EXPECT_EQ(option.gradient_view != nullptr, floating) << option.name;
  }
}

TEST(TensorOptions, DtypeAndShapeAreChecked) {
  const Tensor x({B, H, Tq, D});
  for (const TensorOption& option : tensor_options()) {
    AttentionOptions options;
    // Both or neither; each is wrong below in its own turn.
    const Tensor starts = Tensor({2}, DType::i64);
    if (option.shape == TensorOption::Shape::starts) options.query_starts = options.key_starts = starts;
    const Tensor wrong_dtype = fitting(option).view().to(DType::u8), wrong_shape({7, 7}, fitting(option).dtype());
    options.*option.value = wrong_dtype;
    expect_error(
        ErrorCode::bad_dtype, [&] { attention(x, x, x, options); },
        "attention: " + std::string(option.name) + " is u8, expected " + std::string(name_of(option.type)));
    options.*option.value = wrong_shape;
    expect_error(
        ErrorCode::bad_shape, [&] { attention(x, x, x, options); },
        "attention: " + std::string(option.name) + " has shape [7,7], expected ");
  }
}

TEST(TensorOptions, NoResultLiesInTheirMemory) {
  const Tensor x({B, H, Tq, D});
  for (const TensorOption& option : tensor_options()) {
    Tensor out({B, H, Tq, D});
    const Tensor like = fitting(option), starts = Tensor::from({2}, {0, Tq}).view().to(DType::i64);
    AttentionOptions options;
    if (option.shape == TensorOption::Shape::starts) {
      options.query_starts = options.key_starts = starts;
      std::memcpy(out.raw(), starts.raw(), sizeof(std::int64_t) * 2);
    }
    options.*option.value = View(out.raw(), like.dtype(), like.shape());
    expect_error(
        ErrorCode::bad_value, [&] { attention_into(out.view(), {}, x, x, x, options); },
        "attention_into: out shares memory with " + std::string(option.name));
  }
}

TEST(TensorOptions, AGradientIsWantedOfWhatIsGiven) {
  const Tensor x({B, H, Tq, D});
  const AttentionResult forward = attention(x, x, x);
  for (const TensorOption& option : tensor_options()) {
    if (!option.wanted) continue;
    BackwardOptions wanted;
    wanted.*option.wanted = true;
    const std::string name(option.name);
    expect_error(
        ErrorCode::bad_value, [&] { attention_backward(x, x, x, x, forward.out, forward.lse, {}, wanted); },
        "attention_backward: d" + name + " is wanted, but " + name + " is not given");
    const Tensor given = fitting(option);
    AttentionOptions options;
    options.*option.value = given;
    const AttentionGradients gradients = attention_backward(x, x, x, x, forward.out, forward.lse, options, wanted);
    ASSERT_TRUE(gradients.*option.gradient) << name;
    EXPECT_EQ((gradients.*option.gradient)->shape(), given.shape()) << name;
  }
}

TEST(NumberOptions, EachIsThereOnceAndIsChecked) {
  const Tensor x({B, H, Tq, D});
  AttentionOptions seen;
  for (const NumberOption& option : number_options()) {
    EXPECT_EQ(seen.*option.value, 0) << option.name << " stands in the list twice, or adds something by default";
    seen.*option.value = 1;
    for (const double wrong : {-1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
      AttentionOptions options;
      options.*option.value = wrong;
      expect_error(
          ErrorCode::bad_value, [&] { attention(x, x, x, options); }, "attention: " + std::string(option.name) + " is ",
          "expected 0 (none) or a positive number");
    }
  }
}

// That what they say of themselves is so: with more keys than queries each needs an offset, or does not.
TEST(TensorOptions, PositionalOnesNeedAnOffset) {
  const Tensor q({B, H, Tq, D}), k({B, H, Tk + 1, D});
  for (const TensorOption& option : tensor_options()) {
    if (option.shape != TensorOption::Shape::heads && option.shape != TensorOption::Shape::distances) continue;
    const Tensor given = fitting(option);
    AttentionOptions options;
    options.*option.value = given;
    if (!option.positional) {
      attention(q, k, k, options);
      continue;
    }
    expect_error(
        ErrorCode::bad_value, [&] { attention(q, k, k, options); }, std::string(option.name), "need an offset");
  }
}

}  // namespace
}  // namespace attend
