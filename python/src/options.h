// The keywords of attention() in Python, as AttentionOptions.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "array.h"
#include "attend/attention.h"

// How the signatures of all that take options write them.
#define ATTEND_OPTIONS                                                                           \
  "causal: bool = False, window: tuple[int | None, int | None] | None = None, "                  \
  "offset: int | Literal['top_left', 'bottom_right'] | None = None, mask: Array | None = None, " \
  "bias: Array | None = None, alibi_slopes: Array | None = None, sinks: Array | None = None, "   \
  "softcap: float = 0.0, scale: float | None = None, dropout: tuple[float, int] | None = None"
#define ATTEND_KEY_LENGTHS "key_lengths: Array | Sequence[int] | None = None"
// What it gives back depends on return_lse. The last one is what help() shows.
#define ATTEND_WITH_LSE(name, arguments)                         \
  "@overload\n"                                                  \
  "def " name "(" arguments                                      \
  ", return_lse: Literal[True]) -> tuple[ArrayT, ArrayT]: ...\n" \
  "@overload\n"                                                  \
  "def " name "(" arguments ", return_lse: Literal[False] = False) -> ArrayT"

namespace attend::python {

// The options of one call, and the arrays that they look at: None is "not given". It is not moved: it holds views of
// its own arrays.
class Options {
 public:
  // Throws TypeError or ValueError that names the function, also for a keyword that is none of these.
  Options(const char* function, const nb::kwargs& keywords);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // Sequences one after another; key_lengths is then refused by the library.
  void set_starts(nb::handle query_starts, nb::handle key_starts);
  const AttentionOptions& get() const { return options_; }

 private:
  void read(const std::string& name, nb::handle value);
  void read_array(const char* name, nb::handle value, std::optional<View>& option, std::optional<Array>& array);

  const char* function_;
  AttentionOptions options_;
  std::optional<Array> mask_, bias_, alibi_slopes_, sinks_;
  Tensor key_lengths_, query_starts_, key_starts_;
};

}  // namespace attend::python
