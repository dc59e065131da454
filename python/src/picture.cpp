// Pictures of weights that were made anywhere.
#include "attend/picture.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "attend/error.h"
#include "attend/io.h"
#include "bindings.h"
#include "call.h"
#include "pickle.h"
#include "picture.h"
#include "text.h"

namespace attend::python {

namespace {

using Words = std::vector<std::string>;

// An array's copy, which nobody changes after the call. A gradient that PyTorch would record is not missed here.
Tensor read_array(const char* function, const char* name, nb::handle object) {
  nb::object array = nb::borrow(object);
  if (nb::hasattr(object, "detach")) array = object.attr("detach")();
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object))
    array = nb::module_::import_("numpy").attr("asarray")(object);
  return Array(function, name, array).view().clone();
}

std::string picture_read_text(const char* function, const std::string& name, nb::handle object) {
  std::string text;
  if (!nb::isinstance<nb::str>(object) || !nb::try_cast(object, text))
    throw nb::type_error((std::string(function) + ": " + name + " can't be " + repr_of(object)).c_str());
  return text;
}

// A list of words, not one word taken apart into its letters.
Words read_words(const char* function, const char* name, nb::handle object) {
  Words words;
  if (object.is_none()) return words;
  if (nb::isinstance<nb::str>(object) || !nb::isinstance<nb::sequence>(object)) {
    throw nb::type_error(
        (std::string(function) + ": " + name + ": expected a list of words, got " + repr_of(object)).c_str());
  }
  for (const nb::handle word : read_list(function, name, "a list of words", object))
    words.push_back(picture_read_text(function, std::string(name) + "[" + std::to_string(words.size()) + "]", word));
  return words;
}

// The colours, which all pictures have.
template <class Drawing>
void set_scale(const char* function, Drawing& drawing, const std::string& scale, double low, double high) {
  drawing.scale = call(function, [&] { return picture_scale(scale); });
  drawing.low = low;
  drawing.high = high;
}

Drawn picture_(nb::handle weights, nb::handle rows, nb::handle columns, const std::string& scale,
               const std::string& title, nb::handle mask, nb::handle heads, nb::handle queries, nb::handle keys,
               const std::string& reduction, double low, double high) {
  constexpr const char* function = "picture";
  Picture picture;
  picture.numbers.push_back(read_array(function, "weights", weights));
  if (!mask.is_none()) picture.numbers.push_back(read_array(function, "mask", mask));
  HeatMap like;
  like.row_labels = read_words(function, "rows", rows);
  like.column_labels = read_words(function, "columns", columns);
  like.row_range = read_range(function, "queries", queries);
  like.column_range = read_range(function, "keys", keys);
  like.reduction = reduction;
  set_scale(function, like, scale, low, high);
  const Words titles = read_words(function, "heads", heads);
  return draw(function, [&] {
    const std::optional<View> seen = mask.is_none() ? std::nullopt : std::optional(picture.numbers[1].view());
    picture.drawing = HeatMaps{heat_maps(picture.numbers[0], like, seen, titles), title};
    return std::move(picture);
  });
}

Drawn token_strip_(nb::handle tokens, nb::handle values, const std::string& name, const std::string& title,
                   const std::string& scale, double low, double high) {
  constexpr const char* function = "token_strip";
  Picture picture;
  picture.numbers.push_back(read_array(function, "values", values));
  TokenStrip strip;
  strip.tokens = read_words(function, "tokens", tokens);
  strip.values = picture.numbers[0];
  strip.title = title;
  strip.name = name;
  set_scale(function, strip, scale, low, high);
  picture.drawing = std::move(strip);
  return draw(function, [&] { return std::move(picture); });
}

