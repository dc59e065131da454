// What Python calls a Picture.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "attend/picture.h"
#include "call.h"

namespace attend::python {

// The SVG is made at once, so that mistakes are told where they are made and not where a notebook shows the picture.
struct Drawn {
  Picture picture;
  std::string svg;
};

// For pickle.
nanobind::tuple picture_state(const Picture& picture);
Picture picture_from(const nanobind::tuple& state);

inline Drawn drawn(Picture picture) {
  std::string svg = picture.svg();
  return {std::move(picture), std::move(svg)};
}

// Of what make() gives, in the name of the function that was called.
template <class Make>
Drawn draw(const char* function, Make make) {
  return call(function, [&] { return drawn(make()); });
}

}  // namespace attend::python
