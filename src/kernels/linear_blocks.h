// y = x W^T + b where W is quantized: what linear.h has, of weights that are unpacked where they pass by. The sums are
// those of the same weights in f32, added up in the same order: the same bits.
#pragma once

#include "kernels/blocks.h"
#include "kernels/linear.h"

namespace attend::inline v1::kernels {
namespace {

static_assert(linear_steps % (chunk_columns * chunks_at_once) == 0);

// Where rows [first, first + count) begin, or as many as there are before `last`; those beyond are read as the last
// one.
inline void rows_of(const BlockMatrix& of, std::int64_t first, std::int64_t last, std::int64_t count,
                    const char** rows) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = interleaved_row(min_of(first + i, last - 1), of.matrix.interleaved_head);
    rows[i] = static_cast<const char*>(of.matrix.data) + row * of.row_bytes;
  }
}

// The rows of a panel, `width` of them. Chunks of columns are unpacked for all of them, those that share bytes
// together.
template <bool Bytes>
class BlockPanel {
 public:
  explicit BlockPanel(const BlockMatrix& of)
      : of_(of),
        type_(type_of<Bytes>(of.matrix.type)),
        chunks_of_block_(static_cast<int>(of.block_size / chunk_columns)) {
    for (Chunk& chunk : chunks_) chunk.least[0] = chunk.least[1] = Simd::set1(-0.0f);
  }

  void start(std::int64_t first, std::int64_t last) {
    rows_of(of_, first, last, width, rows_);
    at_ = 0, next_ = 0;
  }

  // The chunks that come next, chunks() of them, of `vectors_used` vectors of rows.
  void unpack(int vectors_used = vectors) {
    for (int v = 0; v < vectors_used; ++v) type_.unpack({rows_ + v * lanes, at_}, next_, chunks_ + v);
    next_ += type_.chunks;
    if (next_ < chunks_of_block_) return;
    next_ = 0, at_ += of_.block_bytes;
  }

  int count() const { return type_.chunks; }
  const Chunk* chunks() const { return chunks_; }  // [count()][vectors]
  const Chunk& chunk(int v, int n) const { return chunks_[n * vectors + v]; }

 private:
  const BlockMatrix& of_;
  BlockType type_;
  int chunks_of_block_, next_ = 0;  // the chunk of the block that is unpacked next
  std::int64_t at_ = 0;             // bytes from the beginning of a row to the block
  const char* rows_[width];
  Chunk chunks_[chunks_at_once * vectors];
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
inline void pack_linear_blocks(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* packed) {
  BlockPanel<false> panel(of);
  panel.start(first, last);
  for (std::int64_t column = 0; column < of.matrix.columns;) {
    panel.unpack();
    for (int n = 0; n < panel.count(); ++n, column += chunk_columns) {
      for (int v = 0; v < vectors; ++v) {
        float* to = packed + column * width + v * lanes;
        const Chunk& chunk = panel.chunk(v, n);
        for_each_column([&]<int K>(int w) { Simd::store(to + (4 * w + K) * width, number<K>(chunk, w)); });
      }
    }
  }
}

// The rows of a vector as f32, `stride` floats from one to the next: the first `rows` of them, a chunk's columns.
inline void store_rows(const Chunk& chunk, std::int64_t rows, float* to, std::int64_t stride) {
  F all[chunk_columns];
  for_each_column([&]<int K>(int w) { all[4 * w + K] = number<K>(chunk, w); });
  for (std::int64_t part = 0; part < chunk_columns; part += lanes) {
    F square[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) square[i] = all[part + i];
    Simd::transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
      if (i < rows) Simd::store(to + i * stride + part, square[i]);
  }
}

// Rows [first, last) as f32, `stride` floats from one to the next.
inline void widen_blocks(const BlockMatrix& of, std::int64_t first, std::int64_t last, float* to, std::int64_t stride) {
  BlockPanel<false> panel(of);
  for (std::int64_t row = first; row < last; row += lanes) {
    const std::int64_t rows = min_of<std::int64_t>(lanes, last - row);
    panel.start(row, last);
    for (std::int64_t column = 0; column < of.matrix.columns;) {
      panel.unpack(1);
      for (int n = 0; n < panel.count(); ++n, column += chunk_columns)
        store_rows(panel.chunk(0, n), rows, to + (row - first) * stride + column, stride);
    }
  }
}

// Asks for the memory of the next panel, a line after another, as one passes by; and again half a panel later, as
// LinearStream asks twice: 3 to 10 % where it comes from memory.
class AskAhead {
 public:
  // Of panels [begin, end); ask() is called `times` for each.
  AskAhead(const BlockMatrix& of, std::int64_t begin, std::int64_t end, std::int64_t times)
      : panel_(width * of.row_bytes),
        step_(panel_ / times),
        at_((begin + 1) * panel_),
        first_(begin * panel_),
        again_(at_),
        end_(min_of(end * width, of.matrix.rows) * of.row_bytes),
        data_(static_cast<const char*>(of.matrix.data)) {
    ask(first_, at_);
  }

