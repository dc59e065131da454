// What else there is for models of a type that is not known here.
#pragma once

#include <string_view>

namespace attend::inline v1::models {

// Whether attend.transformers.record (Python) looks into models of that model_type, which PyTorch computes: types of
// text in Transformers' registry that run on attend's attention there.
bool record_takes(std::string_view model_type);

}  // namespace attend::inline v1::models