// [L,H,Tq,Tk], or for each layer one of [H,Tq,Tk], as models give them.
std::vector<Tensor> read_layers(const char* function, nb::handle maps) {
  std::vector<Tensor> layers;
  if (nb::isinstance<nb::list>(maps) || nb::isinstance<nb::tuple>(maps)) {
    for (const nb::handle layer : maps) layers.push_back(read_array(function, "maps", layer));
    return layers;
  }
  const Tensor all = read_array(function, "maps", maps);
  if (all.rank() != 4) {
    throw nb::value_error((std::string(function) + ": maps have shape " + all.shape().str() +
                           ", expected [L,H,Tq,Tk], or a list of [H,Tq,Tk]")
                              .c_str());
  }
  for (std::int64_t layer = 0; layer < all.size(0); ++layer) layers.push_back(all.view().select(0, layer).clone());
  return layers;
}

Drawn head_grid_(nb::handle maps, nb::handle rows, nb::handle columns, const std::string& scale,
                 const std::string& title, nb::handle mask, nb::handle queries, nb::handle keys,
                 const std::string& reduction, double low, double high) {
  constexpr const char* function = "head_grid";
  Picture picture;
  picture.numbers = read_layers(function, maps);
  const std::size_t layers = picture.numbers.size();
  if (!mask.is_none()) picture.numbers.push_back(read_array(function, "mask", mask));
  HeatMap like;
  like.row_range = read_range(function, "queries", queries);
  like.column_range = read_range(function, "keys", keys);
  like.reduction = reduction;
  set_scale(function, like, scale, low, high);
  HeadGrid grid;
  grid.row_labels = read_words(function, "rows", rows);
  grid.column_labels = read_words(function, "columns", columns);
  grid.title = title;
  return draw(function, [&] {
    const std::optional<View> seen = mask.is_none() ? std::nullopt : std::optional(picture.numbers.back().view());
    for (std::size_t n = 0; n < layers; ++n) {
      std::vector<HeatMap> heads = heat_maps(picture.numbers[n], like, seen);
      if (grid.columns != 0 && grid.columns != std::ssize(heads))
        throw Error(
            ErrorCode::bad_shape, function,
            "a layer has " + std::to_string(heads.size()) + " heads, the one before " + std::to_string(grid.columns));
      grid.columns = std::ssize(heads);
      for (HeatMap& head : heads) grid.maps.push_back(std::move(head));
    }
    picture.drawing = std::move(grid);
    return std::move(picture);
  });
}

Drawn token_links_(nb::handle top_keys, nb::handle top_weights, nb::handle rows, nb::handle columns,
                   const std::string& scale, const std::string& title, double low, double high) {
  constexpr const char* function = "token_links";
  Picture picture;
  picture.numbers.push_back(read_array(function, "top_keys", top_keys));
  picture.numbers.push_back(read_array(function, "top_weights", top_weights));
  TokenLinks links;
  links.top_keys = picture.numbers[0];
  links.top_weights = picture.numbers[1];
  links.queries = read_words(function, "rows", rows);
  links.keys = read_words(function, "columns", columns);
  links.title = title;
  set_scale(function, links, scale, low, high);
  picture.drawing = std::move(links);
  return draw(function, [&] { return std::move(picture); });
}

std::string repr(const Drawn& self) {
  const std::string& title = self.picture.title();
  return title.empty() ? "<attend.Picture>" : "<attend.Picture: " + title + ">";
}

std::string to_text(const Drawn& self, int width, bool colour) {
  return call("Picture.to_text", [&] { return self.picture.terminal({.width = width, .colour = colour}); })
      .value_or(repr(self) + "\n");
}

void save(const Drawn& self, nb::handle path) {
  const std::string name = path_of(path);
  if (!name.ends_with(".svg") && !name.ends_with(".png"))
    throw nb::value_error(("Picture.save: " + repr_of(path) + " should end in .svg or .png").c_str());
  call("Picture.save", [&] { write_file(name, name.ends_with(".svg") ? self.svg : self.picture.png()); });
}

constexpr const char* picture_class_doc =
    R"(What picture(), token_strip(), head_grid() and token_links() give.

A notebook shows it. print() draws it in the terminal, except a head_grid or token_links. save() writes a file. It has its
own copy of the numbers, and equal arguments give equal bytes.)";

