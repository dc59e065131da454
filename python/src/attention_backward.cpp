// The gradients of attention().
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array.h"
#include "attend/attention.h"
#include "bindings.h"
#include "call.h"
#include "layout.h"
#include "options.h"

namespace attend::python {

namespace {

// AttentionGradients, as arrays. Those of options are in the order of tensor_options(); None where not wanted.
struct Gradients {
  nb::object dq, dk, dv;
  std::vector<nb::object> of_options;
};

// The arrays of one call.
struct AttentionBackwardCall {
  const char* function;
  Layout layout;
  Array dout, q, k, v, out, lse;
  OptionalArray dlse, lse_low;

  Gradients run(const AttentionOptions& options, const BackwardOptions& wanted) const;
};

// Memory for the gradient of an option that is wanted; the library refuses it where the option is not there.
Result like(const Kind& kind, const std::optional<View>& option) {
  return option ? Result(kind, option->shape(), option->dtype()) : Result(kind, {}, DType::f32);
}

Gradients AttentionBackwardCall::run(const AttentionOptions& options, const BackwardOptions& wanted) const {
  const auto inside = [&](const auto& view) { return heads_first(layout, view); };
  const auto made = [&](const Array& array) { return Result(q.kind(), array.view().shape(), array.view().dtype()); };
  Result dq = made(q), dk = made(k), dv = made(v);
  AttentionGradientViews to{inside(dq.view()), inside(dk.view()), inside(dv.view())};
  std::vector<nb::object> of_options;
  for (const TensorOption& option : tensor_options()) {
    of_options.push_back(nb::none());
    if (!option.wanted || !(wanted.*option.wanted)) continue;
    Result result = like(q.kind(), options.*option.value);
    to.*option.gradient_view = result.view();
    of_options.back() = result.take();
  }
  python::call(function, [&] {
    attention_backward_into(to, inside(dout.view()), inside(q.view()), inside(k.view()), inside(v.view()),
                            inside(out.view()), lse.view(), options, dlse.view(), lse_low.view());
  });
  return {dq.take(), dk.take(), dv.take(), std::move(of_options)};
}

AttentionBackwardCall read(const char* function, Layout layout, nb::handle dout, nb::handle q, nb::handle k,
                           nb::handle v, nb::handle out, nb::handle lse, nb::handle dlse, nb::handle lse_low) {
  const auto array = [&](const char* name, nb::handle object) { return Array(function, name, object); };
  return {function,
          layout,
          array("dout", dout),
          array("q", q),
          array("k", k),
          array("v", v),
          array("out", out),
          array("lse", lse),
          {function, "dlse", dlse},
          {function, "lse_low", lse_low}};
}

Gradients attention_backward_(nb::handle dout, nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
                              std::string_view layout, nb::handle dlse, nb::handle lse_low,
                              const nb::kwargs& keywords) {
  constexpr const char* function = "attention_backward";
  const AttentionBackwardCall call =
      read(function, read_layout(function, layout), dout, q, k, v, out, lse, dlse, lse_low);
  BackwardOptions wanted;
  const Options options(function, keywords, &wanted);
  return call.run(options.get(), wanted);
}

Gradients attention_varlen_backward(nb::handle dout, nb::handle q, nb::handle k, nb::handle v, nb::handle out,
                                    nb::handle lse, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, nb::handle dlse,
                                    nb::handle lse_low, const nb::kwargs& keywords) {
  constexpr const char* function = "attention_varlen_backward";
  const AttentionBackwardCall call = read(function, Layout::heads_last, dout, q, k, v, out, lse, dlse, lse_low);
  BackwardOptions wanted;
  Options options(function, keywords, &wanted);
  options.set_starts(cu_seqlens_q, cu_seqlens_k);
  return call.run(options.get(), wanted);
}

constexpr const char* attention_backward_doc = R"(The gradients of attention(), given those of its results.

dout, in q's dtype, is the gradient of out. dlse [B,H,Tq] is that of lse, if something was computed from lse.
q, k, v and the options are those of the attention() call, and out and lse what it gave with return_lse. They may also
come from merge(), with k and v one of the two sets of keys: the gradients are then those of these keys, and dq is one
summand of the whole. lse_low, from return_lse_low or merge(), is what rounding lse lost. Without it the rows' sums take
one more pass over q and k, a fifth of the time, and merged results with large lse are less exact.

dq, dk and dv have the shapes and dtypes of q, k and v. With dbias=True the gradient of bias is given too, in its shape
and dtype, summed over the axes along which it was broadcast; each floating-point option has such a keyword. All are new
arrays of q's kind. Nothing of the size Tq * Tk is stored: weights are computed again from lse.

A row with nothing to attend to has gradient 0; NaN in a masked key or value reaches no gradient.
The errors are those of attention(). Asking for the gradient of an option that is not given is a ValueError too.

>>> import numpy, attend
>>> q, k, v, dout = numpy.random.default_rng(0).standard_normal((4, 1, 2, 3, 8), numpy.float32)
>>> out, lse, lse_low = attend.attention(q, k, v, causal=True, return_lse_low=True)
>>> gradients = attend.attention_backward(dout, q, k, v, out, lse, lse_low=lse_low, causal=True)
>>> gradients.dq.shape, gradients.dbias
((1, 2, 3, 8), None)
>>> bool(abs(gradients.dq[:, :, 0]).max() < 1e-6)  # query 0 sees one key: its weight is 1, whatever q is
True)";

constexpr const char* attention_backward_varlen_doc =
    R"(attention_backward() for attention_varlen(): the same arguments as there.

dout and out [tokens,H,Dv], q [tokens,H,D], k [key tokens,Hkv,D], v [key tokens,Hkv,Dv], lse, dlse and lse_low [H,tokens].

>>> import numpy, attend
>>> x, dout = numpy.random.default_rng(0).standard_normal((2, 5, 1, 4), numpy.float32)
>>> starts = [0, 2, 5]
>>> out, lse = attend.attention_varlen(x, x, x, starts, starts, return_lse=True)
>>> attend.attention_varlen_backward(dout, x, x, x, out, lse, starts, starts).dk.shape
(5, 1, 4))";

