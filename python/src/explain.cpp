// Attention on a sentence, every step kept.
#include "attend/explain.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <type_traits>

#include "array.h"
#include "bindings.h"
#include "call.h"
#include "frame.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr const char* explain_doc =
    R"(Attention on a sentence, every step kept: a Trace, to print, to look into, to draw.

text is a sentence of your own. Without text and preset it is "Life is short, eat dessert first", drawn as in the documents
that the presets come from. preset is the name of an example from a document (explain_presets()), and stands alone.
second_text makes it cross-attention: keys and values come from that sentence. seed, embedding_size, d_k and d_v (of each
head) and heads are whole numbers. The heads' results are joined and projected; heads=0 is one head without a head axis.
weights="linear" draws the matrices as torch.nn.Linear does (the default for a text), "uniform" as torch.rand does. causal
hides later words. positions adds sinusoidal encodings. scale=False does not divide the scores by sqrt(d_k). window=n
hides words more than n places away.
Raises ValueError for a sentence without words, an unknown preset, a size below 1, and a preset with other arguments.

>>> import attend
>>> trace = attend.explain("the cat sat", heads=2)
>>> trace.weights.shape
(2, 3, 3))";

constexpr const char* trace_doc =
    R"(What explain() gives: each step as a NumPy array (float32), in the order of the fields.

The axis [H] is there only with several heads. T2 is T without a second sequence. Steps that do not exist are None.
print(trace) walks through the steps. A notebook shows the HTML page, which computes if attend was built with that page
(wheels are). save() writes a file.)";

void add_options(const nb::kwargs& keywords, ExplainOptions& options) {
  std::optional<std::string> weights;
  for (const auto& [name_object, value] : keywords) {
    const std::string name = text_of(name_object);
    const auto take = [&](const char* keyword, auto& field) {
      if (name != keyword) return false;
      if (!nb::try_cast(value, field))
        throw nb::type_error(("explain: " + name + " can't be " + repr_of(value)).c_str());
      return true;
    };
    if (!take("second_text", options.second_text) && !take("seed", options.seed) &&
        !take("embedding_size", options.embedding_size) && !take("d_k", options.d_k) && !take("d_v", options.d_v) &&
        !take("heads", options.heads) && !take("causal", options.causal) && !take("positions", options.positions) &&
        !take("scale", options.scale) && !take("window", options.window) && !take("weights", weights)) {
      throw nb::type_error(("explain() got an unexpected keyword argument '" + name + "'").c_str());
    }
  }
  if (!weights) return;
  if (weights != "uniform" && weights != "linear")
    throw nb::value_error(("explain: weights: expected 'uniform' or 'linear', got '" + *weights + "'").c_str());
  options.weights = weights == "linear" ? WeightInit::linear : WeightInit::uniform;
}

Trace explain_(std::optional<std::string> text, std::optional<std::string> preset, const nb::kwargs& keywords) {
  if (preset) {
    if (text || keywords.size() > 0) throw nb::value_error("explain: a preset is given alone: it fixes all the rest");
    return call("explain", [&] { return explain_preset(*preset); });
  }
  ExplainOptions options;
  options.text = std::move(text);
  add_options(keywords, options);
  return call("explain", [&] { return explain(options); });
}

// A NumPy array that looks into the trace, and keeps it alive.
nb::object look_into(nb::handle trace, const Tensor& tensor) {
  std::array<std::size_t, Dims::max_rank> sizes{};
  std::copy(tensor.shape().begin(), tensor.shape().end(), sizes.begin());
  return nb::cast(nb::ndarray<nb::numpy, const float>(tensor.data<float>(), static_cast<std::size_t>(tensor.rank()),
                                                      sizes.data(), trace));
}

nb::object look_into(nb::handle trace, const std::optional<Tensor>& tensor) {
  return tensor ? look_into(trace, *tensor) : nb::none();
}

nb::bytes as_bytes(const std::string& text) {
  return nb::bytes(text.data(), text.size());
}

using ExplainClass = nb::class_<Trace>;

