// PyTorch's random numbers.
#include <nanobind/nanobind.h>

#include <string>

#include "array.h"
#include "attend/random.h"
#include "bindings.h"

namespace attend::python {

namespace {

constexpr const char* class_doc = R"(PyTorch's CPU generator: same seed, same calls, same values, as NumPy arrays.

Generator(seed) is torch.manual_seed(seed). Shapes are tuples, as in NumPy; dtype is float32 or float64.

>>> import attend
>>> attend.Generator(123).rand((2, 2))  # torch.manual_seed(123); torch.rand(2, 2)
array([[0.29611194, 0.5165623 ],
       [0.25167072, 0.6885568 ]], dtype=float32))";

Dims shape_of(const char* function, nb::handle shape) {
  return read_shape(function, "shape", shape);
}

nb::object array(const Tensor& tensor) {
  return to_python(Kind{}, tensor);
}

}  // namespace

void bind_generator(nb::module_& m) {
  const auto shape = nb::arg("shape");
  nb::class_<Generator>(m, "Generator", class_doc)
      .def(nb::init<std::uint64_t>(), nb::arg("seed") = Generator::default_seed)
      .def("seed", &Generator::seed, nb::arg("seed"), "Start again, as torch.manual_seed.")
      .def(
          "rand",
          [](Generator& self, nb::handle shape, nb::handle dtype) {
            return array(self.rand(shape_of("Generator.rand", shape), read_dtype("Generator.rand", dtype)));
          },
          shape, nb::arg("dtype") = "float32",
          nb::sig("def rand(self, shape: Sequence[int], dtype: object = 'float32') -> numpy.ndarray"),
          "Uniform in [0, 1): torch.rand.")
      .def(
          "randn",
          [](Generator& self, nb::handle shape, nb::handle dtype) {
            return array(self.randn(shape_of("Generator.randn", shape), read_dtype("Generator.randn", dtype)));
          },
          shape, nb::arg("dtype") = "float32",
          nb::sig("def randn(self, shape: Sequence[int], dtype: object = 'float32') -> numpy.ndarray"),
          "Standard normal: torch.randn.")
      .def(
          "uniform",
          [](Generator& self, nb::handle shape, double low, double high, nb::handle dtype) {
            constexpr const char* function = "Generator.uniform";
            return array(self.uniform(shape_of(function, shape), low, high, read_dtype(function, dtype)));
          },
          shape, nb::arg("low"), nb::arg("high"), nb::arg("dtype") = "float32",
          nb::sig("def uniform(self, shape: Sequence[int], low: float, high: float, dtype: object = 'float32') "
                  "-> numpy.ndarray"),
          "Uniform in [low, high): Tensor.uniform_.")
      .def(
          "normal",
          [](Generator& self, nb::handle shape, double mean, double std, nb::handle dtype) {
            constexpr const char* function = "Generator.normal";
            return array(self.normal(shape_of(function, shape), mean, std, read_dtype(function, dtype)));
          },
          shape, nb::arg("mean"), nb::arg("std"), nb::arg("dtype") = "float32",
          nb::sig("def normal(self, shape: Sequence[int], mean: float, std: float, dtype: object = 'float32') "
                  "-> numpy.ndarray"),
          "Normal: Tensor.normal_.")
      .def(
          "kaiming_uniform",
          [](Generator& self, nb::handle shape) {
            return array(self.kaiming_uniform(shape_of("Generator.kaiming_uniform", shape)));
          },
          shape, nb::sig("def kaiming_uniform(self, shape: Sequence[int]) -> numpy.ndarray"),
          "As nn.Linear draws its weights [out, in]: uniform within 1 / sqrt(in).")
      .def(
          "xavier_uniform",
          [](Generator& self, nb::handle shape) {
            return array(self.xavier_uniform(shape_of("Generator.xavier_uniform", shape)));
          },
          shape, nb::sig("def xavier_uniform(self, shape: Sequence[int]) -> numpy.ndarray"),
          "torch.nn.init.xavier_uniform_, for [out, in].")
      .def(
          "xavier_normal",
          [](Generator& self, nb::handle shape) {
            return array(self.xavier_normal(shape_of("Generator.xavier_normal", shape)));
          },
          shape, nb::sig("def xavier_normal(self, shape: Sequence[int]) -> numpy.ndarray"),
          "torch.nn.init.xavier_normal_, for [out, in].");
}

}  // namespace attend::python