constexpr const char* picture_doc =
    R"(A heat map of weights [Tq,Tk], or one for each head of [H,Tq,Tk]: a Picture. Leading axes of 1 are dropped.

rows, columns: the queries' and keys' tokens; without them, their indices.
heads: the titles of the panels.
mask: bool, broadcast to weights. Pairs where it is False, and pairs that are NaN or -inf, are hidden: they are hatched.
scale: "linear", "sqrt", "log" or "diverging". "log" shows little of weights below a thousandth of the largest; if low is 0 it begins
three to four decades below the largest. "diverging" is for values on both sides of 0: blue below, white, orange above, as far on both
sides. All heads share one scale.
low, high: the values of the lightest and the darkest colour. If they are equal, the weights decide.
queries, keys: (begin, end), what the rows and columns stand for if they do not count one by one from 0, as in a map of blocks.
reduction: how a block became one value.
Raises ValueError for shapes and tokens that do not fit, an unknown scale, and a value below 0 with sqrt or log; TypeError for other
dtypes.

>>> import attend
>>> weights = [[1, float("nan"), float("nan")], [0.25, 0.75, float("nan")], [0.5, 0.25, 0.25]]
>>> words = ["the", "cat", "sat"]
>>> print(attend.picture(weights, rows=words, columns=words))
          keys →
queries ↓    the      cat      sat
      the│███ 1.00 ╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱│
      cat│░░░ 0.25 ▓▓▓ 0.75 ╱╱╱╱╱╱╱╱╱│
      sat│▒▒▒ 0.50 ░░░ 0.25 ░░░ 0.25 │
          0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 1  ╱╱ hidden)";

constexpr const char* token_strip_doc =
    R"(Tokens, each coloured by a value (what it received, its lift, its entropy): a Picture.

values is [tokens]; NaN and -inf count as no value and are hatched. name says what the values are. scale, low and high are as in
picture(). Lines wrap, and begin with the index of their first token.
Raises ValueError where there are no tokens, or not as many as values, and otherwise as picture() does.

>>> import attend
>>> print(attend.token_strip(["the", "cat", "sat"], [0.25, 1.5, 1.25], name="received"))
░the █cat ▓sat
received:
0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 1.5)";

constexpr const char* head_grid_doc =
    R"(Small maps of many heads, a row for each layer and a column for each head, on one scale: a Picture.

maps is [L,H,Tq,Tk], or a list of arrays [H,Tq,Tk], one for each layer, as Transformers' models return attentions. rows and
columns are the names of layers and heads; without them, their indices. All else is as in picture().

>>> import attend, numpy
>>> attend.head_grid(numpy.eye(8).reshape(1, 1, 8, 8).repeat(2, 0).repeat(3, 1), title="2 layers of 3 heads")
<attend.Picture: 2 layers of 3 heads>)";

constexpr const char* token_links_doc =
    R"(Two columns of tokens, and a line from each query to each of its top keys, the denser the larger its weight: a Picture.

top_keys [Tq,k] are int64, with -1 for none, and top_weights [Tq,k] their weights, as attention_summary() gives them for each
head. rows and columns are the queries' and the keys' tokens; without them, their indices. scale, low and high are as in
picture(). The note below the picture says how much of the queries' attention the lines show.
Raises ValueError for shapes, tokens and keys that do not fit, and otherwise as picture() does.

>>> import attend, numpy
>>> words = ["the", "cat", "sat"]
>>> links = attend.token_links(numpy.array([[0, -1], [1, 0], [1, 2]]), numpy.array([[1, 0], [0.75, 0.25], [0.5, 0.25]]),
...                            rows=words, columns=words)
>>> links.to_svg().count("<line")
5)";

}  // namespace

