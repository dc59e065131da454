// attention() and its relatives.
#include "attend/attention.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string>

#include "array.h"
#include "bindings.h"
#include "call.h"
#include "kv_cache.h"
#include "layout.h"
#include "options.h"

namespace attend::python {

namespace {

// What a call returns besides out.
struct Wanted {
  bool lse, lse_low;
};

// The arguments of one call.
struct AttentionCall {
  const char* function;
  Array q, k, v;
  Layout layout;

  nb::object run(const AttentionOptions& options, nb::handle given, Wanted wanted) const;
};

// The last axis of `x` (none: of [D]) as another one.
Dims with_last(const View& x, std::optional<std::int64_t> last) {
  Dims shape;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) shape.push_back(x.size(axis));
  if (last && x.rank() > 0) shape.push_back(*last);
  return shape;
}

// Results have the shapes that valid arguments give; the library refuses the others.
nb::object AttentionCall::run(const AttentionOptions& options, nb::handle given, Wanted wanted) const {
  const auto inside = [&](const auto& view) { return heads_first(layout, view); };
  const View queries = inside(q.view()), keys = inside(k.view()), values = inside(v.view());
  std::optional<Result> made, lse, lse_low;
  std::optional<Array> borrowed;
  if (given.is_none()) {
    made.emplace(q.kind(), with_last(q.view(), v.view().rank() > 0 ? v.view().size(-1) : 0), q.view().dtype());
  } else {
    borrowed.emplace(function, "out", given);
  }
  const auto make_rows = [&](std::optional<Result>& rows) {
    rows.emplace(q.kind(), with_last(queries, std::nullopt), statistics_dtype(queries.dtype()));
  };
  if (wanted.lse || wanted.lse_low) make_rows(lse);
  if (wanted.lse_low) make_rows(lse_low);
  const MutableView out = inside(made ? made->view() : borrowed->writable());
  const auto view_of = [](std::optional<Result>& x) { return x ? std::optional(x->view()) : std::nullopt; };
  python::call(function, [&] { attention_into(out, view_of(lse), queries, keys, values, options, view_of(lse_low)); });
  nb::object result = made ? made->take() : nb::borrow(given);
  if (lse_low) return nb::make_tuple(result, lse->take(), lse_low->take());
  return lse ? nb::object(nb::make_tuple(result, lse->take())) : result;
}

nb::object attention_(nb::handle q, nb::handle k, nb::handle v, std::string_view layout, bool return_lse,
                      bool return_lse_low, nb::handle out, const nb::kwargs& keywords) {
  constexpr const char* function = "attention";
  if (v.is_none() && are_caches(k)) {
    if (layout != "bhtd" || !out.is_none()) throw nb::value_error("attention: layout and out do not apply to caches");
    return attention_of_caches(q, k, return_lse, return_lse_low, keywords);
  }
  const AttentionCall call{
      function, {function, "q", q}, {function, "k", k}, {function, "v", v}, read_layout(function, layout)};
  return call.run(Options(function, keywords).get(), out, {return_lse, return_lse_low});
}

nb::object attention_varlen(nb::handle q, nb::handle k, nb::handle v, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                            bool return_lse, bool return_lse_low, nb::handle out, const nb::kwargs& keywords) {
  constexpr const char* function = "attention_varlen";
  const AttentionCall call{function, {function, "q", q}, {function, "k", k}, {function, "v", v}, Layout::heads_last};
  Options options(function, keywords);
  options.set_starts(cu_seqlens_q, cu_seqlens_k);
  return call.run(options.get(), out, {return_lse, return_lse_low});
}

nb::tuple merge_(nb::handle out_a, nb::handle lse_a, nb::handle out_b, nb::handle lse_b, nb::handle lse_low_a,
                 nb::handle lse_low_b) {
  constexpr const char* function = "merge";
  const Array a(function, "out_a", out_a), a_lse(function, "lse_a", lse_a), b(function, "out_b", out_b),
      b_lse(function, "lse_b", lse_b);
  const OptionalArray a_low(function, "lse_low_a", lse_low_a), b_low(function, "lse_low_b", lse_low_b);
  const AttentionResult result = call(function, [&] {
    return attend::merge(a.view(), a_lse.view(), b.view(), b_lse.view(), a_low.view(), b_low.view());
  });
  const nb::object out = to_python(a.kind(), result.out), lse = to_python(a.kind(), result.lse);
  if (result.lse_low) return nb::make_tuple(out, lse, to_python(a.kind(), *result.lse_low));
  return nb::make_tuple(out, lse);
}

// AttentionSteps, as arrays.
struct Steps {
  nb::object scores, scaled_scores, logits, weights, context, lse;
};

Steps attention_steps_(nb::handle q, nb::handle k, nb::handle v, const nb::kwargs& keywords) {
  constexpr const char* function = "attention_steps";
  const Array queries(function, "q", q), keys(function, "k", k), values(function, "v", v);
  const Options options(function, keywords);
  const AttentionSteps steps =
      call(function, [&] { return attention_steps(queries.view(), keys.view(), values.view(), options.get()); });
  const auto array = [&](const Tensor& tensor) { return to_python(queries.kind(), tensor); };
  return {array(steps.scores),  array(steps.scaled_scores), array(steps.logits),
          array(steps.weights), array(steps.context),       array(steps.lse)};
}

constexpr const char* attention_doc_start = R"(Scaled dot-product attention: softmax(q k^T * scale) v.

q [B,H,Tq,D], k [B,Hkv,Tk,D], v [B,Hkv,Tk,Dv] give out [B,H,Tq,Dv], of q's kind (NumPy, PyTorch, ...) and dtype:
float32, bfloat16, float16, or float64 (exact and slow). H is a multiple of Hkv: query head h reads key head
h // (H // Hkv). Leading axes may be left out of all three. Any strides, without a copy.

causal        key j is visible to query i if j <= i + offset
window        (left, right): i + offset - left <= j <= i + offset + right; -1 or None leaves a side open
offset        the key that query 0 stands at: "top_left" is key 0, as in PyTorch; "bottom_right" puts the last query at the
              last key, Tk - Tq (with key_lengths key_lengths[b] - Tq), as in FlashAttention and decoding; or a whole
              number. It must be given where Tq != Tk and an option needs it
scale         default 1 / sqrt(D)
)";

