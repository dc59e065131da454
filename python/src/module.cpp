// The extension module attend._core. attend/__init__.py says what of it is public.
#include <nanobind/nanobind.h>

#include <string>

#include "attend/error.h"
#include "bindings.h"
#include "call.h"
#include "openmp.h"
#include "options.h"

namespace {

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const attend::Error& error) {
    PyObject* type = PyExc_ValueError;
    switch (error.code()) {
      case attend::ErrorCode::bad_dtype:
        type = PyExc_TypeError;
        break;
      case attend::ErrorCode::bad_file:
        type = PyExc_OSError;
        break;
      case attend::ErrorCode::out_of_memory:
        type = PyExc_MemoryError;
        break;
      case attend::ErrorCode::lost_rank:
        type = PyExc_ConnectionError;
        break;
      case attend::ErrorCode::interrupted:
        type = PyExc_KeyboardInterrupt;
        break;
      case attend::ErrorCode::bad_shape:
      case attend::ErrorCode::bad_value:
        break;
    }
    // A path in it may hold other bytes than UTF-8.
    const std::string message = attend::python::message_of(error);
    PyObject* text = PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace");
    if (text) PyErr_SetObject(type, text);
    Py_XDECREF(text);
  }
}

}  // namespace

NB_MODULE(_core, m) {
  nanobind::set_leak_warnings(false);  // what a program still holds when it ends is no news
  nanobind::register_exception_translator(translate);
  attend::python::leave_openmp_threads_in_forks();
  attend::python::keep_threads_when_python_ends();
  attend::python::bind_function(m);
  attend::python::bind_attention(m);
  attend::python::bind_attention_backward(m);
  attend::python::bind_plan(m);
  attend::python::bind_summary(m);
  attend::python::bind_scaled_dot_product_attention(m);
  attend::python::bind_kv_cache(m);
  attend::python::bind_generator(m);
  attend::python::bind_explain(m);
  attend::python::bind_recording(m);
  attend::python::bind_picture(m);
  attend::python::bind_look(m);
  attend::python::bind_pages(m);
  attend::python::bind_tokenizer(m);
  attend::python::bind_model(m);
  attend::python::bind_chat(m);
  attend::python::bind_quantize(m);
  attend::python::bind_ring(m);
  attend::python::bind_threads(m);
  attend::python::bind_vectors(m);
  attend::python::bind_token_vectors(m);
  m.attr("_tensor_keywords") = attend::python::tensor_keywords();
  m.attr("_number_keywords") = attend::python::number_keywords();
}
