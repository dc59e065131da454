// PyTorch's torch.nn.functional.scaled_dot_product_attention, on attention().
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <string>

#include "array.h"
#include "attend/attention.h"
#include "bindings.h"
#include "call.h"

namespace attend::python {

namespace {

constexpr const char* scaled_dot_product_attention_function = "scaled_dot_product_attention";

[[noreturn]] void refuse_argument(const std::string& what) {
  throw nb::value_error((std::string(scaled_dot_product_attention_function) + ": " + what).c_str());
}

Dims lead_and(const Dims& lead, std::optional<std::int64_t> heads, std::int64_t rows, std::int64_t columns) {
  Dims shape = lead;
  if (heads) shape[shape.rank() - 1] = *heads;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

// The axes before the last two, as NumPy broadcasts them; with `grouped`, heads are query's.
Dims broadcast_lead(const View& q, const View& k, const View& v, bool grouped) {
  const int rank = std::max({q.rank(), k.rank(), v.rank()}) - 2;
  Dims lead;
  for (int axis = 0; axis < rank; ++axis) lead.push_back(1);
  for (const View* x : {&q, &k, &v}) {
    for (int axis = 0; axis < x->rank() - 2; ++axis) {
      std::int64_t& size = lead[rank - (x->rank() - 2) + axis];
      const bool heads = grouped && axis == x->rank() - 3;
      if (x->size(axis) == 1 || x->size(axis) == size || (heads && x != &q)) continue;
      if (size != 1) {
        refuse_argument("query " + q.shape().str() + ", key " + k.shape().str() + " and value " + v.shape().str() +
                        " do not broadcast" +
                        (grouped ? "" : "; for fewer key than query heads, pass enable_gqa=True"));
      }
      size = x->size(axis);
    }
  }
  return lead;
}

// Axes 0 and 1 as one, where strides allow.
bool join_first(View& x) {
  Dims shape{x.size(0) * x.size(1)}, strides{x.strides()[1]};
  if (x.size(0) != 1 && x.size(1) != 1 && x.strides()[0] != x.size(1) * x.strides()[1]) return false;
  if (x.size(1) == 1) strides[0] = x.strides()[0];
  for (int axis = 2; axis < x.rank(); ++axis) {
    shape.push_back(x.size(axis));
    strides.push_back(x.strides()[axis]);
  }
  x = View(x.raw(), x.dtype(), shape, strides);
  return true;
}

struct Arguments {
  View q, k, v;
  std::optional<View> mask;  // bool or floating point, with all axes
};

void run(const MutableView& out, const Arguments& x, AttentionOptions options) {
  if (out.rank() <= 4) {
    (x.mask && x.mask->dtype() == DType::boolean ? options.mask : options.bias) = x.mask;
    return attention_into(out, std::nullopt, x.q, x.k, x.v, options);
  }
  // More than one batch axis: one call where two are like one in memory, else one for each index of the first.
  Arguments joined = x;
  View joined_out = out;
  if (join_first(joined_out) && join_first(joined.q) && join_first(joined.k) && join_first(joined.v) &&
      (!joined.mask || join_first(*joined.mask))) {
    return run(MutableView(out.raw(), out.dtype(), joined_out.shape(), joined_out.strides()), joined, options);
  }
  for (std::int64_t i = 0; i < out.size(0); ++i) {
    run(out.select(0, i),
        {x.q.select(0, i), x.k.select(0, i), x.v.select(0, i),
         x.mask ? std::optional(x.mask->select(0, i)) : std::nullopt},
        options);
  }
}

View broadcast(const char* name, const View& x, const Dims& shape) {
  try {
    return x.broadcast_to(shape);
  } catch (const Error&) {
    refuse_argument(std::string(name) + " has shape " + x.shape().str() + ", expected one that broadcasts to " +
                    shape.str());
  }
}

// All arguments with the same axes before the last two.
Arguments broadcast_all(const View& q, const View& k, const View& v, const std::optional<Array>& mask, bool grouped) {
  for (const View* x : {&q, &k, &v}) {
    if (x->rank() < (grouped ? 3 : 2)) {
      refuse_argument("expected at least " + std::string(grouped ? "3 axes with enable_gqa" : "2 axes") +
                      ", got query " + q.shape().str() + ", key " + k.shape().str() + ", value " + v.shape().str());
    }
  }
  const Dims lead = broadcast_lead(q, k, v, grouped);
  const auto heads = [&](const View& x) { return grouped ? std::optional(x.size(-3)) : std::nullopt; };
  Arguments all{broadcast("query", q, lead_and(lead, std::nullopt, q.size(-2), q.size(-1))),
                broadcast("key", k, lead_and(lead, heads(k), k.size(-2), k.size(-1))),
                broadcast("value", v, lead_and(lead, heads(v), v.size(-2), v.size(-1))), std::nullopt};
  if (mask) all.mask = broadcast("attn_mask", mask->view(), lead_and(lead, std::nullopt, q.size(-2), k.size(-2)));
  return all;
}

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        double dropout_p, bool is_causal, std::optional<double> scale,
                                        bool enable_gqa) {
  if (dropout_p != 0) {
    refuse_argument("dropout_p: expected 0, got " + std::to_string(dropout_p) +
                    ": no random state says what to drop; " + "attention() takes dropout=(p, seed)");
  }
  const Array q(scaled_dot_product_attention_function, "query", query),
      k(scaled_dot_product_attention_function, "key", key), v(scaled_dot_product_attention_function, "value", value);
  std::optional<Array> mask;
  if (!attn_mask.is_none()) {
    if (is_causal) refuse_argument("attn_mask and is_causal=True can't both be given");
    mask.emplace(scaled_dot_product_attention_function, "attn_mask", attn_mask);
  }
  const Arguments all = broadcast_all(q.view(), k.view(), v.view(), mask, enable_gqa);
  Dims shape = all.q.shape();
  shape[shape.rank() - 1] = all.v.size(-1);
  Result out(q.kind(), shape, all.q.dtype());
  AttentionOptions options;
  options.causal = is_causal;
  options.scale = scale;
  options.offset = Offset::top_left();
  call(scaled_dot_product_attention_function, [&] { run(out.view(), all, options); });
  return out.take();
}

constexpr const char* scaled_dot_product_attention_doc =
    R"(torch.nn.functional.scaled_dot_product_attention, for any arrays.

query [...,H,Tq,D], key [...,Hkv,Tk,D], value [...,Hkv,Tk,Dv] give [...,H,Tq,Dv], of query's kind and dtype. Axes before
the last two broadcast as in PyTorch; Hkv is H, unless enable_gqa lets H be a multiple of it.
attn_mask broadcasts to [...,H,Tq,Tk]: bool, True = may attend, or floating point, added to the scaled scores.
is_causal counts from the top left corner, even where Tq != Tk. scale is 1 / sqrt(D) unless given. A row with nothing to
attend to gives 0. dropout_p must be 0, and a tensor that requires a gradient is refused while PyTorch records;
attend.torch.scaled_dot_product_attention() takes both.
Raises TypeError for a wrong kind of argument or dtype, ValueError for wrong shapes or values, MemoryError.

>>> import numpy, attend
>>> q = numpy.ones((1, 2, 3, 8), numpy.float32)
>>> attend.scaled_dot_product_attention(q, q, q, is_causal=True).shape
(1, 2, 3, 8))";

}  // namespace

void bind_scaled_dot_product_attention(nb::module_& m) {
  m.def("scaled_dot_product_attention", &scaled_dot_product_attention, nb::arg("query").none(), nb::arg("key").none(),
        nb::arg("value").none(), nb::arg("attn_mask") = nb::none(), nb::arg("dropout_p") = 0.0,
        nb::arg("is_causal") = false, nb::kw_only(), nb::arg("scale") = nb::none(), nb::arg("enable_gqa") = false,
        nb::sig("def scaled_dot_product_attention(query: ArrayT, key: ArrayT, value: ArrayT, "
                "attn_mask: ArrayT | None = None, dropout_p: float = 0.0, is_causal: bool = False, *, "
                "scale: float | None = None, enable_gqa: bool = False) -> ArrayT"),
        scaled_dot_product_attention_doc);
}

}  // namespace attend::python
