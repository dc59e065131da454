// y = x W^T + b where W is quantized: what linear.h has, of weights that are unpacked where they pass by. The sums are
// those of the same weights in f32, added up in the same order: the same bits.
#pragma once

#include "kernels/blocks.h"
#include "kernels/linear.h"

namespace attend::kernels {
namespace {

static_assert(linear_steps % chunk_columns == 0);

// Where a row of the matrix lies.
inline const char* row_of(const QuantizedView& matrix, std::int64_t row, std::int64_t row_bytes) {
  return static_cast<const char*>(matrix.data) + interleaved_row(row, matrix.interleaved_head) * row_bytes;
}

// The rows of a panel: `width` of them from `first` on, or as many as there are before `last`; those beyond are read as
// the last one. Chunks of columns are unpacked for all of them.
class BlockPanel {
 public:
  explicit BlockPanel(const BlockMatrix& of)
      : matrix_(of.matrix),
        unpack_(unpack_of(of.matrix.type)),
        parts_(static_cast<int>(of.block_size / chunk_columns)),
        block_bytes_(of.block_bytes),
        row_bytes_(of.matrix.columns / of.block_size * of.block_bytes) {}

  void start(std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < width; ++i) rows_[i] = row_of(matrix_, min_of(first + i, last - 1), row_bytes_);
    at_ = 0, part_ = 0;
  }

  // The chunk of columns that comes next, of `vectors_used` vectors of rows.
  void unpack(int vectors_used = vectors) {
    for (int v = 0; v < vectors_used; ++v) unpack_({rows_ + v * lanes, at_}, part_, chunks_[v]);
    if (++part_ < parts_) return;
    part_ = 0, at_ += block_bytes_;
  }

  const Chunk& chunk(int v) const { return chunks_[v]; }
  std::int64_t row_bytes() const { return row_bytes_; }
  const char* row(std::int64_t i) const { return rows_[i]; }

 private:
  const QuantizedView& matrix_;
  Unpack unpack_;
  int parts_, part_ = 0;  // chunks of a block, and the next one
  std::int64_t block_bytes_, row_bytes_, at_ = 0;
  const char* rows_[width];
  Chunk chunks_[vectors];
};

// body(w, constant of k, of the columns 4 w + k): all of a chunk.
template <class Body>
inline __attribute__((always_inline)) void for_each_column(Body body) {
#pragma GCC unroll 8
  for (int w = 0; w < 8; ++w) {
    body.template operator()<0>(w);
    body.template operator()<1>(w);
    body.template operator()<2>(w);
    body.template operator()<3>(w);
  }
}

// One panel of pack(): outputs [first, last), at most `width`.
void pack_linear_blocks(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* packed) {
  BlockPanel panel(of);
  panel.start(first, last);
  for (std::int64_t column = 0; column < of.matrix.columns; column += chunk_columns) {
    panel.unpack();
    for (int v = 0; v < vectors; ++v) {
      float* to = packed + column * width + v * lanes;
      const Chunk& chunk = panel.chunk(v);
      for_each_column([&]<int K>(int w) { Simd::store(to + (4 * w + K) * width, number<K>(chunk, w)); });
    }
  }
}

// Rows [first, last) as f32, `stride` floats from one to the next.
void widen_blocks(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* to, std::int64_t stride) {
  BlockPanel panel(of);
  for (std::int64_t row = first; row < last; row += lanes) {
    const std::int64_t rows = min_of<std::int64_t>(lanes, last - row);
    panel.start(row, last);
    for (std::int64_t column = 0; column < of.matrix.columns; column += chunk_columns) {
      panel.unpack(1);
      F all[chunk_columns];
      for_each_column([&]<int K>(int w) { all[4 * w + K] = number<K>(panel.chunk(0), w); });
      for (std::int64_t part = 0; part < chunk_columns; part += lanes) {
        F square[lanes];
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) square[i] = all[part + i];
        Simd::transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i)
          if (i < rows) Simd::store(to + (row - first + i) * stride + column + part, square[i]);
      }
    }
  }
}