void bind_picture(nb::module_& m) {
  nb::class_<Drawn> picture(m, "Picture", picture_class_doc);
  copies_are_itself(picture);
  picture.def("__getstate__", [](const Drawn& self) { return picture_state(self.picture); })
      .def("__setstate__", [](Drawn& self, const nb::tuple& state) { new (&self) Drawn(drawn(picture_from(state))); });
  picture.def_prop_ro("title", [](const Drawn& self) { return self.picture.title(); })
      .def(
          "to_svg", [](const Drawn& self) { return self.svg; }, "The picture as SVG.")
      .def(
          "to_png",
          [](const Drawn& self) {
            const std::string bytes = call("Picture.to_png", [&] { return self.picture.png(); });
            return nb::bytes(bytes.data(), bytes.size());
          },
          "The picture as the bytes of a PNG file.")
      .def("to_text", &to_text, nb::kw_only(), nb::arg("width") = 80, nb::arg("colour") = false,
           "The picture for a terminal; for a head_grid or token_links its title only.")
      .def("save", &save, nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
           "Write .svg or .png, by the path's ending.")
      .def("_repr_svg_", [](const Drawn& self) { return self.svg; })
      .def("__str__",
           [](const Drawn& self) {
             const std::string text = to_text(self, 80, false);
             return text.substr(0, text.size() - 1);
           })
      .def("__repr__", &repr);
  const std::string words = "Sequence[str] | None = None";
  const std::string kind = "scale: Literal['linear', 'sqrt', 'log', 'diverging'] = 'linear'";
  const std::string range = "tuple[int, int] | None = None";
  const std::string ends = "low: float = 0, high: float = 0) -> Picture";
  const std::string blocks = "queries: " + range + ", keys: " + range + ", reduction: str = '', " + ends;
  m.def("picture", &picture_, nb::arg("weights"), nb::kw_only(), nb::arg("rows") = nb::none(),
        nb::arg("columns") = nb::none(), nb::arg("scale") = "linear", nb::arg("title") = "",
        nb::arg("mask") = nb::none(), nb::arg("heads") = nb::none(), nb::arg("queries") = nb::none(),
        nb::arg("keys") = nb::none(), nb::arg("reduction") = "", nb::arg("low") = 0.0, nb::arg("high") = 0.0,
        nb::sig(("def picture(weights: Array, *, rows: " + words + ", columns: " + words + ", " + kind +
                 ", title: str = '', mask: Array | None = None, heads: " + words + ", " + blocks)
                    .c_str()),
        picture_doc);
  m.def("token_strip", &token_strip_, nb::arg("tokens"), nb::arg("values"), nb::kw_only(), nb::arg("name") = "",
        nb::arg("title") = "", nb::arg("scale") = "linear", nb::arg("low") = 0.0, nb::arg("high") = 0.0,
        nb::sig(("def token_strip(tokens: Sequence[str], values: Array | Sequence[float], *, name: str = '', "
                 "title: str = '', " +
                 kind + ", " + ends)
                    .c_str()),
        token_strip_doc);
  m.def("head_grid", &head_grid_, nb::arg("maps"), nb::kw_only(), nb::arg("rows") = nb::none(),
        nb::arg("columns") = nb::none(), nb::arg("scale") = "linear", nb::arg("title") = "",
        nb::arg("mask") = nb::none(), nb::arg("queries") = nb::none(), nb::arg("keys") = nb::none(),
        nb::arg("reduction") = "", nb::arg("low") = 0.0, nb::arg("high") = 0.0,
        nb::sig(("def head_grid(maps: Array | Sequence[Array], *, rows: " + words + ", columns: " + words + ", " +
                 kind + ", title: str = '', mask: Array | None = None, " + blocks)
                    .c_str()),
        head_grid_doc);
  m.def("token_links", &token_links_, nb::arg("top_keys"), nb::arg("top_weights"), nb::kw_only(),
        nb::arg("rows") = nb::none(), nb::arg("columns") = nb::none(), nb::arg("scale") = "linear",
        nb::arg("title") = "", nb::arg("low") = 0.0, nb::arg("high") = 0.0,
        nb::sig(("def token_links(top_keys: Array, top_weights: Array, *, rows: " + words + ", columns: " + words +
                 ", " + kind + ", title: str = '', " + ends)
                    .c_str()),
        token_links_doc);
}

}  // namespace attend::python
