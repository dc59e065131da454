#include "array.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "call.h"
#include "dlpack.h"
#include "openmp.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr std::int32_t cpu_device = 1;  // kDLCPU

template <class... Parts>
std::string join(const Parts&... parts) {
  std::string text;
  ((text += parts), ...);
  return text;
}

// What is looked up once and kept until the interpreter ends.
struct NumPy {
  nb::object ndarray, empty, uint16;
  std::array<nb::object, 8> dtypes;  // by DType; bf16 has none

  static const NumPy& get() {
    static const NumPy* numpy = new NumPy;
    return *numpy;
  }

 private:
  NumPy() {
    const nb::module_ module = nb::module_::import_("numpy");
    ndarray = module.attr("ndarray");
    empty = module.attr("empty");
    uint16 = module.attr("uint16");
    const nb::object dtype = module.attr("dtype");
    for (const DType each : {DType::f32, DType::f64, DType::f16, DType::i64, DType::i8, DType::u8, DType::boolean}) {
      dtypes[static_cast<std::size_t>(each)] = dtype(python_name(each));
    }
  }
};

// Names as Python strings: made of C's at each of these calls, they would cost twice as much.
struct PyTorch {
  nb::str requires_grad{"requires_grad"}, is_neg{"is_neg"}, is_inference{"is_inference"};
  nb::object is_grad_enabled = nb::module_::import_("torch").attr("is_grad_enabled");
  nb::object increment_version = nb::module_::import_("torch").attr("autograd").attr("graph").attr("increment_version");

  static const PyTorch& get() {
    static const PyTorch* torch = new PyTorch;
    return *torch;
  }
};

// What a type of arrays says of itself.
struct Exchange {
  const ExchangeApi* api = nullptr;  // or it has none
  bool records = false;              // PyTorch's: its tensors may record what is computed with them
};

// Of the type of an object. Types are few and kept: a look-up is then a comparison.
Exchange exchange_of(nb::handle object) {
  static auto* known = new std::unordered_map<PyTypeObject*, Exchange>;
  PyTypeObject* type = Py_TYPE(object.ptr());
  if (const auto at = known->find(type); at != known->end()) return at->second;
  const ExchangeApi* api = nullptr;
  const nb::handle type_object(reinterpret_cast<PyObject*>(type));
  if (const nb::object capsule = nb::getattr(type_object, "__dlpack_c_exchange_api__", nb::none());
      !capsule.is_none()) {
    api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (!api) throw nb::python_error();
    while (api && api->version.major != exchange_api_major) api = api->previous;
    use_openmp_threads();
  }
  type_object.inc_ref();  // so that no other type gets its address
  const Exchange exchange{api, nb::hasattr(type_object, "requires_grad")};
  known->emplace(type, exchange);
  return exchange;
}

// NumPy's bfloat16: of the array it came from, else of ml_dtypes, where that is installed.
nb::object bfloat16_dtype(const Kind& kind) {
  if (kind.bfloat16.is_valid()) return kind.bfloat16;
  return nb::module_::import_("numpy").attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
}

// The dtype as its library writes it: "complex64", "torch.complex64"; "" without one.
std::string dtype_text(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return dtype.is_none() ? "" : text_of(dtype);
}

bool is_masked_array(nb::handle object) {
  if (object.type().is(NumPy::get().ndarray)) return false;  // nearly always
  return PyObject_IsInstance(object.ptr(), nb::module_::import_("numpy.ma").attr("MaskedArray").ptr()) == 1;
}

void set_python_error(void*, const char* kind, const char* message) {
  const nb::gil_scoped_acquire gil;
  const bool memory = std::string_view(kind) == "MemoryError";
  PyErr_SetString(memory ? PyExc_MemoryError : PyExc_RuntimeError, message);
}

