// PyTorch's random numbers.
#include <nanobind/nanobind.h>

#include <string>

#include "array.h"
#include "attend/random.h"
#include "bindings.h"
#include "call.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr const char* generator_class_doc =
    R"(PyTorch's CPU generator: same seed, same calls, same values, as NumPy arrays.

Generator(seed) is torch.manual_seed(seed). Shapes are tuples, as in NumPy; dtype is float32 or float64.

>>> import attend
>>> attend.Generator(123).rand((2, 2))  # torch.manual_seed(123); torch.rand(2, 2)
array([[0.29611194, 0.5165623 ],
       [0.25167072, 0.6885568 ]], dtype=float32))";

// A method of Generator, called `name` in Python: its arguments from Python, and its result as an array.
class Method {
 public:
  explicit Method(const char* name) : name_(std::string("Generator.") + name) {}

  Dims shape(nb::handle shape) const { return read_shape(name_.c_str(), "shape", shape); }
  DType dtype(nb::handle dtype) const { return read_dtype(name_.c_str(), dtype); }
  nb::object array(const Tensor& tensor) const { return to_python(Kind{}, tensor); }

 private:
  std::string name_;
};

std::string signature(const char* name, const std::string& arguments) {
  return "def " + std::string(name) + "(self, shape: Sequence[int]" + arguments + ") -> numpy.ndarray";
}

using GeneratorClass = nb::class_<Generator>;

void bind_draw(GeneratorClass& c, const char* name, Tensor (Generator::*draw)(const Dims&, DType), const char* doc) {
  c.def(
      name,
      [draw, method = Method(name)](Generator& self, nb::handle shape, nb::handle dtype) {
        return method.array((self.*draw)(method.shape(shape), method.dtype(dtype)));
      },
      nb::arg("shape"), nb::arg("dtype") = "float32", nb::sig(signature(name, ", dtype: object = 'float32'").c_str()),
      doc);
}

// From a distribution with two numbers, called `first` and `second`.
void bind_draw(GeneratorClass& c, const char* name, const char* first, const char* second,
               Tensor (Generator::*draw)(const Dims&, double, double, DType), const char* doc) {
  const std::string numbers = std::string(", ") + first + ": float, " + second + ": float";
  c.def(
      name,
      [draw, method = Method(name)](Generator& self, nb::handle shape, double a, double b, nb::handle dtype) {
        return method.array((self.*draw)(method.shape(shape), a, b, method.dtype(dtype)));
      },
      nb::arg("shape"), nb::arg(first), nb::arg(second), nb::arg("dtype") = "float32",
      nb::sig(signature(name, numbers + ", dtype: object = 'float32'").c_str()), doc);
}

std::string signature_of_class() {
  return "def __init__(self, seed: int = " + std::to_string(Generator::default_seed) + ") -> None";
}

void generator_construct(Generator* self, const nb::args& args, const nb::kwargs& keywords) {
  const nb::list given = constructed_with("Generator", signature_of_class(), args, keywords);
  new (self) Generator(expect<std::uint64_t>("Generator", "seed", "a whole number from 0 on", given[0]));
}

void bind_initialiser(GeneratorClass& c, const char* name, Tensor (Generator::*draw)(const Dims&), const char* doc) {
  c.def(
      name,
      [draw, method = Method(name)](Generator& self, nb::handle shape) {
        return method.array((self.*draw)(method.shape(shape)));
      },
      nb::arg("shape"), nb::sig(signature(name, "").c_str()), doc);
}

}  // namespace

void bind_generator(nb::module_& m) {
  GeneratorClass c(m, "Generator", generator_class_doc);
  c.def("__init__", &generator_construct, nb::sig(signature_of_class().c_str()));
  refuses_pickle(c, "where it stands among its numbers is not known; make one of the same seed");
  c.def("seed", &Generator::seed, nb::arg("seed"), "Start again, as torch.manual_seed.");
  bind_draw(c, "rand", &Generator::rand, "Uniform in [0, 1): torch.rand.");
  bind_draw(c, "randn", &Generator::randn, "Standard normal: torch.randn.");
  bind_draw(c, "uniform", "low", "high", &Generator::uniform, "Uniform in [low, high): Tensor.uniform_.");
  bind_draw(c, "normal", "mean", "std", &Generator::normal, "Normal: Tensor.normal_.");
  bind_initialiser(c, "kaiming_uniform", &Generator::kaiming_uniform,
                   "As nn.Linear draws its weights [out, in]: uniform within 1 / sqrt(in).");
  bind_initialiser(c, "xavier_uniform", &Generator::xavier_uniform, "torch.nn.init.xavier_uniform_, for [out, in].");
  bind_initialiser(c, "xavier_normal", &Generator::xavier_normal, "torch.nn.init.xavier_normal_, for [out, in].");
}

}  // namespace attend::python
