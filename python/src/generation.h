// The settings of generate() between Python and the library.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "attend/generation.h"

namespace attend::python {

namespace nb = nanobind;

// Of keyword arguments; None is as if it was not given. Throws TypeError for other names, and for values of other
// types.
GenerationSettings read_settings(const char* function, const nb::kwargs& given);
// Those that are there, by name.
nb::dict settings_dict(const GenerationSettings& settings);
// ", top_k: int | None = None, ..." for a signature.
std::string settings_signature();

// on_token and on_text, which end the text where they give False; None: nobody is told. Throw TypeError for no
// function.
std::function<bool(std::int64_t)> token_teller(const char* function, nb::handle on_token);
std::function<bool(std::string_view)> text_teller(const char* function, nb::handle on_text);
// [N] int64.
nb::object id_array(std::span<const std::int64_t> numbers);

}  // namespace attend::python