nb::object allocate(const ExchangeApi& api, const Dims& shape, DType dtype, void*& data) {
  const MayAskForGil may(Gil::held);
  Dims sizes = shape;
  nb::dlpack::dltensor like;
  like.device.device_type = cpu_device;
  like.ndim = shape.rank();
  like.dtype = to_dlpack(dtype);
  like.shape = &sizes[0];
  ManagedTensor* tensor = nullptr;
  if (api.allocate(&like, &tensor, nullptr, set_python_error) != 0) throw nb::python_error();
  data = static_cast<char*>(tensor->tensor.data) + tensor->tensor.byte_offset;
  void* object = nullptr;
  if (api.object_from_managed(tensor, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

nb::builtin_exception refusal(const char* function, const char* name, const char* expected, nb::handle object) {
  return nb::type_error(join(function, ": ", name, ": expected ", expected, ", got ", repr_of(object)).c_str());
}

}  // namespace

Array::Array(const char* function, const char* name, nb::handle object)
    : function_(function), name_(name), object_(object) {
  const MayAskForGil may(Gil::held);
  if (read_exchange() || read_buffer() || read_dlpack()) return;
  refuse(join("expected an array (NumPy, PyTorch, DLPack or the buffer protocol), got ",
              text_of(object.type().attr("__name__"))));
}

void Array::refuse(const std::string& what) const {
  throw nb::type_error(join(function_, ": ", name_, ": ", what).c_str());
}

void Array::refuse_device(const nb::object& device) const {
  refuse(join("expected an array on the CPU, got one on ", text_of(device)));
}

void Array::refuse_dtype(const std::string& dtype) const {
  refuse(join("expected float32, float64, bfloat16 or float16 (a mask: bool), got ", dtype));
}

void Array::check_rank(std::int64_t rank) const {
  if (rank <= Dims::max_rank) return;
  throw nb::value_error(join(function_, ": ", name_, ": expected at most ", std::to_string(Dims::max_rank),
                             " axes, got ", std::to_string(rank))
                            .c_str());
}

MutableView Array::writable() const {
  if (read_only_) {
    throw nb::value_error(join(function_, ": ", name_, " ", view_.shape().str(), " is read-only").c_str());
  }
  const MayAskForGil may(Gil::held);
  // Tensors made in inference mode have no count.
  if (records_ && !object_.attr(PyTorch::get().is_inference)().is(Py_True)) PyTorch::get().increment_version(object_);
  return MutableView(const_cast<void*>(view_.raw()), view_.dtype(), view_.shape(), view_.strides());
}

void Array::look_at_dltensor(const nb::dlpack::dltensor& tensor) {
  if (tensor.device.device_type != cpu_device) {
    refuse_device(nb::getattr(object_, "device", nb::str("another device")));
  }
  const std::optional<DType> dtype = dtype_of_dlpack(tensor.dtype);
  if (!dtype) refuse_dtype(dtype_text(object_));
  check_rank(tensor.ndim);
  const Dims shape(std::span(tensor.shape, static_cast<std::size_t>(tensor.ndim)));
  const char* data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  if (!tensor.data && element_count(shape) > 0) refuse("the array has no memory");
  view_ = tensor.strides
              ? View(data, *dtype, shape, Dims(std::span(tensor.strides, static_cast<std::size_t>(tensor.ndim))))
              : View(data, *dtype, shape);
}

// The memory of a PyTorch tensor does not say these two.
void Array::check_tensor() const {
  const PyTorch& torch = PyTorch::get();
  if (object_.attr(torch.requires_grad).is(Py_True) && torch.is_grad_enabled().is(Py_True)) {
    throw nb::value_error(join(function_, ": ", name_,
                               " requires a gradient, which this function does not record: call it under "
                               "torch.no_grad(), or see attend.torch")
                              .c_str());
  }
  // A view such as x.conj().imag, whose elements are the negatives of those in memory.
  if (object_.attr(torch.is_neg)().is(Py_True)) {
    throw nb::value_error(
        join(function_, ": ", name_, " is a view with PyTorch's negative bit; pass resolve_neg() of it").c_str());
  }
}

bool Array::read_exchange() {
  const auto [api, records] = exchange_of(object_);
  if (!api) return false;
  records_ = records;
  if (records) check_tensor();
  nb::dlpack::dltensor tensor;
  if (api->borrow_from_object(object_.ptr(), &tensor) != 0) {
    nb::python_error error;
    const std::string text = text_of(error.value());
    const nb::object device = nb::getattr(object_, "device", nb::none());
    if (!device.is_none() && text_of(device) != "cpu") refuse_device(device);
    refuse(text.substr(0, text.find('\n')));
  }
  kind_ = {.library = Kind::Library::exchange, .api = api};
  look_at_dltensor(tensor);
  return true;
}

bool Array::read_buffer() {
  if (!PyObject_CheckBuffer(object_.ptr())) return false;
  if (is_masked_array(object_)) refuse("a masked array, whose mask would be ignored; pass x.data or x.filled()");
  if (PyObject_GetBuffer(object_.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return read_bfloat16();
  }
  const std::optional<DType> dtype = dtype_of_format(buffer_.format);
  if (!dtype || size_of(*dtype) != buffer_.itemsize) {  // '=l' has 4 bytes, where 'l' has 8
    const std::string text = dtype_text(object_);
    refuse_dtype(text.empty() ? join("the buffer format '", buffer_.format, "'") : text);
  }
  look_at_buffer(*dtype);
  return true;
}

// NumPy knows bfloat16 only through ml_dtypes, whose arrays have no buffer: as 16-bit integers they have one.
bool Array::read_bfloat16() {
  const std::string text = dtype_text(object_);
  if (text != "bfloat16") refuse_dtype(text);
  const nb::object bits = object_.attr("view")(NumPy::get().uint16);
  if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_STRIDES) != 0) throw nb::python_error();
  kind_.bfloat16 = object_.attr("dtype");
  look_at_buffer(DType::bf16);
  return true;
}

void Array::look_at_buffer(DType dtype) {
  check_rank(buffer_.ndim);
  Dims shape, strides;
  for (int axis = 0; axis < buffer_.ndim; ++axis) shape.push_back(buffer_.shape[axis]);
  read_only_ = buffer_.readonly;
  if (!buffer_.strides) {  // the arrays of ctypes, though strides were asked for: one element after the other
    view_ = View(buffer_.buf, dtype, shape);
    return;
  }
  for (int axis = 0; axis < buffer_.ndim; ++axis) {
    if (buffer_.strides[axis] % buffer_.itemsize != 0) {
      refuse("a stride is not a multiple of the element size; pass a copy");
    }
    strides.push_back(buffer_.strides[axis] / buffer_.itemsize);
  }
  view_ = View(buffer_.buf, dtype, shape, strides);
}

bool Array::read_dlpack() {
  if (!nb::hasattr(object_, "__dlpack__")) return false;
  nb::ndarray<> writable;
  if (nb::try_cast(object_, writable)) {
    dlpack_ = nb::ndarray<nb::ro>(writable);
  } else if (nb::try_cast(object_, dlpack_)) {
    read_only_ = true;
  } else {
    refuse("its __dlpack__ gives no array");
  }
  nb::dlpack::dltensor tensor;
  tensor.data = dlpack_.data_handle();
  tensor.byte_offset = dlpack_.byte_offset();
  tensor.device = {dlpack_.device_type(), dlpack_.device_id()};
  tensor.ndim = static_cast<std::int32_t>(dlpack_.ndim());
  tensor.dtype = dlpack_.dtype();
  tensor.shape = const_cast<std::int64_t*>(dlpack_.shape_ptr());
  tensor.strides = const_cast<std::int64_t*>(dlpack_.stride_ptr());
  look_at_dltensor(tensor);
  if (nb::hasattr(object_, "__array_namespace__")) {
    kind_ = {.library = Kind::Library::dlpack, .array_namespace = object_.attr("__array_namespace__")()};
  }
  return true;
}

Result::Result(const Kind& kind, const Dims& shape, DType dtype) {
  switch (kind.library) {
    case Kind::Library::exchange: {
      void* data = nullptr;
      object_ = allocate(*kind.api, shape, dtype, data);
      view_ = MutableView(data, dtype, shape);
      return;
    }
    case Kind::Library::numpy: {
      const NumPy& numpy = NumPy::get();
      object_ = numpy.empty(
          to_tuple(shape), dtype == DType::bf16 ? bfloat16_dtype(kind) : numpy.dtypes[static_cast<std::size_t>(dtype)]);
      // Of the memory alone, which object_ keeps alive.
      const Array array("Result", "memory", object_);
      view_ = MutableView(array.writable().raw(), dtype, shape);
      return;
    }
    case Kind::Library::dlpack: {
      auto* tensor = new Tensor(Tensor::uninitialized(shape, dtype));
      const nb::capsule owner(tensor, [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
      view_ = tensor->view();
      std::array<std::size_t, Dims::max_rank> sizes{};
      std::copy(shape.begin(), shape.end(), sizes.begin());
      const nb::ndarray<nb::array_api> array(tensor->raw(), static_cast<std::size_t>(shape.rank()), sizes.data(), owner,
                                             nullptr, to_dlpack(dtype));
      object_ = kind.array_namespace.attr("from_dlpack")(array);
      return;
    }
  }
}

nb::object to_python(const Kind& kind, const View& view) {
  Result result(kind, view.shape(), view.dtype());
  result.view().copy_from(view);
  return result.take();
}

nb::list read_list(const char* function, const char* name, const char* expected, nb::handle object) {
  // What can be gone through, but is no list: of a dict it would be the keys, of bytes their numbers.
  if (nb::isinstance<nb::dict>(object) || nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object) ||
      PyAnySet_Check(object.ptr()))
    throw refusal(function, name, expected, object);
  try {
    return nb::list(nb::hasattr(object, "tolist") ? object.attr("tolist")() : nb::borrow(object));
  } catch (nb::python_error&) {
    throw refusal(function, name, expected, object);
  }
}

Tensor read_integers(const char* function, const char* name, nb::handle object, const char* expected) {
  const nb::list values = read_list(function, name, expected, object);
  Tensor integers({static_cast<std::int64_t>(nb::len(values))}, DType::i64);
  auto* to = integers.data<std::int64_t>();
  for (const nb::handle value : values) {
    if (!nb::try_cast(value, *to++)) throw refusal(function, name, expected, object);
  }
  return integers;
}

std::pair<std::int64_t, std::int64_t> read_two(const char* function, const char* name, const char* expected,
                                               nb::handle object) {
  const nb::list values = read_list(function, name, expected, object);
  std::int64_t first = 0, second = 0;
  if (nb::len(values) == 2 && nb::try_cast(nb::object(values[0]), first) &&
      nb::try_cast(nb::object(values[1]), second)) {
    return {first, second};
  }
  throw refusal(function, name, expected, object);
}

std::optional<Range> read_range(const char* function, const char* name, nb::handle object) {
  if (object.is_none()) return std::nullopt;
  const auto [begin, end] = read_two(function, name, "(begin, end), two whole numbers", object);
  return Range{begin, end};
}

Dims read_shape(const char* function, const char* name, nb::handle object) {
  nb::object shape = nb::getattr(object, "shape", object);
  if (!nb::isinstance<nb::sequence>(shape)) {
    throw nb::type_error(join(function, ": ", name, ": expected a shape or an array, got ", repr_of(object)).c_str());
  }
  const Tensor sizes = read_integers(function, name, shape);
  return Dims(std::span(sizes.data<std::int64_t>(), static_cast<std::size_t>(sizes.count())));
}

nb::tuple to_tuple(const Dims& dims) {
  nb::object tuple = nb::steal(PyTuple_New(dims.rank()));
  for (int i = 0; i < dims.rank(); ++i) PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(dims[i]));
  return nb::tuple(tuple);
}

}  // namespace attend::python