constexpr const char* attention_doc_end =
    R"(dropout       (p, seed): each weight is dropped with probability p, and the others are multiplied by 1 / (1 - p). Which
              are dropped depends only on seed, a whole number, and on the place in the arrays, here and in
              attention_backward()
layout        "bhtd", or "bthd" for q, k, v and out as [B,T,H,D]
return_lse    also return lse [B,H,Tq], float32: the natural logarithm of each row's sum of exponentials
return_lse_low return (out, lse, lse_low): lse + lse_low is the logarithm to 2^-40, while lse alone is rounded to float32.
              attention_backward() and merge() take it
out           an array to write to and return; it must not share memory with another argument. For bfloat16 and float16
              it may be float32, the result before rounding: attention_backward() takes that and is more exact then

attention(q, caches) is one step for N sequences that have a KvCache each, of any lengths: q [N,H,Tq,D] and a list of N
caches. Where causal, window or biases need an offset and none is given, it is "bottom_right". For mask and bias, Tk is
the longest cache's length. key_lengths, layout and out do not apply. What caches share since a fork is read once for all
of them. The bits are those of each sequence alone.

A row with nothing to attend to gives 0 and lse -inf; NaN in a masked key or value never reaches the output.
Raises TypeError for a wrong kind of argument or dtype, and ValueError for wrong shapes or values. A tensor that requires
a gradient while PyTorch records is a ValueError too: attend.torch.attention() takes it. Raises MemoryError. Ctrl-C ends
a long call, and other threads run meanwhile. attention_backward() gives the gradients.

>>> import numpy, attend
>>> q = numpy.ones((1, 2, 3, 8), numpy.float32)
>>> attend.attention(q, q, q, causal=True).shape
(1, 2, 3, 8)
>>> out, lse = attend.attention(q, q, q, scale=0, return_lse=True)
>>> round(float(lse[0, 0, 0]), 4)  # log 3: three equal scores
1.0986)";

constexpr const char* varlen_doc = R"(attention() for several sequences that stand one after another, without padding.

q [tokens,H,D], k [key tokens,Hkv,D], v [key tokens,Hkv,Dv] give out [tokens,H,Dv] (lse [H,tokens]). Sequence n has the
queries cu_seqlens_q[n] <= i < cu_seqlens_q[n + 1] and sees only its own keys, which cu_seqlens_k says likewise. Both are
whole numbers [sequences + 1] that begin with 0, as in FlashAttention. causal, window, offset, distance_bias and ALiBi
count from each sequence's first query and key. The other keywords, and the errors, are those of attention().

>>> import numpy, attend
>>> x = numpy.random.default_rng(0).standard_normal((5, 1, 4), numpy.float32)
>>> together = attend.attention_varlen(x, x, x, [0, 2, 5], [0, 2, 5], causal=True)
>>> alone = attend.attention(x[2:], x[2:], x[2:], causal=True, layout="bthd")
>>> numpy.array_equal(together[2:], alone)
True)";

constexpr const char* merge_doc = R"(Merge two results over disjoint sets of keys into the result over both: (out, lse).

out_a, out_b [B,H,Tq,Dv] and lse_a, lse_b [B,H,Tq], or with fewer axes, are what attention(..., return_lse=True) gives.
With both lse_low_a and lse_low_b, the shares are exact even where lse is large, and the result is (out, lse, lse_low).
Raises ValueError for shapes and TypeError for dtypes that do not fit.