  void ask() {
    at_ += step_;
    ask(first_, at_);
    ask(again_, at_ - panel_ / 2);
  }

 private:
  void ask(std::int64_t& next, std::int64_t to) {
    for (to = min_of(to, end_); next < to; next += 64) __builtin_prefetch(data_ + next, 0, 2);
  }

  std::int64_t panel_, step_, at_;  // bytes
  std::int64_t first_, again_;      // what is asked for next
  std::int64_t end_;
  const char* data_;
};

// As LinearStream: all rows of x, at most linear_stream_rows, meet weights that are unpacked for them once.
class LinearBlocks {
 public:
  LinearBlocks(const LinearOperands& a, const BlockMatrix& of, std::int64_t rows)
      : a_(a), of_(of), rows_(rows), panel_(of) {}

  void run(std::int64_t begin, std::int64_t end) {
    AskAhead ahead(of_, begin, end, a_.in / chunk_columns);
    for (std::int64_t panel = begin; panel < end; ++panel) {
      panel_.start(panel * width, a_.out);
      for (std::int64_t column = 0; column < a_.in; column += linear_steps) add_part(column, ahead);
      store_linear(a_, 0, rows_, panel, sums_);
    }
  }

 private:
  // linear_steps columns, or what is left of them.
  void add_part(std::int64_t begin, AskAhead& ahead) {
    const std::int64_t end = min_of(begin + linear_steps, a_.in), floats = rows_ * width;
    for (std::int64_t i = 0; i < floats; ++i) part_[i] = 0;
    for (std::int64_t column = begin; column < end;) {
      panel_.unpack();
      for (int n = 0; n < panel_.count(); ++n, column += chunk_columns) {
        ahead.ask();
        std::int64_t r = 0;
        for (; r + height <= rows_; r += height) add_chunk<height>(r, column, n);
        for (; r + 4 <= rows_; r += 4) add_chunk<4>(r, column, n);
        for (; r + 2 <= rows_; r += 2) add_chunk<2>(r, column, n);
        for (; r < rows_; ++r) add_chunk<1>(r, column, n);
      }
    }
    for (std::int64_t i = 0; i < floats; i += lanes) {
      const F part = Simd::load(part_ + i);
      Simd::store(sums_ + i, begin == 0 ? part : Simd::add(Simd::load(sums_ + i), part));
    }
  }

  // As many chains of sums as vectors, side by side.
  template <int R>
  __attribute__((noinline)) void add_chunk(std::int64_t row, std::int64_t column, int n) {
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
      for (int v = 0; v < vectors; ++v) weights[v] = number<K>(panel_.chunk(v, n), w);
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

  const LinearOperands& a_;
  const BlockMatrix& of_;
  std::int64_t rows_;
  BlockPanel<false> panel_;
  alignas(64) float part_[linear_stream_rows * width];
  alignas(64) float sums_[linear_stream_rows * width];
};

void run_blocks(const LinearOperands& a, std::int64_t first, std::int64_t last) {
  LinearPanel<DotF32>(a, first, last, 0).run();
}

void stream_blocks(const LinearOperands& a, const BlockMatrix& of, std::int64_t rows, std::int64_t begin,
                   std::int64_t end) {
  LinearBlocks(a, of, rows).run(begin, end);
}

constexpr BlockKernels float_blocks = {
    .prepared_bytes = 0, .prepare = nullptr, .pack = pack_linear_blocks, .run = run_blocks, .stream = stream_blocks};

}  // namespace
}  // namespace attend::inline v1::kernels
