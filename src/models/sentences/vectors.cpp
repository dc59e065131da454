#include "attend/vectors.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "attend/threads.h"
#include "io/mapped_file.h"
#include "io/npy.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

namespace {

constexpr const char* search = "VectorFile.nearest";

// One after another, [n,size] of a tensor that is not there: for the header.
View shape_of(std::int64_t rows, std::int64_t size) {
  return {nullptr, DType::f32, {rows, size}};
}

// Nearer first, then the earlier row; what is no number comes last.
bool is_nearer(const Near& a, const Near& b) {
  const double x = std::isnan(a.similarity) ? -2 : a.similarity, y = std::isnan(b.similarity) ? -2 : b.similarity;
  return x != y ? x > y : a.row < b.row;
}

// The nearest of what it was shown, k at most.
class Nearest {
 public:
  explicit Nearest(std::int64_t k) : k_(k) {}

  void see(const Near& one) {
    if (std::ssize(heap_) == k_) {
      if (!is_nearer(one, heap_.front())) return;
      std::ranges::pop_heap(heap_, is_nearer);
      heap_.pop_back();
    }
    heap_.push_back(one);
    std::ranges::push_heap(heap_, is_nearer);
  }
  void see(const Nearest& others) {
    for (const Near& each : others.heap_) see(each);
  }
  std::vector<Near> sorted() const {
    std::vector<Near> all = heap_;
    std::ranges::sort(all, is_nearer);
    return all;
  }

 private:
  std::int64_t k_;
  std::vector<Near> heap_;  // the least near of them first
};

// The queries in double, and their lengths.
struct Queries {
  Queries(const View& rows, std::int64_t E)
      : size(E), numbers(static_cast<std::size_t>(rows.size(0) * E)), lengths(static_cast<std::size_t>(rows.size(0))) {
    const Tensor own = rows.clone();
    std::copy_n(own.data<float>(), numbers.size(), numbers.data());
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      double square = 0;
      kernels::target().rows.dot(of(n), own.data<float>() + static_cast<std::int64_t>(n) * E, E, 1, &square, nullptr);
      lengths[n] = std::sqrt(square);
    }
  }
  const double* of(std::size_t n) const { return numbers.data() + n * static_cast<std::size_t>(size); }

  std::int64_t size;
  std::vector<double> numbers, lengths;
};

// Shows each query's `nearest` the rows [begin, end), a few at a time that stay in a cache for all queries.
void look(const float* rows, std::int64_t begin, std::int64_t end, const Queries& queries,
          std::vector<Nearest>& nearest) {
  constexpr std::int64_t together = 64;
  double products[together], lengths[together];
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t count = std::min(together, end - first), E = queries.size;
    for (std::size_t q = 0; q < nearest.size(); ++q) {
      kernels::target().rows.dot(queries.of(q), rows + first * E, E, count, products, q == 0 ? lengths : nullptr);
      if (q == 0) std::transform(lengths, lengths + count, lengths, [](double square) { return std::sqrt(square); });
      for (std::int64_t n = 0; n < count; ++n) {
        const double both = queries.lengths[q] * lengths[n];
        nearest[q].see({first + n, both == 0 ? 0 : products[n] / both});
      }
    }
  }
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
  if (query.rank() != 1 || query.size(0) != rows_.size(1))
    fail(ErrorCode::bad_shape, search, "query has shape {}, expected [{}]", query.shape(), rows_.size(1));
  return nearest_each(query.reshape({1, query.size(0)}), k).front();
}

std::vector<std::vector<Near>> VectorFile::nearest_each(const View& queries, std::int64_t k) const {
  constexpr std::int64_t block = 4096;  // rows that a thread takes at least
  const std::int64_t N = rows_.size(0), E = rows_.size(1);
  if (queries.rank() != 2 || queries.size(1) != E)
    fail(ErrorCode::bad_shape, search, "query has shape {}, expected [Q,{}]", queries.shape(), E);
  if (queries.dtype() != DType::f32) fail(ErrorCode::bad_dtype, search, "query is {}, expected f32", queries.dtype());
  if (k < 1) fail(ErrorCode::bad_value, search, "k is {}, expected at least 1", k);
  const Queries all(queries, E);
  const std::vector<Nearest> none(all.lengths.size(), Nearest(k));
  std::vector<Nearest> nearest = none;
  std::mutex mutex;
  parallel_for(N, block, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Nearest> found = none;
    look(rows_.data<float>(), begin, end, all, found);
    const std::lock_guard lock(mutex);
    for (std::size_t q = 0; q < nearest.size(); ++q) nearest[q].see(found[q]);
  });
  std::vector<std::vector<Near>> sorted;
  sorted.reserve(nearest.size());
  for (const Nearest& each : nearest) sorted.push_back(each.sorted());
  return sorted;
}

}  // namespace attend::inline v1