>>> import numpy, attend
>>> q, k, v = numpy.random.default_rng(0).standard_normal((3, 1, 2, 6, 4), numpy.float32)
>>> halves = [attend.attention(q, k[:, :, part], v[:, :, part], return_lse=True) for part in (slice(3), slice(3, 6))]
>>> out, lse = attend.merge(*halves[0], *halves[1])
>>> numpy.allclose(out, attend.attention(q, k, v), atol=1e-6)
True)";

constexpr const char* steps_doc = R"(Every step of attention(), to look at. Memory grows with Tq * Tk.

Arguments and errors are those of attention(). Computed in double; the arrays are float32 (float64 for float64 inputs).

>>> import numpy, attend
>>> q = numpy.eye(3, dtype=numpy.float32)
>>> attend.attention_steps(q, q, q, causal=True, scale=1).weights.round(3)
array([[1.   , 0.   , 0.   ],
       [0.269, 0.731, 0.   ],
       [0.212, 0.212, 0.576]], dtype=float32))";

void bind_steps(nb::module_& m) {
  nb::class_<Steps> steps(m, "AttentionSteps", "What attention_steps() gives.");
  steps
      .def("__getstate__",
           [](const Steps& x) {
             return nb::make_tuple(x.scores, x.scaled_scores, x.logits, x.weights, x.context, x.lse);
           })
      .def("__setstate__",
           [](Steps& self, const nb::tuple& x) { new (&self) Steps{x[0], x[1], x[2], x[3], x[4], x[5]}; });
  steps.def_ro("scores", &Steps::scores, "[B,H,Tq,Tk] q.k, masked keys too", nb::sig("def scores(self) -> Any"))
      .def_ro("scaled_scores", &Steps::scaled_scores, "[B,H,Tq,Tk] scores * scale")
      .def_ro("logits", &Steps::logits, "[B,H,Tq,Tk] what the softmax sees; -inf where masked")
      .def_ro("weights", &Steps::weights, "[B,H,Tq,Tk] the softmax over the visible keys; 0 for the others")
      .def_ro("context", &Steps::context, "[B,H,Tq,Dv] weights v: attention()'s out, up to rounding")
      .def_ro("lse", &Steps::lse, "[B,H,Tq] natural logarithm of each row's sum of exponentials");
  m.def("attention_steps", &attention_steps_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options"),
        nb::sig(("def attention_steps(q: Array, k: Array, v: Array, *, " + options_signature() + ") -> AttentionSteps")
                    .c_str()),
        steps_doc);
}

}  // namespace

void bind_attention(nb::module_& m) {
  const std::string of_caches =
      signature_with_lse("attention", "q: ArrayT, k: Sequence[KvCache], *, " + options_signature(false));
  m.def("attention", &attention_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v") = nb::none(), nb::kw_only(),
        nb::arg("layout") = "bhtd", nb::arg("return_lse") = false, nb::arg("return_lse_low") = false,
        nb::arg("out") = nb::none(), nb::arg("options"),
        nb::sig((of_caches + ": ...\n" +
                 signature_with_lse("attention",
                                    "q: ArrayT, k: ArrayT, v: ArrayT, *, " + options_signature() +
                                        ", layout: Literal['bhtd', 'bthd'] = 'bhtd', out: ArrayT | None = None"))
                    .c_str()),
        (attention_doc_start + options_doc() + attention_doc_end).c_str());
  m.def("attention_varlen", &attention_varlen, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("cu_seqlens_q").none(), nb::arg("cu_seqlens_k").none(), nb::kw_only(), nb::arg("return_lse") = false,
        nb::arg("return_lse_low") = false, nb::arg("out") = nb::none(), nb::arg("options"),
        nb::sig(signature_with_lse("attention_varlen",
                                   "q: ArrayT, k: ArrayT, v: ArrayT, cu_seqlens_q: Array | Sequence[int], "
                                   "cu_seqlens_k: Array | Sequence[int], *, " +
                                       options_signature(false) + ", out: ArrayT | None = None")
                    .c_str()),
        varlen_doc);
  m.def("merge", &merge_, nb::arg("out_a").none(), nb::arg("lse_a").none(), nb::arg("out_b").none(),
        nb::arg("lse_b").none(), nb::kw_only(), nb::arg("lse_low_a") = nb::none(), nb::arg("lse_low_b") = nb::none(),
        nb::sig("@overload\n"
                "def merge(out_a: ArrayT, lse_a: ArrayT, out_b: ArrayT, lse_b: ArrayT) -> tuple[ArrayT, ArrayT]: ...\n"
                "@overload\n"
                "def merge(out_a: ArrayT, lse_a: ArrayT, out_b: ArrayT, lse_b: ArrayT, *, lse_low_a: ArrayT, "
                "lse_low_b: ArrayT) -> tuple[ArrayT, ArrayT, ArrayT]"),
        merge_doc);
  bind_steps(m);
}

}  // namespace attend::python
