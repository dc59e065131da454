#include "options.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "text.h"

namespace attend::python {

namespace {

Window read_window(const char* function, nb::handle value) {
  constexpr const char* expected = "(left, right), each a whole number, or -1 or None for open";
  if (!nb::isinstance<nb::sequence>(value) || nb::len(value) != 2) refuse(function, "window", expected, value);
  const nb::list sides = read_list(function, "window", expected, value);
  const auto side = [&](int index) {
    const nb::object given = sides[index];
    return given.is_none() ? -1 : expect<std::int64_t>(function, "window", expected, given);
  };
  return {side(0), side(1)};
}

Offset read_offset(const char* function, nb::handle value) {
  constexpr const char* expected = "'top_left', 'bottom_right', a whole number or None";
  if (!nb::isinstance<nb::str>(value)) return Offset(expect<std::int64_t>(function, "offset", expected, value));
  const auto name = expect<std::string>(function, "offset", expected, value);
  if (name == "top_left") return Offset::top_left();
  if (name == "bottom_right") return Offset::bottom_right();
  throw nb::value_error((std::string(function) + ": offset: expected " + expected + ", got '" + name + "'").c_str());
}

Dropout read_dropout(const char* function, nb::handle value) {
  constexpr const char* expected = "(p, seed), a number and a whole number of 0 or more";
  if (!nb::isinstance<nb::sequence>(value) || nb::len(value) != 2) refuse(function, "dropout", expected, value);
  const nb::list both = read_list(function, "dropout", expected, value);
  const nb::object p = both[0], seed = both[1];
  return {expect<double>(function, "dropout", expected, p), expect<std::uint64_t>(function, "dropout", expected, seed)};
}

// The keywords that are neither tensors nor plain numbers.
constexpr std::array<std::string_view, 5> plain{"causal", "window", "offset", "scale", "dropout"};
constexpr const char* plain_signature =
    "causal: bool = False, window: tuple[int | None, int | None] | None = None, "
    "offset: int | Literal['top_left', 'bottom_right'] | None = None, scale: float | None = None, "
    "dropout: tuple[float, int] | None = None";

// query_starts and key_starts are arguments of their own, cu_seqlens_q and cu_seqlens_k.
bool is_keyword(const TensorOption& option) {
  return option.shape != TensorOption::Shape::starts;
}

// The option's gradient, by the name that says it is wanted: "dbias".
std::string gradient_name(const TensorOption& option) {
  return std::string("d").append(option.name);
}

bool is_integers(const TensorOption& option) {
  return option.type == TensorOption::Type::whole;
}

}  // namespace

std::string options_signature(bool key_lengths) {
  std::string text = plain_signature;
  for (const NumberOption& option : number_options()) text.append(", ").append(option.name).append(": float = 0.0");
  for (const TensorOption& option : tensor_options()) {
    if (!is_keyword(option) || (option.value == &AttentionOptions::key_lengths && !key_lengths)) continue;
    text += ", " + std::string(option.name) + ": Array | " + (is_integers(option) ? "Sequence[int] | " : "") +
            "None = None";
  }
  return text;
}

std::string options_doc() {
  std::string text;
  const auto add = [&](std::string name, const std::string& meaning) {
    name.resize(14, ' ');
    text += name + meaning + "\n";
  };
  for (const NumberOption& option : number_options())
    add(std::string(option.name), std::string(option.letter).append(" > 0: ").append(option.meaning));
  for (const TensorOption& option : tensor_options()) {
    const std::string what = std::string(name_of(option.type)).append(", ").append(name_of(option.shape)).append(": ");
    if (is_keyword(option)) add(std::string(option.name), what + std::string(option.meaning));
  }
  return text;
}

std::string gradients_signature() {
  std::string text;
  for (const TensorOption& option : tensor_options()) {
    if (option.wanted) text += (text.empty() ? "" : ", ") + gradient_name(option) + ": bool = False";
  }
  return text;
}

std::string signature_with_lse(const std::string& name, const std::string& arguments) {
  const std::string start = "@overload\ndef " + name + "(" + arguments;
  return start + ", return_lse: bool = False, return_lse_low: Literal[True]) -> tuple[ArrayT, ArrayT, ArrayT]: ...\n" +
         start +
         ", return_lse: Literal[True], return_lse_low: Literal[False] = False) -> tuple[ArrayT, ArrayT]: ...\n" +
         start + ", return_lse: Literal[False] = False, return_lse_low: Literal[False] = False) -> ArrayT";
}

nb::tuple tensor_keywords() {
  nb::list names;
  for (const TensorOption& option : tensor_options()) {
    const bool of_heads = option.shape == TensorOption::Shape::heads || option.shape == TensorOption::Shape::distances;
    if (is_keyword(option)) names.append(nb::make_tuple(std::string(option.name), option.wanted != nullptr, of_heads));
  }
  return nb::tuple(names);
}

nb::tuple number_keywords() {
  nb::list names;
  for (const NumberOption& option : number_options()) names.append(std::string(option.name));
  return nb::tuple(names);
}

Options::Options(const char* function, const nb::kwargs& keywords, BackwardOptions* backward) : function_(function) {
  for (const auto& [key, value] : keywords) read(text_of(key), value, backward);
}

void Options::read(const std::string& name, nb::handle value, BackwardOptions* backward) {
  if (std::find(plain.begin(), plain.end(), name) != plain.end()) {
    if (!value.is_none()) read_plain(name, value);
    return;
  }
  for (const NumberOption& option : number_options()) {
    if (option.name != name) continue;
    if (!value.is_none()) options_.*option.value = expect<double>(function_, name, "a number", value);
    return;
  }
  for (const TensorOption& option : tensor_options()) {
    if (is_keyword(option) && option.name == name) {
      if (!value.is_none()) read_tensor(option, value);
      return;
    }
    if (backward && option.wanted && gradient_name(option) == name) {
      backward->*option.wanted = expect<bool>(function_, name, "True or False", value);
      return;
    }
  }
  throw nb::type_error((std::string(function_) + "() got an unexpected keyword argument '" + name + "'").c_str());
}

void Options::read_plain(const std::string& name, nb::handle value) {
  if (name == "causal") {
    options_.causal = expect<bool>(function_, name, "True or False", value);
  } else if (name == "window") {
    options_.window = read_window(function_, value);
  } else if (name == "offset") {
    options_.offset = read_offset(function_, value);
  } else if (name == "scale") {
    options_.scale = expect<double>(function_, name, "a number", value);
  } else {
    options_.dropout = read_dropout(function_, value);
  }
}

void Options::read_tensor(const TensorOption& option, nb::handle value) {
  const char* name = option.name.data();
  options_.*option.value = is_integers(option)
                               ? View(integers_.emplace_back(read_integers(function_, name, value)).view())
                               : arrays_.emplace_back(function_, name, value).view();
}

void Options::set_starts(nb::handle query_starts, nb::handle key_starts) {
  options_.query_starts = integers_.emplace_back(read_integers(function_, "cu_seqlens_q", query_starts)).view();
  options_.key_starts = integers_.emplace_back(read_integers(function_, "cu_seqlens_k", key_starts)).view();
}

}  // namespace attend::python
