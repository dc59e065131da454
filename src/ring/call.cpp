#include "ring/call.h"

#include <fmt/format.h>

#include "core/axes.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/sha256.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

namespace {

// The shape of the whole, of which x is a share along its last but one axis.
Dims whole_shape(const View& x, std::int64_t length) {
  Dims shape = x.shape();
  if (shape.rank() >= 2) shape[shape.rank() - 2] = length;
  return shape;
}

void check_share(const char* function, const char* name, const View& x, const std::vector<Range>& runs, int rank,
                 const char* what) {
  const std::int64_t expected = local_length(runs);
  if (x.rank() < 2 || x.size(-2) == expected) return;
  fail(ErrorCode::bad_shape, function, "{} {} has {} {}, expected {}, as the sharding gives rank {}", name, x.shape(),
       x.size(-2), what, expected, rank);
}

std::string runs_of(const std::vector<std::vector<Range>>& runs) {
  std::string text;
  for (const std::vector<Range>& rank : runs) {
    text += '|';
    for (const Range& run : rank) text += fmt::format("{}-{} ", run.begin, run.end);
  }
  return text.size() <= 120 ? text : text.substr(0, 80) + "... (sha256 " + sha256(text).substr(0, 12) + ")";
}

// What all ranks must hold alike.
std::string fact_of(const TensorOption& option, const View& x) {
  if (option.shape == TensorOption::Shape::pairs) return "given";
  const Tensor packed = x.clone();
  const auto bytes = static_cast<std::size_t>(packed.count() * size_of(packed.dtype()));
  const std::string content(static_cast<const char*>(packed.raw()), bytes);
  return fmt::format("{} {} (sha256 {})", x.dtype(), x.shape(), sha256(content).substr(0, 12));
}

Facts facts_of(const Dims& q, const Dims& k, const Dims& v, DType dtype, const RingSharding& sharding,
               const AttentionOptions& options) {
  Facts facts = {{"q", fmt::format("{} {}", dtype, q)},
                 {"k", k.str()},
                 {"v", v.str()},
                 {"sharding of queries", runs_of(sharding.queries)},
                 {"sharding of keys", runs_of(sharding.keys)},
                 {"scale", options.scale ? fmt::format("{}", *options.scale) : "not given"},
                 {"causal", options.causal ? "true" : "false"},
                 {"window", fmt::format("({},{})", options.window.left, options.window.right)},
                 // The second difference tells bottom_right from a number.
                 {"offset", !options.offset ? "not given"
                            : options.offset->resolve(0, 1) != options.offset->resolve(0, 0)
                                ? "bottom_right"
                                : fmt::format("{}", options.offset->resolve(0, 0))},
                 {"dropout", fmt::format("{}, seed {}", options.dropout.p, options.dropout.seed)}};
  for (const NumberOption& option : number_options())
    facts.emplace_back(option.name, fmt::format("{}", options.*option.value));
  for (const TensorOption& option : tensor_options()) {
    const std::optional<View>& x = options.*option.value;
    facts.emplace_back(option.name, x ? fact_of(option, *x) : "not given");
  }
  facts.emplace_back("target of the kernels (ATTEND_TARGET, or the processor)", kernels::target().name);
  return facts;
}

}  // namespace

RingCall RingCall::check(const char* function, RingTransport& ranks, const View& q, const View& k, const View& v,
                         const RingSharding& sharding, const AttentionOptions& options) {
  const int rank = ranks.rank();
  check_sharding(function, sharding, ranks.size());
  if (q.dtype() != DType::f32 && q.dtype() != DType::bf16 && q.dtype() != DType::f16)
    fail(ErrorCode::bad_dtype, function, "q is {}, expected f32, bf16 or f16", q.dtype());
  const auto at = static_cast<std::size_t>(rank);
  OwnRows rows = OwnRows::check(function, q, k, v, sharding.Tk(), options);
  check_share(function, "q", q, sharding.queries[at], rank, "queries");
  check_share(function, "k", k, sharding.keys[at], rank, "keys");
  check_share(function, "v", v, sharding.keys[at], rank, "keys");
  const Dims whole_q = whole_shape(q, sharding.Tq()), whole_k = whole_shape(k, sharding.Tk()),
             whole_v = whole_shape(v, sharding.Tk());
  const Problem& p = rows.base;
  const PieceShape shape{p.B, p.Hkv, p.D, p.Dv, q.dtype()};
  return {Positions::check(function, whole_q, whole_k, whole_v, q.dtype(), options),
          std::move(rows),
          with_axes(k, 4),
          with_axes(v, 4),
          {},
          list_runs(sharding),
          rank,
          shape,
          facts_of(whole_q, whole_k, whole_v, q.dtype(), sharding, options)};
}

void RingCall::cut(const RingSharding& sharding, std::int64_t piece_keys) {
  pieces = cut_keys(sharding, piece_keys);
  facts.emplace_back("piece_keys", fmt::format("{}", piece_keys));
}

// ---- Problems ----

Problem RingCall::with(const KeyPiece& piece, std::byte* slot, std::vector<Sequence> parts) const {
  const std::int64_t n = piece.count();
  const View keys = has(piece) ? own_part(k, piece) : shape.k(slot, n);
  const View values = has(piece) ? own_part(v, piece) : shape.v(slot, n);
  return rows.with(keys, values, piece.keys, std::move(parts));
}

Problem RingCall::without_keys() const {
  std::vector<Sequence> all;
  for (const QueryRun& run : runs)
    if (run.rank == rank) positions.add_rows(run.queries, run.local, all);
  return rows.with(k.slice(2, 0, 0), v.slice(2, 0, 0), {0, 0}, std::move(all));
}

void RingCall::pack(const KeyPiece& piece, std::byte* slot) const {
  shape.k(slot, piece.count()).copy_from(own_part(k, piece));
  shape.v(slot, piece.count()).copy_from(own_part(v, piece));
}

// ---- Memory ----

namespace {

constexpr std::int64_t alignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return divide_up(bytes, alignment) * alignment;
}

struct Layout {
  std::int64_t v, dk, dv, end;

  Layout(const PieceShape& s, std::int64_t n)
      : v(aligned(s.B * s.Hkv * n * s.D * size_of(s.dtype))),
        dk(v + aligned(s.B * s.Hkv * n * s.Dv * size_of(s.dtype))),
        dv(dk + aligned(s.B * s.Hkv * n * s.D * 4)),
        end(dv + aligned(s.B * s.Hkv * n * s.Dv * 4)) {}
};

}  // namespace

Bytes PieceShape::keys(std::int64_t n, bool gradients) const {
  const Layout layout(*this, n);
  return {0, gradients ? layout.end : layout.dk};
}

Bytes PieceShape::gradients(std::int64_t n) const {
  const Layout layout(*this, n);
  return {layout.dk, layout.end - layout.dk};
}

MutableView PieceShape::k(std::byte* slot, std::int64_t n) const {
  return MutableView(slot, dtype, {B, Hkv, n, D});
}
MutableView PieceShape::v(std::byte* slot, std::int64_t n) const {
  return MutableView(slot + Layout(*this, n).v, dtype, {B, Hkv, n, Dv});
}
MutableView PieceShape::dk(std::byte* slot, std::int64_t n) const {
  return MutableView(slot + Layout(*this, n).dk, DType::f32, {B, Hkv, n, D});
}
MutableView PieceShape::dv(std::byte* slot, std::int64_t n) const {
  return MutableView(slot + Layout(*this, n).dv, DType::f32, {B, Hkv, n, Dv});
}

}  // namespace attend::inline v1
