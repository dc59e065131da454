// Fused attention over plain memory. One source (fused_kernels.h), compiled once for each target (targets.h).
// docs/kernels.md explains the loop nest, the tiles and why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attend/dtype.h"
#include "kernels/dropout.h"
#include "kernels/linear.h"

namespace attend::kernels {

// Keys are looked at in tiles that begin at multiples of this, whatever the query: so a row's sums are cut at the same
// places in every call. 64 keys: the weights of a tile (12 KiB) and the panel they meet stay in a 32 KiB L1 cache.
inline constexpr std::int64_t tile_keys = 64;

// One matrix for each query head of a group. Strides count elements.
struct Operand {
  const void* data = nullptr;  // null: there is none
  DType dtype = DType::f32;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// The rows that one key head's keys or values lie in: all in one piece, or in blocks of block_rows (a multiple of
// tile_keys), the head at the same offset in each.
struct Rows {
  const void* data = nullptr;
  const void* const* blocks = nullptr;  // null: one piece
  std::int64_t block_rows = 0;
  std::int64_t offset = 0;  // elements from a block's beginning to the head's first row
  DType dtype = DType::f32;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// The query heads that share one key head of one batch item: G heads, [G,Tq,D] against [Tk,D].
struct Group {
  std::int64_t G = 1, D = 0, Dv = 0;
  Operand q;                             // [G,Tq,D] f32, bf16 or f16
  Rows k, v;                             // [Tk,D], [Tk,Dv] in q's dtype
  Operand mask;                          // [G,Tq,Tk] bool, true = may attend
  Operand bias;                          // [G,Tq,Tk] floating point
  Operand out;                           // [G,Tq,Dv], written
  Operand lse;                           // [G,Tq] f32, written (row stride); data may be null
  const double* alibi_slopes = nullptr;  // [G]
  const double* sinks = nullptr;         // [G]
  double scale = 1;
  double softcap = 0;
  std::int64_t offset = 0;  // query i is level with key i + offset
  bool causal = false;
  std::int64_t window_left = -1;  // -1: open
  std::int64_t window_right = -1;
  std::int64_t key_length = 0;  // keys from here on are never read
  Dropout dropout;
};

// The backward takes so many query rows and keys at once: a tile of weights takes 12 KiB, and with a panel of what it
// is multiplied by it stays in a 32 KiB L1 cache.
inline constexpr std::int64_t backward_rows = 64;
inline constexpr std::int64_t backward_tile_keys = 48;

// What the backward needs of the query heads that share one key head, and one stretch of its keys: an item of work.
struct BackwardGroup {
  Group forward;                              // with out and lse as the forward gave them: read
  std::int64_t queries = 0;                   // Tq
  std::int64_t keys_begin = 0, keys_end = 0;  // the item's keys; keys_begin a multiple of backward_keys()
  std::int64_t keys = 0;                      // backward_keys(): what scratch is cut for
  Operand dout;                               // [G,Tq,Dv]
  Operand dlse;                               // [G,Tq] f32; data may be null
  Rows dk, dv;                                // [Tk,D], [Tk,Dv] in q's dtype, written
  // [G,Tq,D] f32, rows of whole vectors: the sums of all items. Then written to dq_out where that is not the same.
  float* dq = nullptr;
  std::int64_t dq_head = 0, dq_row = 0;
  Operand dq_out;
  float* statistics = nullptr;  // [G,Tq,2]: lse in log2 units, dout . out - dlse
  float* dbias = nullptr;       // of element (head 0, query 0, key dbias_key); null: not wanted
  std::int64_t dbias_head = 0, dbias_row = 0, dbias_column = 0;  // 0 where the bias was broadcast
  std::int64_t dbias_key = 0;
  double* dalibi_slopes = nullptr;  // [G]; null: not wanted
};

// What a target's kernels are, and how they are called.
struct Target {
  const char* name;
  int lanes;       // floats in a vector
  int block_keys;  // keys in the register tile of scores
  int panel_rows;  // query rows in the register tile: three vectors
  bool bf16_dot;   // bf16 products by the processor's own instruction
  bool (*supported)();

  // Query rows [first, last) of every head of the group: out and lse. `scratch`: forward_bytes(group, rows), 64-byte
  // aligned. Rows are independent: a row's bits depend on its query, its keys and the options alone.
  void (*forward)(const Group& group, std::int64_t first, std::int64_t last, void* scratch);
  std::size_t (*forward_bytes)(const Group& group, std::int64_t rows);

  // Query rows [first, last) of every head against the keys [begin, end) alone, begin a multiple of tile_keys:
  // partial [rows][2 + Dv], a row's m (log2 units), l, and sums of weights 2^(score - m) times values. Sinks are left
  // to combine().
  void (*decode)(const Group& group, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end,
                 float* partial, void* scratch);
  std::size_t (*decode_bytes)(const Group& group, std::int64_t rows);
  // out and lse of those rows from `ranges` such partials, `stride` floats from one to the next, in their order, the
  // sink first.
  void (*combine)(const Group& group, std::int64_t first, std::int64_t last, const float* partials, std::int64_t stride,
                  std::int64_t ranges);

  // The backward of one item: begin, then query rows [first, last) of a head, from a multiple of backward_rows to the
  // next or to the end, in any order, then end. `scratch`: backward_bytes(group), 64-byte aligned, the same throughout.
  // start_rows comes before the first item's rows, finish_rows after the last one's.
  void (*backward_begin)(const BackwardGroup& group, void* scratch);
  void (*backward_start_rows)(const BackwardGroup& group, std::int64_t head, std::int64_t first, std::int64_t last,
                              void* scratch);
  void (*backward_finish_rows)(const BackwardGroup& group, std::int64_t head, std::int64_t first, std::int64_t last,
                               void* scratch);
  void (*backward_rows)(const BackwardGroup& group, std::int64_t head, std::int64_t first, std::int64_t last,
                        void* scratch);
  void (*backward_end)(const BackwardGroup& group, void* scratch);
  std::size_t (*backward_bytes)(const BackwardGroup& group);
  std::int64_t (*backward_keys)(std::int64_t D, std::int64_t Dv);  // keys of an item

  // Weights [out,in] in the order in which linear() reads them: linear_floats() floats, for x of that dtype (f32; bf16
  // where bf16_dot).
  std::int64_t (*linear_floats)(DType dtype, std::int64_t out, std::int64_t in);
  void (*linear_pack)(DType dtype, const float* weight, std::int64_t out, std::int64_t in, float* packed);
  // Rows [first, last), at most linear_rows, and outputs panel * panel_rows, ... (as many) of y. Any cut of y gives the
  // same bits. For bf16, `in` is even.
  void (*linear)(const LinearOperands& operands, std::int64_t first, std::int64_t last, std::int64_t panel);
};

}  // namespace attend::kernels