std::string signature(const std::string& name, const std::string& more, bool key_lengths, const std::string& last) {
  return "def " + name + "(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, " + more + "*, " +
         options_signature(key_lengths) + ", dlse: Array | None = None, lse_low: Array | None = None, " +
         gradients_signature() + last + ") -> AttentionGradients";
}

}  // namespace

void bind_attention_backward(nb::module_& m) {
  nb::class_<Gradients> gradients(m, "AttentionGradients", "What attention_backward() gives.");
  gradients.def("__getstate__", [](const Gradients& x) { return nb::make_tuple(x.dq, x.dk, x.dv, x.of_options); })
      .def("__setstate__", [](Gradients& self, const nb::tuple& x) {
        new (&self) Gradients{x[0], x[1], x[2], nb::cast<std::vector<nb::object>>(x[3])};
      });
  gradients.def_ro("dq", &Gradients::dq, "of q, in its shape and dtype", nb::sig("def dq(self) -> Any"))
      .def_ro("dk", &Gradients::dk, "of k, in its shape and dtype")
      .def_ro("dv", &Gradients::dv, "of v, in its shape and dtype");
  for (std::size_t n = 0; n < tensor_options().size(); ++n) {
    const TensorOption& option = tensor_options()[n];
    if (!option.wanted) continue;
    const std::string name(option.name), of = "of " + name + ", in its shape and dtype; None where not wanted";
    gradients.def_prop_ro(("d" + name).c_str(), [n](const Gradients& self) { return self.of_options[n]; }, of.c_str(),
                          nb::sig(("def d" + name + "(self) -> Any").c_str()));
  }
  m.def("attention_backward", &attention_backward_, nb::arg("dout").none(), nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("out").none(), nb::arg("lse").none(), nb::kw_only(), nb::arg("layout") = "bhtd",
        nb::arg("dlse") = nb::none(), nb::arg("lse_low") = nb::none(), nb::arg("options"),
        nb::sig(signature("attention_backward", "", true, ", layout: Literal['bhtd', 'bthd'] = 'bhtd'").c_str()),
        attention_backward_doc);
  m.def("attention_varlen_backward", &attention_varlen_backward, nb::arg("dout").none(), nb::arg("q").none(),
        nb::arg("k").none(), nb::arg("v").none(), nb::arg("out").none(), nb::arg("lse").none(),
        nb::arg("cu_seqlens_q").none(), nb::arg("cu_seqlens_k").none(), nb::kw_only(), nb::arg("dlse") = nb::none(),
        nb::arg("lse_low") = nb::none(), nb::arg("options"),
        nb::sig(signature("attention_varlen_backward",
                          "cu_seqlens_q: Array | Sequence[int], cu_seqlens_k: Array | Sequence[int], ", false, "")
                    .c_str()),
        attention_backward_varlen_doc);
}

}  // namespace attend::python
