// The keywords of attention() in Python, as AttentionOptions.
#pragma once

#include <nanobind/nanobind.h>

#include <list>
#include <string>

#include "array.h"
#include "attend/attention.h"

namespace attend::python {

// How signatures write the keywords of all that take options, the tensors among them by tensor_options().
std::string options_signature(bool key_lengths = true);
std::string gradients_signature();  // "dbias: bool = False, ...": which gradients are wanted
// A function with options whose result depends on return_lse. The last one is what help() shows.
std::string signature_with_lse(const std::string& name, const std::string& arguments);

// The options that are numbers or tensors, a line each, as docstrings have them.
std::string options_doc();

// For attend.torch: (name, whether it has a gradient, whether its first axis is the heads) of each of tensor_options()
// that is a keyword, and the names of number_options().
nb::tuple tensor_keywords();
nb::tuple number_keywords();

// The options of one call, and the arrays that they look at: None is "not given". It is not moved: it holds views of
// its own arrays.
class Options {
 public:
  // Throws TypeError or ValueError that names the function, also for a keyword that is none of these. Where `backward`
  // is given, the keywords that say which gradients are wanted are read into it.
  Options(const char* function, const nb::kwargs& keywords, BackwardOptions* backward = nullptr);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // Sequences one after another; key_lengths is then refused by the library.
  void set_starts(nb::handle query_starts, nb::handle key_starts);
  const AttentionOptions& get() const { return options_; }

 private:
  void read(const std::string& name, nb::handle value, BackwardOptions* backward);
  void read_plain(const std::string& name, nb::handle value);
  void read_tensor(const TensorOption& option, nb::handle value);

  const char* function_;
  AttentionOptions options_;
  std::list<Array> arrays_;
  std::list<Tensor> integers_;
};

}  // namespace attend::python