// As LinearStream: all rows of x, at most linear_stream_rows, meet weights that are unpacked for them once.
class LinearBlocks {
 public:
  LinearBlocks(const LinearOperands& a, const BlockMatrix& of, std::int64_t rows)
      : a_(a), rows_(rows), panel_(of), chunk_bytes_(width * panel_.row_bytes() * chunk_columns / a.in) {}

  void run(std::int64_t begin, std::int64_t end) {
    panel_.start(begin * width, a_.out);
    ask(panel_.row(0), panel_.row(0) + min_of<std::int64_t>(width, a_.out - begin * width) * panel_.row_bytes());
    for (std::int64_t panel = begin; panel < end; ++panel) {
      panel_.start(panel * width, a_.out);
      const std::int64_t left = min_of(end * width, a_.out) - panel * width;
      ahead_ = panel_.row(0), ahead_end_ = ahead_ + left * panel_.row_bytes();
      ahead_ += width * panel_.row_bytes();
      for (std::int64_t column = 0; column < a_.in; column += linear_steps) add_part(column);
      store_linear(a_, 0, rows_, panel, sums_);
    }
  }

 private:
  // linear_steps columns, or what is left of them.
  void add_part(std::int64_t begin) {
    const std::int64_t end = min_of(begin + linear_steps, a_.in), floats = rows_ * width;
    for (std::int64_t i = 0; i < floats; ++i) part_[i] = 0;
    for (std::int64_t column = begin; column < end; column += chunk_columns) {
      ask_ahead();
      panel_.unpack();
      std::int64_t r = 0;
      for (; r + height <= rows_; r += height) add_chunk<height>(r, column);
      for (; r + 4 <= rows_; r += 4) add_chunk<4>(r, column);
      for (; r + 2 <= rows_; r += 2) add_chunk<2>(r, column);
      for (; r < rows_; ++r) add_chunk<1>(r, column);
    }
    for (std::int64_t i = 0; i < floats; i += lanes) {
      const F part = Simd::load(part_ + i);
      Simd::store(sums_ + i, begin == 0 ? part : Simd::add(Simd::load(sums_ + i), part));
    }
  }

  // As many chains of sums as vectors, side by side.
  template <int R>
  __attribute__((noinline)) void add_chunk(std::int64_t row, std::int64_t column) {
    F sums[R][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = Simd::load(part_ + (row + r) * width + v * lanes);
    }
    const float* x = static_cast<const float*>(a_.x) + row * a_.x_stride + column;
    for_each_column([&]<int K>(int w) {
      F weights[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) weights[v] = number<K>(panel_.chunk(v), w);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F scalar = Simd::set1(x[r * a_.x_stride + 4 * w + K]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sums[r][v] = Simd::fma(scalar, weights[v], sums[r][v]);
      }
    });
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) Simd::store(part_ + (row + r) * width + v * lanes, sums[r][v]);
    }
  }

  // The next panel's memory, a line after another, as it passes by here; and again half a panel later, as LinearStream
  // asks twice: 3 to 10 % where it comes from memory.
  void ask_ahead() {
    const char* end = min_of(ahead_ + chunk_bytes_, ahead_end_);
    ask(ahead_, end);
    ask(ahead_ - again_, end - again_);
    ahead_ = max_of(ahead_, end);
  }

  static void ask(const char* from, const char* end) {
    for (; from < end; from += 64) __builtin_prefetch(from, 0, 2);
  }

  const LinearOperands& a_;
  std::int64_t rows_;
  BlockPanel panel_;
  std::int64_t chunk_bytes_;                             // of a panel's rows
  std::int64_t again_ = width * panel_.row_bytes() / 2;  // how far behind
  const char *ahead_ = nullptr, *ahead_end_ = nullptr;
  alignas(64) float part_[linear_stream_rows * width];
  alignas(64) float sums_[linear_stream_rows * width];
};

}  // namespace
}  // namespace attend::kernels
