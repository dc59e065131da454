// A page inside a notebook's page.
#pragma once

#include <string>
#include <string_view>

namespace attend::python {

// In a frame, so that neither changes how the other looks. Its scripts run, and reach nothing of the notebook's.
std::string in_a_frame(std::string_view title, std::string_view page);

}  // namespace attend::python
