// Vectors of many texts in a file: written row by row, and searched where they lie.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no vectors.h"
#endif

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// Writes an .npy file [N,size], f32, of as many rows as come. It appears at commit() and not before, and replaces what
// is there in one step; without commit() nothing is left behind.
class ATTEND_API VectorWriter {
 public:
  // Throws bad_file, also where what was written can't be gone back to: of a pipe.
  VectorWriter(const std::filesystem::path& path, std::int64_t size);
  ~VectorWriter();
  VectorWriter(const VectorWriter&) = delete;
  VectorWriter& operator=(const VectorWriter&) = delete;

  // rows [n,size], f32. Throws bad_shape, bad_dtype, bad_file.
  void add(const View& rows);
  std::int64_t rows() const { return rows_; }
  void commit();

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::int64_t size_, rows_ = 0;
};

struct ATTEND_API Near {
  std::int64_t row = 0;
  double similarity = 0;  // the cosine
};

// The rows of an .npy file [N,size], f32, little-endian and row-major, read where they lie: it must not change
// meanwhile. Copies share it.
class ATTEND_API VectorFile {
 public:
  // Throws bad_file.
  explicit VectorFile(const std::filesystem::path& path);

  View rows() const { return rows_; }
  // The k rows nearest to the query [size], f32, falling; of equal ones the first. Exact: all rows are read. A row of
  // zeros is as near as 0, one with NaN comes last. Throws bad_shape, bad_dtype, bad_value for k below 1.
  std::vector<Near> nearest(const View& query, std::int64_t k) const;
  // The same of each of the queries [Q,size]: all of them in one pass over the rows.
  std::vector<std::vector<Near>> nearest_each(const View& queries, std::int64_t k) const;

 private:
  std::shared_ptr<const void> owner_;
  View rows_;
};

}  // namespace attend::inline v0
