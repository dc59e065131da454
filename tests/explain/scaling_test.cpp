// How time and memory grow with the size of what is given: readers, writers, explain, plan. As ratios, for what a
// machine does in a second is its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/allocations.h"
#include "tests/io/files.h"
#include "tests/processor_time.h"

namespace attend {
namespace {

using test::Folder;

// A thing to do for each size, which has been made ready.
using Prepared = std::function<void()>;

// Of so many runs together.
struct Cost {
  double seconds = 0;  // of the processor
  double bytes = 0;    // that are asked for, given back or not
};

Cost cost_of(const Prepared& run, int runs) {
  const test::CountAllocations allocated;
  const double start = test::processor_seconds();
  for (int n = 0; n < runs; ++n) run();
  return {test::processor_seconds() - start, static_cast<double>(allocated.list_bytes() + allocated.tensor_bytes())};
}

// Sixteen times the size costs as much as 16^power runs of the size: at most 4 = 16^0.5 times that, where the next
// power would be 16 times it. The two take about as long, so that a clock that ticks slowly tells as much of either.
// What else goes on in a machine only adds: the least of several measurements comes down to what is true, and what
// grows too fast never comes below what is allowed, however often it is measured.
void expect_growth(int power, std::int64_t size, const std::function<Prepared(std::int64_t)>& prepare) {
  constexpr int most = 20;
  const auto runs = static_cast<int>(std::pow(16, power));
  const Prepared run_small = prepare(size);
  const Cost small = cost_of(run_small, runs);
  const Prepared run_large = prepare(16 * size);
  Cost large = cost_of(run_large, 1);
  for (int n = 1; n < most && large.seconds > 4 * small.seconds; ++n)
    large.seconds = std::min(large.seconds, cost_of(run_large, 1).seconds);
  EXPECT_LE(large.bytes, 4 * small.bytes);
  EXPECT_LE(large.seconds, 4 * small.seconds);
}

// That many tensors of one number.
TensorMap many(std::int64_t count) {
  TensorMap out;
  for (std::int64_t n = 0; n < count; ++n) out.emplace(fmt::format("layers.{}.weight", n), Tensor::from({1}, {1}));
  return out;
}

TEST(Scaling, FilesOfManyTensors) {
  const Folder folder;
  for (const char* name : {"x.npz", "x.safetensors"}) {
    SCOPED_TRACE(name);
    const auto path = folder / name;
    const auto write = [=](const TensorMap& tensors) {
      if (path.extension() == ".npz") return write_npz(path, views_of(tensors));
      write_safetensors(path, views_of(tensors));
    };
    expect_growth(1, 500, [&](std::int64_t size) {
      return [=, tensors = std::make_shared<TensorMap>(many(size))] { write(*tensors); };
    });
    expect_growth(1, 1000, [&](std::int64_t size) {
      write(many(size));
      return [=] { EXPECT_EQ(std::ssize(read_tensors(path)), size); };
    });
  }
}

// One large file against 16 small ones of as many bytes together: both take as many new pages of the system's cache and
// of memory, whose price depends on what the machine did before (writing 8 MB took 66 to 120 times as long as 512 KB
// where the cache was full, with nothing but write and fsync in it).
TEST(Scaling, FilesOfOneLargeTensor) {
  constexpr std::int64_t small = 1 << 17;
  const Folder folder;
  for (const std::string name : {"x.npy", "x.npz", "x.safetensors"}) {
    SCOPED_TRACE(name);
    const auto path = [&](std::int64_t n) { return folder / (std::to_string(n) + name); };
    const auto write = [&](std::int64_t n, const View& tensor) {
      if (name == "x.npy") return write_npy(path(n), tensor);
      if (name == "x.npz") return write_npz(path(n), {{"x", tensor}});
      write_safetensors(path(n), {{"x", tensor}});
    };
    // 16 files of `small` numbers, or one of 16 times as many.
    const auto files_of = [](std::int64_t size) { return 16 * small / size; };
    expect_growth(0, small, [&](std::int64_t size) -> Prepared {
      return [&, size, x = std::make_shared<Tensor>(Dims{size})] {
        for (std::int64_t n = 0; n < files_of(size); ++n) write(n, *x);
      };
    });
    expect_growth(0, small, [&](std::int64_t size) -> Prepared {
      for (std::int64_t n = 0; n < files_of(size); ++n) write(n, Tensor({size}));
      return [&, size] {
        std::vector<TensorMap> kept;
        for (std::int64_t n = 0; n < files_of(size); ++n) kept.push_back(read_tensors(path(n)));
        EXPECT_EQ(kept[0].begin()->second.count(), size);
      };
    });
  }
}

// A header alone: of one name, of many axes, of nothing but spaces.
TEST(Scaling, HeadersThatAreRefused) {
  const Folder folder;
  const auto path = folder / "x.safetensors";
  const auto read = [&](const std::string& header) -> Prepared {
    test::put(path, test::bytes_of(std::uint64_t{header.size()}) + header);
    return [=] { EXPECT_THROW(read_safetensors(path), Error); };
  };
  expect_growth(1, 1 << 15, [&](std::int64_t size) { return read(fmt::format("{{\"{:a<{}}", "", size)); });
  expect_growth(1, 1 << 15, [&](std::int64_t size) { return read(fmt::format("{:[<{}}", "", size)); });
  expect_growth(1, 1 << 15, [&](std::int64_t size) { return read(fmt::format("{{{:{}}", "", size)); });
}

// A sentence of n words has n * n weights.
TEST(Scaling, Explain) {
  expect_growth(2, 20, [](std::int64_t size) -> Prepared {
    std::string text;
    for (std::int64_t n = 0; n < size; ++n) text += fmt::format("word{} ", n);
    return [=] { explain({.text = text}); };
  });
}

// What is planned is not done.
TEST(Scaling, PlanCostsTheSameForAnySize) {
  expect_growth(0, 1000, [](std::int64_t size) -> Prepared {
    return [=] {
      for (int i = 0; i < 300; ++i)
        plan({1, 8, size, 64}, {1, 8, size, 64}, {1, 8, size, 64}, DType::f32, {.causal = true});
    };
  });
}

TEST(Scaling, PlanOfManySequences) {
  expect_growth(1, 2000, [](std::int64_t size) -> Prepared {
    auto starts = std::make_shared<Tensor>(Dims{size + 1}, DType::i64);
    for (std::int64_t n = 0; n <= size; ++n) starts->data<std::int64_t>()[n] = 10 * n;
    return [=] {
      const AttentionOptions options{.causal = true, .query_starts = starts->view(), .key_starts = starts->view()};
      const Dims shape{1, 8, 10 * size, 64};
      plan(shape, shape, shape, DType::f32, options);
      plan_backward(shape, shape, shape, DType::f32, options);
    };
  });
}

}  // namespace
}  // namespace attend
