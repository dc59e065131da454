// jacobian_lens() on the models of tests/golden: beside gradient() of each number, and on from what was kept.
// test_jacobian_lens.py has the numbers beside torch.autograd.functional.jacobian.
#include "attend/jacobian_lens.h"

#include <cmath>
#include <new>
#include <utility>
#include <vector>

#include "attend/analysis.h"
#include "attend/gradient.h"
#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

using Ids = std::vector<std::int64_t>;
const std::vector<Ids> prompts{{3, 7, 5, 12, 9, 4, 8}, {2, 8, 8, 1, 6}};
const JacobianOptions two{.skip = 2};

Model load(const std::string& name) {
  return Model::load(data("golden/models/" + name));
}

// Of one number of the last stream: the sum over the rows that count, by what stands after `layer`.
std::vector<double> row_of(const Model& model, const Ids& ids, std::int64_t layer, std::int64_t number) {
  const std::int64_t N = std::ssize(ids), E = model.info().embedding_size;
  Tensor ones({N, E});
  for (std::int64_t row = two.skip; row < N - 1; ++row) ones.data<float>()[row * E + number] = 1;
  const Cotangent at{.at = ModelPlace::residual, .layer = model.info().layers, .values = ones.view()};
  std::vector<double> mean(static_cast<std::size_t>(E));
  const auto observe = [&](ModelPlace place, std::int64_t of, const View& d) {
    if (place != ModelPlace::residual || of != layer + 1) return;
    const Tensor rows = d.to(DType::f32);
    for (std::int64_t row = two.skip; row < N - 1; ++row)
      for (std::int64_t e = 0; e < E; ++e)
        mean[static_cast<std::size_t>(e)] +=
            static_cast<double>(rows.data<float>()[row * E + e]) / static_cast<double>(N - 1 - two.skip);
  };
  gradient(model, ids, {.of = GradientOf::sum, .at_places = {&at, 1}, .observe = observe});
  return mean;
}

TEST(JacobianLens, IsTheGradientOfEachNumber) {
  for (const std::string name : {"llama", "gpt2", "gpt_neox", "opt", "gemma3"}) {
    const Model model = load(name);
    const JacobianLens lens = jacobian_lens(model, std::span(prompts).first(1), {.skip = 2, .block = 3});
    ASSERT_EQ(std::ssize(lens.jacobians), model.info().layers - 1) << name;
    const std::int64_t E = model.info().embedding_size;
    for (std::int64_t layer = 0; layer < std::ssize(lens.jacobians); ++layer)
      for (const std::int64_t number : {std::int64_t{0}, E - 1}) {
        const std::vector<double> expected = row_of(model, prompts[0], layer, number);
        const float* got = lens.jacobians[static_cast<std::size_t>(layer)].data<float>() + number * E;
        for (std::int64_t e = 0; e < E; ++e)
          EXPECT_NEAR(static_cast<double>(got[e]), expected[static_cast<std::size_t>(e)], 1e-5)
              << name << " " << layer << " " << number;
      }
  }
}

TEST(JacobianLens, GoesOnFromWhatWasKept) {
  const Model model = load("llama");
  std::vector<JacobianLens> kept;
  JacobianOptions options = two;
  std::vector<double> told;
  options.progress = [&](double share) { told.push_back(share); };
  options.keep = [&](const JacobianLens& lens) {
    JacobianLens copy;
    copy.merge(lens);
    kept.push_back(std::move(copy));
  };
  const JacobianLens whole = jacobian_lens(model, prompts, options);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_EQ(told.back(), 1);
  EXPECT_EQ((std::vector{kept[0].prompts, kept[1].prompts, whole.prompts}), (std::vector<std::int64_t>{1, 2, 2}));
  const JacobianLens on = jacobian_lens(model, prompts, two, std::move(kept[0]));
  EXPECT_EQ(on.texts, whole.texts);
  for (std::size_t layer = 0; layer < whole.jacobians.size(); ++layer)
    expect_same(on.jacobians[layer], whole.jacobians[layer], "on");
  const std::vector<Ids> others{prompts[1], prompts[0]};
  expect_error(
      ErrorCode::bad_value, [&] { (void)jacobian_lens(model, others, two, std::move(kept[1])); },
      "made from other prompts");
}

TEST(JacobianLens, ACallThatFailsTakesNothingWithIt) {
  const Model model = load("llama");
  const JacobianLens expected = jacobian_lens(model, prompts, two);
  bool failed = true;
  for (std::int64_t n = 0; failed; n += 11) {
    const CountAllocations counted(n);
    try {
      (void)jacobian_lens(model, prompts, two);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    } catch (const std::bad_alloc&) {
    }
    failed = counted.failed();
  }
  struct Enough {};
  JacobianOptions options = two;
  options.progress = [](double) { throw Enough(); };
  EXPECT_THROW((void)jacobian_lens(model, prompts, options), Enough);
  expect_same(jacobian_lens(model, prompts, two).jacobians[0], expected.jacobians[0], "after");
}

}  // namespace
}  // namespace attend
