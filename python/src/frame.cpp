#include "frame.h"

namespace attend::python {

std::string in_a_frame(std::string_view title, std::string_view page) {
  std::string out = "<iframe title=\"";
  out.append(title).append("\" sandbox=\"allow-scripts allow-downloads\" srcdoc=\"");
  out.reserve(out.size() + page.size() + page.size() / 8);
  for (const char c : page) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out + "\" style=\"width: 100%; height: 50em; border: 1px solid #d0d7de\"></iframe>";
}

}  // namespace attend::python
