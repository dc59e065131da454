// What a Picture is, as Python objects and back: for pickle.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "array.h"
#include "picture.h"

namespace attend::python {

namespace {

template <class Given, class Wanted>
concept Of = std::same_as<std::remove_const_t<Given>, Wanted>;

// ---- The fields of each drawing, which are written and read in this order ----

void each_field(auto& with, Of<HeatMap> auto& x) {
  with(x.values, x.row_labels, x.column_labels, x.title, x.row_axis, x.column_axis, x.low, x.high, x.scale, x.row_range,
       x.column_range, x.nan_is_hidden, x.numbers_from, x.reduction, x.caption, x.wide, x.texts);
  with.visible(x);
}

void each_field(auto& with, Of<TokenStrip> auto& x) {
  with(x.tokens, x.values, x.title, x.name, x.caption, x.low, x.high, x.scale);
}

void each_field(auto& with, Of<HeatMaps> auto& x) {
  with(x.title);
  with.several(x.maps);
}

void each_field(auto& with, Of<HeadGrid> auto& x) {
  with(x.columns, x.row_labels, x.column_labels, x.title, x.row_axis, x.column_axis, x.caption);
  with.several(x.maps);
}

void each_field(auto& with, Of<TokenLinks> auto& x) {
  with(x.top_keys, x.top_weights, x.queries, x.keys, x.first_query, x.title, x.caption, x.row_axis, x.column_axis,
       x.low, x.high, x.scale, x.are_shares);
}

void each_field(auto& with, Of<LayeredGraph> auto& x) {
  with(x.names, x.rows, x.from, x.to, x.values, x.title, x.caption);
}

void each_field(auto& with, Of<PictureStack> auto& x) {
  with.several(x.parts);
}

template <class... Kinds>
void each_field(auto& with, const std::variant<Kinds...>& x) {
  with(static_cast<std::int64_t>(x.index()));
  std::visit([&](const auto& of) { each_field(with, of); }, x);
}

template <class... Kinds>
void each_field(auto& with, std::variant<Kinds...>& x) {
  std::int64_t index = 0;
  with(index);
  std::int64_t at = 0;
  ((at++ == index ? each_field(with, x.template emplace<Kinds>()) : void()), ...);
}

// ---- Writing and reading ----

class Writer {
 public:
  nb::tuple written() const { return nb::tuple(out_); }

  template <class... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }
  template <class Parts>
  void several(const Parts& parts) {
    put(static_cast<std::int64_t>(parts.size()));
    for (const auto& each : parts) each_field(*this, each);
  }
  void visible(const HeatMap& x) {
    if (!x.visible) return out_.append(nb::none());
    Tensor seen(x.values.shape(), DType::boolean);
    bool* to = seen.data<bool>();
    for (std::int64_t row = 0; row < seen.size(0); ++row)
      for (std::int64_t column = 0; column < seen.size(1); ++column) *to++ = x.visible(row, column);
    put(std::as_const(seen).view());
  }

 private:
  template <class Field>
  void put(const Field& x) {
    out_.append(nb::cast(x));
  }
  void put(const std::derived_from<View> auto& x) { out_.append(to_python({}, x)); }
  void put(PictureScale x) { put(static_cast<std::int64_t>(x)); }
  void put(const std::optional<Range>& x) {
    out_.append(x ? nb::object(nb::make_tuple(x->begin, x->end)) : nb::object(nb::none()));
  }

  nb::list out_;
};

class Reader {
 public:
  Reader(nb::tuple state, Picture& picture) : state_(std::move(state)), picture_(picture) {}

  template <class... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }
  template <class Parts>
  void several(Parts& parts) {
    std::int64_t count = 0;
    get(count);
    for (std::int64_t n = 0; n < count; ++n) each_field(*this, parts.emplace_back());
  }
  void visible(HeatMap& x) {
    const nb::object next = state_[at_];
    View seen;
    if (next.is_none()) return void(++at_);
    get(seen);
    x.visible = [seen](std::int64_t row, std::int64_t column) { return seen.item({row, column}) != 0; };
  }

 private:
  template <class Field>
  void get(Field& x) {
    x = nb::cast<Field>(state_[at_++]);
  }
  void get(std::derived_from<View> auto& x) {
    const nb::object given = state_[at_++];
    x = picture_.numbers.emplace_back(Array("Picture", "state", given).view().clone());
  }
  void get(PictureScale& x) {
    std::int64_t number = 0;
    get(number);
    x = static_cast<PictureScale>(number);
  }
  void get(std::optional<Range>& x) {
    const nb::object given = state_[at_++];
    x = read_range("Picture", "state", given);
  }

  nb::tuple state_;
  std::size_t at_ = 0;
  Picture& picture_;
};

}  // namespace

nb::tuple picture_state(const Picture& picture) {
  Writer writer;
  each_field(writer, picture.drawing);
  return writer.written();
}

Picture picture_from(const nb::tuple& state) {
  Picture picture;
  Reader reader(state, picture);
  each_field(reader, picture.drawing);
  return picture;
}

}  // namespace attend::python
