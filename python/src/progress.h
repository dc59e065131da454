// How far a call over many texts is.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

#include "model.h"

namespace attend::python {

// A call's argument `progress`: True is a bar of attend's own.
class Shown {
 public:
  Shown(const char* function, nb::handle progress, std::size_t count) {
    if (progress.is(nb::bool_(false))) return;
    if (progress.is(nb::bool_(true))) bar_ = nb::module_::import_("attend._progress").attr("Bar")(count);
    tell_ = progress_of(function, bar_.is_valid() ? nb::handle(bar_) : progress);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  ~Shown() {
    if (!bar_.is_valid()) return;
    const nb::error_scope raised;  // what ends the call, if anything does
    try {
      bar_.attr("close")();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("attend: a progress bar");
    }
  }
  const std::function<void(double)>& tell() const { return tell_; }

 private:
  nb::object bar_;
  std::function<void(double)> tell_;
};

}  // namespace attend::python
