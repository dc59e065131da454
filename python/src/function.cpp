// What each public function of this module is in Python: it calls nanobind's, and says what does not fit in a call.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>

#include "bindings.h"

#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

namespace nb = nanobind;

namespace attend::python {

namespace {

// nanobind's functions have neither a signature that inspect knows nor a name that pickle finds, their types can't be
// given any, and what they say of a wrong call is a list of C++'s overloads. One of these stands before each: it adds a
// comparison to a call that succeeds.
struct Function {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* of;
};

// attend._calls, whose functions say what there is to say.
nb::object helper(const char* name) {
  return nb::module_::import_("attend._calls").attr(name);
}

Function* cast(PyObject* self) {
  return reinterpret_cast<Function*>(self);
}

// The error of a call that nanobind refused, or that gave a keyword which is none, said anew. Others stay.
void explain(PyObject* self, PyObject* const* args, std::size_t count, PyObject* names) {
  nb::python_error error;
  try {
    nb::object given = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (std::size_t n = 0; n < count; ++n)
      PyTuple_SetItem(given.ptr(), static_cast<Py_ssize_t>(n), nb::borrow(args[n]).release().ptr());
    nb::dict keywords;
    for (std::size_t n = 0; names != nullptr && n < nb::len(nb::handle(names)); ++n)
      keywords[nb::handle(names)[n]] = nb::handle(args[count + n]);
    const nb::object said = helper("explained")(nb::handle(self), error.value(), given, keywords);
    if (!said.is_none()) return PyErr_SetObject(PyExc_TypeError, said.ptr());
  } catch (nb::python_error& another) {
    another.discard_as_unraisable("attend: what is wrong with a call");
  }
  error.restore();
}

PyObject* function_call(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* names) {
  PyObject* result = PyObject_Vectorcall(cast(self)->of, args, nargsf, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError))
    explain(self, args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), names);
  return result;
}

// ---- The type ----

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(cast(self)->of);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(cast(self)->of);
  return 0;
}

void deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  (void)clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

// What is not its own is that of nanobind's function: __name__, __doc__, ...
PyObject* get(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8AndSize(name, nullptr);
  if (text == nullptr) return nullptr;
  const std::string_view wanted(text);
  if (wanted != "__doc__" && wanted != "__module__") {
    if (PyObject* own = PyObject_GenericGetAttr(self, name)) return own;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();
  }
  return PyObject_GetAttr(cast(self)->of, name);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  static PyObject* const method = PyObject_GetAttrString(PyImport_ImportModule("types"), "MethodType");
  return PyObject_CallFunctionObjArgs(method, self, instance, nullptr);
}

PyObject* signature(PyObject* self, void*) {
  try {
    return helper("signature")(nb::handle(self)).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

// For pickle, its name in the module.
PyObject* reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(self, "__qualname__");
}

PyObject* represent(PyObject* self) {
  PyObject* name = reduce(self, nullptr);
  if (name == nullptr) return nullptr;
  PyObject* text = PyUnicode_FromFormat("<function attend.%U>", name);
  Py_DECREF(name);
  return text;
}

PyMemberDef members[] = {{"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(Function, vectorcall), Py_READONLY, nullptr},
                         {}};
PyGetSetDef properties[] = {{"__signature__", signature, nullptr, nullptr, nullptr}, {}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};

PyObject* make_type() {
  PyType_Slot slots[] = {{Py_tp_members, members},
                         {Py_tp_getset, properties},
                         {Py_tp_methods, methods},
                         {Py_tp_getattro, reinterpret_cast<void*>(get)},
                         {Py_tp_repr, reinterpret_cast<void*>(represent)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {0, nullptr}};
  PyType_Spec spec = {.name = "attend._core._Function",
                      .basicsize = sizeof(Function),
                      .itemsize = 0,
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                               Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      .slots = slots};
  return PyType_FromSpec(&spec);
}

nb::object make(nb::handle of) {
  static PyObject* const type = make_type();
  if (type == nullptr) throw nb::python_error();
  Function* made = PyObject_GC_New(Function, reinterpret_cast<PyTypeObject*>(type));
  if (made == nullptr) throw nb::python_error();
  made->vectorcall = function_call;
  made->of = nb::borrow(of).release().ptr();
  PyObject_GC_Track(made);
  return nb::steal(reinterpret_cast<PyObject*>(made));
}

}  // namespace

void bind_function(nb::module_& m) {
  m.def("_function", &make, nb::arg("of"));
}

}  // namespace attend::python
