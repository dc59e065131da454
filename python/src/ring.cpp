// Attention over ranks that a Python object connects: what attend.torch.ring_attention() stands on.
#include "attend/ring.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "array.h"
#include "bindings.h"
#include "call.h"
#include "options.h"

namespace attend::python {

namespace {

using Runs = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;  // [rank][run], (begin, end)

// An object with rank, size, send(to, tag, memory), receive(from, tag, memory), test(request) and abandon(reason), as
// RingTransport has them. memory is a memoryview of bytes, valid until test() says True. test() raises ConnectionError
// where a rank is lost.
class PythonRanks : public RingTransport {
 public:
  explicit PythonRanks(nb::object ranks)
      : ranks_(std::move(ranks)),
        rank_(nb::cast<int>(ranks_.attr("rank"))),
        size_(nb::cast<int>(ranks_.attr("size"))) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override {
    return pass("send", to, tag, const_cast<void*>(data), bytes);  // NumPy and PyTorch warn of memory to read only
  }

  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override {
    return pass("receive", from, tag, data, bytes);
  }

  bool test(std::int64_t request) override {
    return asked([&] { return nb::cast<bool>(ranks_.attr("test")(request)); });
  }

  // What Python raised, which ends the call, stays raised.
  void abandon(std::string_view reason) noexcept override {
    const WithGil gil;
    const nb::error_scope raised;
    try {
      ranks_.attr("abandon")(nb::bytes(reason.data(), reason.size()));
    } catch (const std::exception&) {  // the others learn it when this process ends
    }
  }

 private:
  std::int64_t pass(const char* method, int peer, int tag, void* data, std::int64_t bytes) {
    return asked([&] {
      const auto memory = nb::steal(PyMemoryView_FromMemory(static_cast<char*>(data), bytes, PyBUF_WRITE));
      if (!memory.is_valid()) throw nb::python_error();
      return nb::cast<std::int64_t>(ranks_.attr(method)(peer, tag, memory));
    });
  }

  // A lost rank is the library's own error. Whatever else is raised, by a signal's handler too, ends the call and
  // passes through it.
  template <class Ask>
  static std::invoke_result_t<Ask> asked(Ask ask) {
    const WithGil gil;
    try {
      return ask();
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_ConnectionError)) {
        throw Error(ErrorCode::lost_rank, "", nb::cast<std::string>(nb::str(error.value())));
      }
      const std::string text = error.what();
      error.restore();
      throw Error(ErrorCode::interrupted, "", text.substr(text.find_last_of('\n', text.size() - 2) + 1));
    }
  }

  nb::object ranks_;
  int rank_, size_;
};

std::vector<std::vector<Range>> ranges_of(const Runs& runs) {
  std::vector<std::vector<Range>> list;
  for (const auto& rank : runs) {
    list.emplace_back();
    for (const auto& [begin, end] : rank) list.back().push_back({begin, end});
  }
  return list;
}

// The arguments of one call: they are read before any rank is waited for.
class RingCall {
 public:
  RingCall(nb::handle q, nb::handle k, nb::handle v, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
           const nb::kwargs& keywords)
      : q_(function, "q", q), k_(function, "k", k), v_(function, "v", v), options_(function, keywords, &wanted_) {
    if (!cu_seqlens_q.is_none() || !cu_seqlens_k.is_none()) options_.set_starts(cu_seqlens_q, cu_seqlens_k);
  }

  // (out, lse, lse_low)
  nb::tuple forward(nb::object ranks, const Runs& queries, const Runs& keys) const {
    PythonRanks transport(std::move(ranks));
    const AttentionResult result = python::call(function, [&] {
      return ring_attention(transport, q_.view(), k_.view(), v_.view(), {ranges_of(queries), ranges_of(keys)},
                            options_.get());
    });
    return nb::make_tuple(array(result.out), array(result.lse), array(*result.lse_low));
  }

  // dq, dk, dv, and name -> gradient of each option whose gradient is wanted.
  nb::tuple backward(nb::object ranks, const Runs& queries, const Runs& keys, nb::handle dout, nb::handle out,
                     nb::handle lse, nb::handle lse_low, nb::handle dlse) const {
    constexpr const char* name = "ring_attention_backward";
    PythonRanks transport(std::move(ranks));
    const Array of_out(name, "dout", dout), result(name, "out", out), sums(name, "lse", lse);
    const OptionalArray sums_low(name, "lse_low", lse_low), of_sums(name, "dlse", dlse);
    BackwardOptions wanted = wanted_;
    wanted.dlse = of_sums.view();
    wanted.lse_low = sums_low.view();
    const AttentionGradients gradients = python::call(name, [&] {
      return ring_attention_backward(transport, of_out.view(), q_.view(), k_.view(), v_.view(), result.view(),
                                     sums.view(), {ranges_of(queries), ranges_of(keys)}, options_.get(), wanted);
    });
    nb::dict of_options;
    for (const TensorOption& option : tensor_options()) {
      if (option.wanted && wanted.*option.wanted)
        of_options[std::string(option.name).c_str()] = array(*(gradients.*option.gradient));
    }
    return nb::make_tuple(array(gradients.dq), array(gradients.dk), array(gradients.dv), of_options);
  }

 private:
  static constexpr const char* function = "ring_attention";

  nb::object array(const Tensor& tensor) const { return to_python(q_.kind(), tensor.view()); }

  Array q_, k_, v_;
  BackwardOptions wanted_;
  Options options_;
};

Runs runs(std::string_view name, int ranks, std::int64_t positions) {
  const RingSharding sharding =
      name == "zigzag" ? RingSharding::zigzag(ranks, positions, 0) : RingSharding::contiguous(ranks, positions, 0);
  Runs list;
  for (const std::vector<Range>& rank : sharding.queries) {
    list.emplace_back();
    for (const Range& run : rank) list.back().emplace_back(run.begin, run.end);
  }
  return list;
}

void sum(nb::object ranks, nb::handle x) {
  constexpr const char* function = "ring_sum";
  PythonRanks transport(std::move(ranks));
  const Array array(function, "x", x);
  const MutableView view = array.writable();
  python::call(function, [&] { ring_sum(transport, view); });
}

}  // namespace

void bind_ring(nb::module_& m) {
  nb::class_<RingCall>(m, "_RingCall", "The arguments of attend.torch.ring_attention().")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, const nb::kwargs&>(), nb::arg("q"),
           nb::arg("k"), nb::arg("v"), nb::arg("cu_seqlens_q").none(), nb::arg("cu_seqlens_k").none(),
           nb::arg("options"))
      .def("forward", &RingCall::forward)
      .def("backward", &RingCall::backward, nb::arg("ranks"), nb::arg("queries"), nb::arg("keys"), nb::arg("dout"),
           nb::arg("out"), nb::arg("lse"), nb::arg("lse_low"), nb::arg("dlse").none());
  m.def("_ring_runs", &runs);
  m.def("_ring_sum", &sum);
}

}  // namespace attend::python
