#include "attend/vectors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "attend/threads.h"
#include "io/mapped_file.h"
#include "io/npy.h"

namespace attend::inline v0 {

namespace {

// One after another, [n,size] of a tensor that is not there: for the header.
View shape_of(std::int64_t rows, std::int64_t size) {
  return {nullptr, DType::f32, {rows, size}};
}

// Nearer first, then the earlier row; what is no number comes last.
bool is_nearer(const Near& a, const Near& b) {
  const double x = std::isnan(a.similarity) ? -2 : a.similarity, y = std::isnan(b.similarity) ? -2 : b.similarity;
  return x != y ? x > y : a.row < b.row;
}

void keep_nearest(std::vector<Near>& all, std::int64_t k) {
  const auto kept = std::min<std::ptrdiff_t>(k, std::ssize(all));
  std::ranges::partial_sort(all, all.begin() + kept, is_nearer);
  all.resize(static_cast<std::size_t>(kept));
}

// sum a b, in double. Eight sums side by side, in an order that depends on the size alone.
double dot(const float* a, const float* b, std::int64_t size) {
  std::array<double, 8> sums{};
  std::int64_t e = 0;
  for (; e + 8 <= size; e += 8)
    for (std::size_t lane = 0; lane < 8; ++lane)
      sums[lane] += double(a[e + static_cast<std::int64_t>(lane)]) * double(b[e + static_cast<std::int64_t>(lane)]);
  for (; e < size; ++e) sums[0] += double(a[e]) * double(b[e]);
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

}  // namespace

struct VectorWriter::File {
  explicit File(const std::filesystem::path& path) : output("VectorWriter", path) {}
  OutputFile output;
};

VectorWriter::VectorWriter(const std::filesystem::path& path, std::int64_t size)
    : file_(std::make_unique<File>(path)), size_(size) {
  file_->output.write(npy_header(shape_of(0, size), {"VectorWriter"}));
  file_->output.write_at(0, "");  // whether that can be done
}

VectorWriter::~VectorWriter() = default;

void VectorWriter::add(const View& rows) {
  if (rows.rank() != 2 || rows.size(1) != size_)
    fail(ErrorCode::bad_shape, "VectorWriter.add", "rows has shape {}, expected [n,{}]", rows.shape(), size_);
  if (rows.dtype() != DType::f32)
    fail(ErrorCode::bad_dtype, "VectorWriter.add", "rows is {}, expected f32", rows.dtype());
  const Tensor whole = rows.clone();
  file_->output.write(whole.raw(), static_cast<std::uint64_t>(whole.count()) * sizeof(float));
  rows_ += rows.size(0);
}

void VectorWriter::commit() {
  // The header leaves room for any number of rows.
  file_->output.write_at(0, npy_header(shape_of(rows_, size_), {"VectorWriter"}));
  file_->output.commit();
}

VectorFile::VectorFile(const std::filesystem::path& path) {
  const InputFile file("VectorFile", path, Pipes::read);
  auto mapped = std::make_shared<const MappedFile>(file);
  rows_ = view_npy(file, *mapped);
  if (rows_.rank() != 2 || rows_.size(1) < 1 || rows_.dtype() != DType::f32)
    fail_at(file.place(), "has {} {}, expected f32 [N,size]", rows_.dtype(), rows_.shape());
  owner_ = std::move(mapped);
}

std::vector<Near> VectorFile::nearest(const View& query, std::int64_t k) const {
  constexpr const char* function = "VectorFile.nearest";
  constexpr std::int64_t block = 4096;  // rows of which the nearest are kept at a time
  const std::int64_t N = rows_.size(0), E = rows_.size(1);
  if (query.rank() != 1 || query.size(0) != E)
    fail(ErrorCode::bad_shape, function, "query has shape {}, expected [{}]", query.shape(), E);
  if (query.dtype() != DType::f32) fail(ErrorCode::bad_dtype, function, "query is {}, expected f32", query.dtype());
  if (k < 1) fail(ErrorCode::bad_value, function, "k is {}, expected at least 1", k);
  const Tensor own = query.clone();
  const float *q = own.data<float>(), *rows = rows_.data<float>();
  const double length = std::sqrt(dot(q, q, E));
  std::vector<Near> nearest;
  std::mutex mutex;
  const auto look = [&](std::int64_t begin, std::int64_t end) {
    std::vector<Near> found;
    for (std::int64_t n = begin; n < end; ++n) {
      const float* row = rows + n * E;
      const double both = length * std::sqrt(dot(row, row, E));
      found.push_back({n, both == 0 ? 0 : dot(row, q, E) / both});
      if (std::ssize(found) == block + k) keep_nearest(found, k);
    }
    keep_nearest(found, k);
    const std::lock_guard lock(mutex);
    nearest.insert(nearest.end(), found.begin(), found.end());
    keep_nearest(nearest, k);
  };
  parallel_for(N, block, look);
  return nearest;
}

}  // namespace attend::inline v0
