// Files of many text vectors: written row by row, searched in place.
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

namespace attend::inline v1 {

// Writes an .npy file [N,size], f32, with any number of rows. It appears, or replaces the old file, only at commit();
// otherwise nothing is left.
class ATTEND_API VectorWriter {
 public:
  // Throws bad_file, also for a path that can't seek, such as a pipe.
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

// Reads an .npy file [N,size], f32, little-endian and row-major, in place; it must not change meanwhile. Copies share
// it.
class ATTEND_API VectorFile {
 public:
  // Throws bad_file.
  explicit VectorFile(const std::filesystem::path& path);

  View rows() const { return rows_; }
  // The k nearest rows for the query [size], f32, descending (ties: the first). Exact: reads all rows. A row of zeros
  // has similarity 0; rows with NaN come last. Throws bad_shape, bad_dtype, bad_value for k below 1.
  std::vector<Near> nearest(const View& query, std::int64_t k) const;
  // The same for each query of [Q,size], in one pass over the rows.
  std::vector<std::vector<Near>> nearest_each(const View& queries, std::int64_t k) const;

 private:
  std::shared_ptr<const void> owner_;
  View rows_;
};

}  // namespace attend::inline v1
