// What the names of tensors in one file must keep to.
#pragma once

#include <string_view>

#include "attend/io.h"

namespace attend::inline v1 {

// Throws bad_value, naming the function and the tensor, for a name that is not UTF-8, holds a zero byte or comes twice.
void check_names(std::string_view function, const NamedViews& tensors);

}  // namespace attend::inline v1
