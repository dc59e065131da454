// What the kernels are called with, and what they promise: the contract between src/attention and the kernels that are
// compiled for each target (targets.h says which there are). Plain memory, strides and sizes; docs/kernels.md explains
// the loop nests and the tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attend/dtype.h"
#include "kernels/linear_operands.h"
#include "kernels/row_operands.h"
#include "kernels/rules.h"

namespace attend::inline v1::kernels {

// Keys are looked at in tiles that begin at multiples of this, whatever the query: so a row's sums are cut at the same
// places in every call. 64 keys: the weights of a tile (12 KiB) and the panel they meet stay in a 32 KiB L1 cache.
inline constexpr std::int64_t tile_keys = 64;

// The backward takes so many query rows and keys at once: a tile of weights takes 12 KiB, and with a panel of what it
// is multiplied by it stays in a 32 KiB L1 cache.
inline constexpr std::int64_t backward_tile_rows = 64;
inline constexpr std::int64_t backward_tile_keys = 48;

// ---- Operands ----

// One matrix for each query head of a group, to read. Strides count elements.
struct Operand {
  const void* data = nullptr;  // null: there is none
  DType dtype = DType::f32;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// The same to write.
struct MutableOperand {
  void* data = nullptr;  // null: not wanted
  DType dtype = DType::f32;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// The rows that one key head's keys or values lie in, to read: all in one piece, or in blocks of block_rows (a multiple
// of tile_keys), the head at the same offset in each.
struct Rows {
  const void* data = nullptr;
  const void* const* blocks = nullptr;  // null: one piece
  std::int64_t block_rows = 0;
  std::int64_t offset = 0;  // elements from a block's beginning to the head's first row
  DType dtype = DType::f32;
  std::int64_t row = 0;
  std::int64_t column = 0;
  // i8, in blocks, rows without gaps: what each row's elements are multiplied by, `first` scales from a block's
  // beginning to the head's first. block_rows of them can be read. NaN: a row that is not finite.
  const float* const* scales = nullptr;
  std::int64_t first = 0;
};

// The rows of one key head's gradient, to write, in one piece.
struct MutableRows {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// ---- Groups ----

// The query heads that share one key head of one batch item: G heads, [G,Tq,D] against [Tk,D].
struct Sizes {
  std::int64_t G = 1, D = 0, Dv = 0;
  DType dtype = DType::f32;  // of q, k and v: f32, bf16 or f16
  bool quantized = false;    // k and v are i8 nevertheless (forward, decode and a summary's weights)
};

// Which tensors and options take part in a call. The kernels cut their scratch by it, and ask for its bytes by it.
struct Features {
  bool mask = false, bias = false, distance_bias = false, alibi_slopes = false, curve = false, dropout = false;
  // Of the backward:
  bool dlogits = false;  // it gives gradients of what is added to the scores
  bool decoded = false;  // the forward took decode: logits are rounded as there, so that weights fit its lse
};

namespace {

// What bias and distance_bias add to a row's scores. -infinity hides a key.
inline bool has_biases(const Features& features) {
  return features.bias || features.distance_bias;
}

}  // namespace

struct Group {
  Sizes sizes = {};
  Features features = {};
  Rules rules = {};
  Operand q = {};              // [G,Tq,D]
  Rows k = {}, v = {};         // [Tk,D], [Tk,Dv]
  Operand mask = {};           // [G,Tq,Tk] bool, true = may attend
  Operand bias = {};           // [G,Tq,Tk] floating point
  Operand distance_bias = {};  // [G,2 * reach + 1] floating point, entries as distance_entry() counts (no rows)
  std::int64_t reach = 0;
  const double* alibi_slopes = nullptr;  // [G]
  const double* sinks = nullptr;         // [G]
};

// What the forward gives. lse + lse_low is the logarithm of a row's sum, of which f32 holds lse alone.
struct Results {
  MutableOperand out = {};                // [G,Tq,Dv]
  MutableOperand lse = {}, lse_low = {};  // [G,Tq] f32 (row stride); data may be null
  bool log2 = false;                      // the binary logarithm rather than the natural one
  // [G,Tq,Dv + carried_numbers] f32: the sums that earlier keys of the rows left, to which these add. out without data:
  // they are stored there again, and the results are still to come. data may be null: these are all keys.
  MutableOperand sums = {};
};

// Behind a row's sums of weights times values: what they are measured from, the sum of weights, that of the rounded
// ones. A sum of weights below 0: no key came yet.
inline constexpr std::int64_t carried_numbers = 3;

// What the backward needs of a group and one stretch of its keys: an item of work.
struct BackwardGroup {
  Group forward = {};
  std::int64_t queries = 0;                   // Tq
  std::int64_t keys_begin = 0, keys_end = 0;  // the item's keys; keys_begin a multiple of BackwardKernels::keys()
  Operand out = {};                           // [G,Tq,Dv], as the forward gave it
  Operand lse = {};                           // [G,Tq] f32
  Operand lse_low = {};                       // [G,Tq] f32; data may be null
  Operand dout = {};                          // [G,Tq,Dv]
  Operand dlse = {};                          // [G,Tq] f32; data may be null
  MutableRows dk = {}, dv = {};               // [Tk,D], [Tk,Dv]
  // [Tk,D], [Tk,Dv] f32: the sums that other rows left, dk's still without the scale, to which these rows add; dk and
  // dv are then written by no one. data may be null: these are all rows.
  MutableRows dk_sums = {}, dv_sums = {};
  // [G,Tq,D] f32, rows of whole vectors: the sums of all items. Then written to dq_out where that is not the same.
  float* dq = nullptr;
  std::int64_t dq_head = 0, dq_row = 0;
  MutableOperand dq_out = {};
  float* statistics = nullptr;  // [G,Tq,3]: lse and lse_low in log2 units, dout . out - dlse
  bool summed = false;     // statistics hold the rows' sums of this group's keys already, as Results::log2 has them
  float* dbias = nullptr;  // of element (head 0, query 0, key dbias_key); null: not wanted
  std::int64_t dbias_head = 0, dbias_row = 0, dbias_column = 0;  // 0 where the bias was broadcast
  std::int64_t dbias_key = 0;
  double* ddistance_bias = nullptr;  // [G,2 * reach + 1], added to; null: not wanted
  double* dalibi_slopes = nullptr;   // [G], added to; null: not wanted
};

// A map of weights in blocks, [R,C]: row i, counted from first_row on, is in block floor(i R / rows), keys likewise.
// Both may begin before, and end after, what is there.
struct MapBlocks {
  std::int64_t first_row = 0, rows = 0, R = 0;
  std::int64_t first_key = 0, keys = 0, C = 0;
  std::int64_t rows_begin = 0;  // the first row that is there
  float* sums = nullptr;        // [R,C] of the weights, added to; null: not wanted
  float* most = nullptr;        // [R,C] the largest of them
  std::int64_t row = 0;         // of both, from one row to the next
};

// A row's weights of some of its keys, for what a head does: of the level key; the one before it; the others within
// `near` keys of it; earlier keys that have the query's own token; keys that come right after such a one.
struct Probes {
  enum Kind { self, previous, local, duplicate, induction, kinds };
  std::int64_t near = 0;
  // same[begin[i]], ... are the keys before row i's level one that have its token, rising; null: tokens are not known.
  const std::int32_t *same = nullptr, *begin = nullptr, *end = nullptr;
  float* weights = nullptr;  // [Tq,kinds] added to: the sums of their weights; null: not wanted
  float* keys = nullptr;     // [Tq,kinds] added to: how many of them the row sees
  // Likewise, where keys have sizes: the sums of weights times sizes, and of the sizes that the row sees.
  float *carried = nullptr, *sizes = nullptr;
};

// The largest of each row so far, [Tq,top], falling; keys of -1 where there are fewer. `key_number` is that of key 0,
// of at most 2^31 - 1 keys.
struct TopLists {
  std::int64_t top = 0, key_number = 0;
  std::int64_t* keys = nullptr;  // null: not wanted
  float* weights = nullptr;
};

// What becomes of the weights of one query head and one stretch of keys: an item of work. What is null is not wanted.
struct SummaryGroup {
  Group forward = {};
  std::int64_t head = 0;                      // counted in the group
  std::int64_t keys_begin = 0, keys_end = 0;  // the item's keys
  const float* lse = nullptr;                 // [Tq,2] as BinaryLse (lse.h)
  float* entropy = nullptr;                   // [Tq] nats; added to
  float* distance = nullptr;                  // [Tq] added to
  TopLists largest = {};
  // Of the item's keys, added to: the sums of their weights; the same of uniform attention; how many rows see them.
  double* received = nullptr;
  double* uniform = nullptr;
  double* seen_by = nullptr;
  const float* shares = nullptr;  // [Tq] 1 / the number of keys that a row sees, for `uniform`
  MapBlocks map = {};
  const float* key_sizes = nullptr;  // of the item's keys: what they carry is wanted too, weights times sizes
  TopLists carried = {};             // of as many as `largest`
  MapBlocks carried_map = {};
  float* weights = nullptr;  // of row weights_first and key keys_begin; only those of visible tiles are written
  std::int64_t weights_first = 0, weights_row = 0;
  Probes probes = {};
};

// ---- Kernels ----

// `scratch` is 64-byte aligned everywhere, and as long as bytes() says.

// Query rows [first, last) of every head of a group.
struct ForwardItem {
  Group group;
  Results to;
  std::int64_t first, last;
};

struct ForwardKernels {
  // Rows are independent: a row's bits depend on its query, its keys and the options alone. `next`, or null: an item
  // that is likely to come after this one, whose memory is asked for meanwhile.
  void (*run)(const ForwardItem& item, const ForwardItem* next, void* scratch);
  // `rows`: of all heads together.
  std::size_t (*bytes)(const Sizes& sizes, const Features& features, std::int64_t rows);
};

// A group to decode, and where what it finds goes: partial [rows][2 + Dv], a row's m (log2 units), l, and sums of
// weights 2^(score - m) times values.
struct DecodeGroup {
  const Group& group;
  float* partial;
  bool cached = false;  // all that the call reads fits an L2 cache: more than asking for it once would cost time
  // [G,Tq,Tk] f32: the pairs' logits, in log2 units, -infinity where they are hidden. Of keys that no row sees nothing
  // is written. No memory: not wanted.
  MutableOperand logits = {};
};

struct DecodeKernels {
  // Query rows [first, last) of every head of `count` groups, at least one, against the keys [begin, end) alone, begin
  // a multiple of tile_keys. The groups have the same keys and values there, and the same sizes, features, scale and
  // softcap; their rows' numbers are those that they would have alone. Sinks are left to combine().
  void (*run)(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last, std::int64_t begin,
              std::int64_t end, void* scratch);
  // The results of those rows from `ranges` such partials, `stride` floats from one to the next, in their order, the
  // sink first.
  void (*combine)(const Group& group, const Results& to, std::int64_t first, std::int64_t last, const float* partials,
                  std::int64_t stride, std::int64_t ranges);
  // `rows`: of all heads and groups together.
  std::size_t (*bytes)(const Sizes& sizes, const Features& features, std::int64_t rows);
};

// The backward of one item. begin() makes it in `scratch`, where it lives; it knows its group, whose tensors must
// outlive it. Then come query rows [first, last) of a head, from a multiple of backward_tile_rows to the next or to the
// end, in any order, then end(). start_rows() comes before the first item's rows, finish_rows() after the last one's.
struct BackwardItem {
  BackwardGroup group;
};

struct BackwardKernels {
  BackwardItem& (*begin)(const BackwardGroup& group, void* scratch);
  void (*start_rows)(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last);
  void (*rows)(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last);
  void (*finish_rows)(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last);
  void (*end)(BackwardItem& item);
  std::size_t (*bytes)(const Sizes& sizes, const Features& features);
  std::int64_t (*keys)(const Sizes& sizes);  // of an item, at most
};

// The weights of one item, as the backward does: rows [first, last), at most backward_tile_rows, from the last ones to
// the first.
struct SummaryItem {
  SummaryGroup group;
};

struct SummaryKernels {
  SummaryItem& (*begin)(const SummaryGroup& group, void* scratch);
  void (*rows)(SummaryItem& item, std::int64_t first, std::int64_t last);
  // How many of its keys rows [first, last) of a group see, to counts[0], ...
  void (*count)(const SummaryGroup& group, std::int64_t first, std::int64_t last, std::int64_t* counts, void* scratch);
  std::size_t (*bytes)(const Sizes& sizes, const Features& features, std::int64_t top);
  std::int64_t (*keys)(const Sizes& sizes);  // of an item, at most
  // A row's logits, as DecodeGroup has them, become its weights, in place, as rows() would give them for q of `dtype`.
  // lse, lse_low: as BinaryLse.
  void (*exponentiate)(DType dtype, float lse, float lse_low, float* row, std::int64_t count);
};

// Products with weights of one quantized type.
struct BlockKernels {
  // Rows of x are f32 where prepare is null, or what it makes of `columns` of them: so many bytes for each 32.
  std::int64_t prepared_bytes;
  void (*prepare)(const float* x, std::int64_t columns, void* to);
  // LinearKernels::pack_rows() of one panel, which floats() of panel_rows outputs have room for; run() of it; stream().
  void (*pack)(const BlockMatrix& weight, std::int64_t first, std::int64_t last, float* packed);
  void (*run)(const LinearOperands& operands, std::int64_t first, std::int64_t last);
  void (*stream)(const LinearOperands& operands, const BlockMatrix& weight, std::int64_t rows, std::int64_t begin,
                 std::int64_t end);
};

struct LinearKernels {
  // Weights [out,in] in the order in which run() reads them: floats() of them, for x of that dtype (f32; bf16 where
  // bf16_dot).
  std::int64_t (*floats)(DType dtype, std::int64_t out, std::int64_t in);
  void (*pack)(DType dtype, const float* weight, std::int64_t out, std::int64_t in, float* packed);
  // One panel of that, of row-major weights [out,in] of that dtype, or of bf16 for x in f32 where `in` is even: outputs
  // [first, last), at most panel_rows.
  void (*pack_rows)(DType dtype, const void* weight, DType weight_dtype, std::int64_t in, std::int64_t first,
                    std::int64_t last, float* packed);
  // Rows [first, last), at most linear_rows, and outputs panel * panel_rows, ... (as many) of y. Any cut of y gives the
  // same bits. For bf16, `in` is even.
  void (*run)(const LinearOperands& operands, std::int64_t first, std::int64_t last, std::int64_t panel);
  // All rows, at most linear_stream_rows, and panels [begin, end) of them, from weights that lie row by row and are
  // read once. The bits of run().
  void (*stream)(const LinearOperands& operands, std::int64_t rows, std::int64_t begin, std::int64_t end);
  // The same of quantized weights of that type.
  BlockKernels (*blocks)(QuantizedType type, Activations activations);
  // Rows [first, last) as f32, `stride` floats from one to the next.
  void (*widen)(const BlockMatrix& weight, std::int64_t first, std::int64_t last, float* to, std::int64_t stride);
};

// What layers do to rows between their products. Every row by itself: any cut gives the same bits.
struct RowKernels {
  // `count` elements of one floating-point dtype as another.
  void (*convert)(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count);
  // to += x
  void (*add)(float* to, const void* x, DType dtype, std::int64_t count);
  void (*normalize)(const NormOperands& operands, std::int64_t first, std::int64_t last);
  void (*activate)(const ActivationOperands& operands, std::int64_t first, std::int64_t last);
  void (*normalize_gradient)(const NormGradientOperands& operands, std::int64_t first, std::int64_t last);
  void (*activate_gradient)(const ActivationGradientOperands& operands, std::int64_t first, std::int64_t last);
  void (*rotate)(const RotaryOperands& operands, std::int64_t first, std::int64_t last);
  // products[n] = row . rows[n]; row [size], rows [count,size], f32.
  void (*multiply)(const float* row, const float* rows, std::int64_t size, std::int64_t count, float* products);
  // In double: products[n] = row . rows[n], and squares[n] = rows[n] . rows[n]; null: not wanted. row [size] holds
  // numbers of f32. The same bits on every target.
  void (*dot)(const double* row, const float* rows, std::int64_t size, std::int64_t count, double* products,
              double* squares);
};

// What a target's kernels are, and how they are called.
struct Target {
  const char* name;
  int lanes;        // floats in a vector
  int tile_height;  // rows of the register tile: keys of the forward's scores
  int panel_rows;   // lanes of the register tile's vectors: query rows in the forward's scores
  bool bf16_dot;    // bf16 products by the processor's own instruction
  bool (*supported)();
  ForwardKernels forward;
  DecodeKernels decode;
  BackwardKernels backward;
  SummaryKernels summary;
  LinearKernels linear;
  RowKernels rows;
};

}  // namespace attend::inline v1::kernels
