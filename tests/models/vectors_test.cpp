// Files of vectors: written row by row, searched where they lie.
#include "attend/vectors.h"

#include <cmath>
#include <limits>

#include "attend/io.h"
#include "attend/random.h"
#include "tests/expect.h"
#include "tests/io/files.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

TEST(Vectors, AreWrittenAsNumPyWritesThem) {
  const Folder folder;
  const Tensor all = Generator(1).randn({1000, 7});
  {
    VectorWriter writer(folder / "x.npy", 7);
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 1}, {1, 999}, {999, 1000}})
      writer.add(all.view().slice(0, begin, end));
    EXPECT_EQ(writer.rows(), 1000);
    EXPECT_EQ(folder.entries(), 0);
    expect_error(
        ErrorCode::bad_shape, [&] { writer.add(all.view().slice(1, 0, 6)); }, "[1000,6]", "[n,7]");
    expect_error(
        ErrorCode::bad_dtype, [&] { writer.add(all.view().to(DType::f64)); }, "f64");
    writer.commit();
  }
  write_npy(folder / "y.npy", all);
  EXPECT_EQ(get(folder / "x.npy"), get(folder / "y.npy"));
  { VectorWriter(folder / "z.npy", 7).add(all); }
  EXPECT_EQ(folder.entries(), 2);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  expect_error(
      ErrorCode::bad_file, [&] { VectorWriter("/dev/fd/" + std::to_string(ends[1]), 7); },
      "can't be read from the beginning again");
  close(ends[0]), close(ends[1]);
}

TEST(Vectors, TheNearestAreExact) {
  const Folder folder;
  const std::int64_t N = 20'000, E = 13;
  Tensor all = Generator(2).randn({N, E});
  const auto row = [&](std::int64_t n) { return all.data<float>() + n * E; };
  std::copy_n(row(5), E, row(19'000));
  std::fill_n(row(7), E, 0.0F);
  row(8)[3] = std::numeric_limits<float>::quiet_NaN();
  write_npy(folder / "x.npy", all);
  const VectorFile file(folder / "x.npy");
  expect_same(file.rows(), all);
  const Tensor query = all.view().select(0, 5).clone();
  std::vector<Near> expected;
  for (std::int64_t n = 0; n < N; ++n) {
    double dot = 0, own = 0, other = 0;
    for (std::int64_t e = 0; e < E; ++e) {
      const double a = query.data<float>()[e], b = row(n)[e];
      dot += a * b, own += a * a, other += b * b;
    }
    if (n != 8) expected.push_back({n, other > 0 ? dot / std::sqrt(own * other) : 0});
  }
  std::ranges::stable_sort(expected, std::greater(), &Near::similarity);
  for (const int threads : {1, 2}) {
    const test::ThreadsAtMost limit(threads);
    const std::vector<Near> found = file.nearest(query, 100);
    ASSERT_EQ(found.size(), 100);
    EXPECT_EQ(found[0].row, 5);
    EXPECT_EQ(found[1].row, 19'000);
    for (std::size_t n = 0; n < 100; ++n) {
      EXPECT_EQ(found[n].row, expected[n].row);
      EXPECT_NEAR(found[n].similarity, expected[n].similarity, 1e-12);
    }
    const std::vector<Near> whole = file.nearest(query, N + 1);
    EXPECT_EQ(whole.size(), N);
    EXPECT_EQ(whole.back().row, 8);
    const auto each = file.nearest_each(all.view().slice(0, 3, 6), 100);
    ASSERT_EQ(each.size(), 3);
    for (const std::int64_t n : {3, 4, 5}) {
      const std::vector<Near> alone = file.nearest(all.view().select(0, n), 100);
      const auto same = [](const Near& a, const Near& b) { return a.row == b.row && a.similarity == b.similarity; };
      EXPECT_TRUE(std::ranges::equal(each[static_cast<std::size_t>(n - 3)], alone, same)) << n;
    }
    EXPECT_TRUE(file.nearest_each(all.view().slice(0, 0, 0), 1).empty());
  }
  expect_error(
      ErrorCode::bad_value, [&] { (void)file.nearest(query, 0); }, "k is 0");
  expect_error(
      ErrorCode::bad_shape, [&] { (void)file.nearest(all.view().select(1, 0), 1); }, "expected [13]");
  expect_error(
      ErrorCode::bad_shape, [&] { (void)file.nearest_each(query, 1); }, "expected [Q,13]");
  write_npy(folder / "y.npy", all.view().to(DType::f64));
  expect_error(
      ErrorCode::bad_file, [&] { VectorFile{folder / "y.npy"}; }, "f64", "expected f32 [N,size]");
  put(folder / "z.npy", get(folder / "x.npy").substr(0, 1000));
  expect_error(
      ErrorCode::bad_file, [&] { VectorFile{folder / "z.npy"}; }, "cut short");
}

}  // namespace
}  // namespace attend