void bind_tensors(ExplainClass& trace) {
  const auto field = [&]<class Value>(const char* name, Value Trace::*tensor, const char* doc) {
    const std::string type = std::is_same_v<Value, Tensor> ? "numpy.ndarray" : "numpy.ndarray | None";
    trace.def_prop_ro(
        name, [tensor](nb::handle self) { return look_into(self, nb::cast<const Trace&>(self).*tensor); },
        nb::sig(("def " + std::string(name) + "(self) -> " + type).c_str()), doc);
  };
  field("embeddings", &Trace::embeddings, "[T,E]");
  field("embeddings_2", &Trace::embeddings_2, "[T2,E]");
  field("positions", &Trace::positions, "[max(T,T2),E]: the encodings of the places, from 0");
  field("inputs", &Trace::inputs, "[T,E]: embeddings + positions");
  field("inputs_2", &Trace::inputs_2, "[T2,E]");
  field("w_query", &Trace::w_query, "[H][d_k,E], or [H][E,d_k]: weights_in_out");
  field("w_key", &Trace::w_key, "as w_query");
  field("w_value", &Trace::w_value, "[H][d_v,E], or [H][E,d_v]");
  field("queries", &Trace::queries, "[H][T,d_k]");
  field("keys", &Trace::keys, "[H][T2,d_k]");
  field("values", &Trace::values, "[H][T2,d_v]");
  field("scores", &Trace::scores, "[H][T,T2]: q.k");
  field("scaled_scores", &Trace::scaled_scores, "[H][T,T2]: q.k / sqrt(d_k), or q.k: scale=False");
  field("logits", &Trace::logits, "[H][T,T2]: causal or window: scaled_scores, and -inf where a key is hidden");
  field("weights", &Trace::weights, "[H][T,T2]: each row sums to 1");
  field("context", &Trace::context, "[H][T,d_v]");
  field("concat_heads", &Trace::concat_heads, "[T,H * d_v]");
  field("w_output", &Trace::w_output, "[E,H * d_v], or [H * d_v,E]: weights_in_out");
  field("output", &Trace::output, "[T,E]");
}

void bind_pictures(ExplainClass& trace) {
  using Place = std::optional<std::int64_t>;
  trace
      .def(
          "to_text",
          [](const Trace& self, int width, bool colour, Place focus, Place head, bool all) {
            return to_text(self, {.width = width, .colour = colour, .focus = focus, .head = head, .all = all});
          },
          nb::kw_only(), nb::arg("width") = 80, nb::arg("colour") = false, nb::arg("focus") = nb::none(),
          nb::arg("head") = nb::none(), nb::arg("all") = false,
          "The walk for a terminal. focus is the query row to work out and head one of several heads, both from 0. all "
          "shows whole matrices.")
      .def(
          "to_json", [](const Trace& self) { return to_json(self); }, "One JSON object; docs/json.md describes it.")
      .def(
          "to_html",
          [](const Trace& self, Place focus, Place head, bool all) {
            return to_html(self, {.focus = focus, .head = head, .all = all});
          },
          nb::kw_only(), nb::arg("focus") = nb::none(), nb::arg("head") = nb::none(), nb::arg("all") = false,
          "One HTML page. It computes if attend was built with that page and there are at most 200 words.")
      .def(
          "to_svg", [](const Trace& self, Place head) { return to_svg(self, {.head = head}); }, nb::kw_only(),
          nb::arg("head") = nb::none(), "The weights as a picture, of all heads or of one.")
      .def(
          "to_png", [](const Trace& self, Place head) { return as_bytes(to_png(self, {.head = head})); }, nb::kw_only(),
          nb::arg("head") = nb::none(), "The weights as a picture, of all heads or of one.")
      .def(
          "save",
          [](const Trace& self, nb::handle path) {
            const std::string name = path_of(path);
            call("Trace.save", [&] { write_trace(name, self); });
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Write .json, .npz, .safetensors, .attend, .svg, .png or .html, by the path's ending.")
      .def("_repr_html_", [](const Trace& self) { return in_a_frame("Attention, step by step", to_html(self)); })
      .def("__str__", [](const Trace& self) { return to_text(self); })
      .def("__repr__", [](const Trace& self) { return "<attend.Trace: " + self.title + ">"; });
}

}  // namespace

void bind_explain(nb::module_& m) {
  ExplainClass trace(m, "Trace", trace_doc);
  copies_are_itself(trace);
  refuses_pickle(trace, "explain() makes it again from the same arguments; save() writes it");
  trace.def_ro("preset", &Trace::preset, "\"\" for a sentence of your own")
      .def_ro("title", &Trace::title)
      .def_ro("tokens", &Trace::tokens, "T words")
      .def_ro("ids", &Trace::ids)
      .def_ro("tokens_2", &Trace::tokens_2)
      .def_ro("ids_2", &Trace::ids_2)
      .def_ro("focus", &Trace::focus, "the query row that the walk works out")
      .def_ro("causal", &Trace::causal)
      .def_ro("weights_in_out", &Trace::weights_in_out, "w_* stand as [in,out], used as x @ w");
  bind_tensors(trace);
  bind_pictures(trace);
  m.def("explain", &explain_, nb::arg("text") = nb::none(), nb::arg("preset") = nb::none(), nb::arg("options"),
        nb::sig("def explain(text: str | None = None, preset: str | None = None, *, second_text: str | None = None, "
                "seed: int = 123, embedding_size: int = 16, d_k: int = 24, d_v: int = 28, heads: int = 0, "
                "weights: Literal['linear', 'uniform'] | None = None, causal: bool = False, positions: bool = False, "
                "scale: bool = True, window: int | None = None) -> Trace"),
        explain_doc);
  m.def(
      "explain_presets",
      [] {
        nb::dict all;
        for (const Preset& preset : presets()) all[nb::cast(preset.name)] = nb::cast(preset.summary);
        return all;
      },
      nb::sig("def explain_presets() -> dict[str, str]"),
      "The names that explain(preset=...) takes, and what each is.");
}

}  // namespace attend::python
