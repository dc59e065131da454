// plan() and plan_backward().
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include "array.h"
#include "attend/attention.h"
#include "bindings.h"
#include "call.h"
#include "options.h"
#include "pickle.h"

namespace attend::python {

namespace {

// The shapes of one call, and what is computed.
struct Shapes {
  Dims q, k, v;
  DType dtype;

  Shapes(const char* function, nb::handle q_, nb::handle k_, nb::handle v_, nb::handle dtype_)
      : q(read_shape(function, "q", q_)), k(read_shape(function, "k", k_)), v(read_shape(function, "v", v_)) {
    // Of an array its dtype is asked for and not its memory, so that q may be on another device or require a gradient.
    const nb::object given = dtype_.is_none() ? nb::getattr(q_, "dtype", nb::none()) : nb::borrow(dtype_);
    dtype = given.is_none() ? DType::f32 : read_dtype(function, given);
  }
};

AttentionPlan plan_(nb::handle q, nb::handle k, nb::handle v, nb::handle dtype, const nb::kwargs& keywords) {
  constexpr const char* function = "plan";
  const Options options(function, keywords);
  const Shapes x(function, q, k, v, dtype);
  return call(function, [&] { return plan(x.q, x.k, x.v, x.dtype, options.get()); });
}

AttentionPlan plan_backward_(nb::handle q, nb::handle k, nb::handle v, nb::handle dtype, const nb::kwargs& keywords) {
  constexpr const char* function = "plan_backward";
  BackwardOptions wanted;
  const Options options(function, keywords, &wanted);
  const Shapes x(function, q, k, v, dtype);
  return call(function, [&] { return plan_backward(x.q, x.k, x.v, x.dtype, options.get(), wanted); });
}

std::string plan_describe(const AttentionPlan& plan) {
  return "AttentionPlan(path='" + std::string(name_of(plan.path)) + "', target='" + plan.target +
         "', work_items=" + std::to_string(plan.work_items) + ", threads=" + std::to_string(plan.threads) +
         ", scratch_bytes=" + std::to_string(plan.scratch_bytes) + ", reason='" + translate_names(plan.reason) + "')";
}

constexpr const char* plan_doc =
    R"(How attention() would compute arguments of these shapes, and with how much memory. Nothing is computed.

q, k, v are shapes or arrays; dtype (default: q's own, or float32) is a name or a dtype of NumPy or PyTorch.
Raises what attention() raises.

>>> import attend
>>> attend.plan((1, 32, 1, 128), (1, 8, 4096, 128), (1, 8, 4096, 128), "bfloat16").path
'decode')";

constexpr const char* plan_backward_doc =
    R"(How attention_backward() would compute gradients for arguments of these shapes, and with how much memory.

Like plan(). dbias and the other gradient keywords are those of attention_backward(), and so are the errors.

>>> import attend
>>> shape = (1, 8, 4096, 64)
>>> plan = attend.plan_backward(shape, shape, shape, causal=True)
>>> plan.flops / attend.plan(shape, shape, shape, causal=True).flops
2.5)";

std::string plan_signature(const char* name, const std::string& keywords) {
  return "def " + std::string(name) +
         "(q: Array | Sequence[int], k: Array | Sequence[int], v: Array | Sequence[int], " +
         "dtype: object = None, *, " + keywords + ") -> AttentionPlan";
}

}  // namespace

void bind_plan(nb::module_& m) {
  nb::class_<AttentionPlan> said(m, "AttentionPlan", "What plan() and plan_backward() say.");
  copies_are_itself(said);
  refuses_pickle(said, "it is of this machine; plan() makes it of shapes alone");
  said.def_prop_ro(
          "path", [](const AttentionPlan& plan) { return name_of(plan.path); },
          "\"reference\", \"fused\" or \"decode\"")
      .def_ro("target", &AttentionPlan::target,
              "of the kernels: baseline, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon")
      .def_ro("tile_queries", &AttentionPlan::tile_queries,
              "query rows of a work item, counting the heads of a group together")
      .def_ro("tile_keys", &AttentionPlan::tile_keys, "keys read in one piece")
      .def_ro("key_ranges", &AttentionPlan::key_ranges, "how many work items share the keys of a head, at most")
      .def_ro("work_items", &AttentionPlan::work_items)
      .def_ro("threads", &AttentionPlan::threads, "at most")
      .def_ro("scratch_bytes", &AttentionPlan::scratch_bytes, "allocated besides the results")
      .def_ro("flops", &AttentionPlan::flops,
              "2 (D + Dv) for every pair that causal, window and lengths leave visible; 5 (D + Dv) backward")
      .def_prop_ro(
          "reason", [](const AttentionPlan& plan) { return translate_names(plan.reason); }, "why this path")
      .def("__repr__", &plan_describe);
  m.def("plan", &plan_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("dtype") = nb::none(),
        nb::arg("options"), nb::sig(plan_signature("plan", options_signature()).c_str()), plan_doc);
  m.def("plan_backward", &plan_backward_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("dtype") = nb::none(), nb::arg("options"),
        nb::sig(plan_signature("plan_backward", options_signature() + ", " + gradients_signature()).c_str()),
        plan_backward_doc);
}

}  // namespace attend::python
