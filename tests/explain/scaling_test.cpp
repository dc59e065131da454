// How time and memory grow with the size of what is given: readers, writers, explain, plan. As ratios, for what a
// machine does in a second is its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <functional>

#include "tests/allocations.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using test::Folder;

// A thing to do for each size, which has been made ready.
using Prepared = std::function<void()>;

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Cost {
  double seconds = INFINITY;
  double bytes = 0;  // that are asked for, given back or not
};

Cost cost_of(const Prepared& run) {
  Cost cost;
  for (int i = 0; i < 3; ++i) {
    const test::CountAllocations allocated;
    const double start = processor_seconds();
    run();
    cost.seconds = std::min(cost.seconds, processor_seconds() - start);
    cost.bytes = static_cast<double>(allocated.list_bytes() + allocated.tensor_bytes());
  }
  return cost;
}

// Sixteen times the size costs about 16^power times as much: at most 16^0.5 = 4 times more than that, where the next
// power would be 16 times more.
void expect_growth(double power, std::int64_t size, const std::function<Prepared(std::int64_t)>& prepare) {
  const Cost small = cost_of(prepare(size)), large = cost_of(prepare(16 * size));
  const double allowed = 4 * std::pow(16, power);
  EXPECT_LT(large.bytes, allowed * small.bytes);
  EXPECT_LT(large.seconds, allowed * small.seconds);
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
    expect_growth(1, 500, [&](std::int64_t size) {
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
