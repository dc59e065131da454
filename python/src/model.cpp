// attend.Model: what it is, what it keeps of a sequence, and its calls.
#include "attend/models.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "attend/analysis.h"
#include "attend/session.h"
#include "bindings.h"
#include "call.h"
#include "dtypes.h"
#include "model.h"
#include "pickle.h"
#include "text.h"
#include "tokenizer.h"

namespace attend::python {

std::span<const std::int64_t> numbers_of(const Tensor& integers) {
  return {integers.data<std::int64_t>(), static_cast<std::size_t>(integers.count())};
}

std::vector<std::int64_t> list_of(const Tensor& integers) {
  const auto numbers = numbers_of(integers);
  return {numbers.begin(), numbers.end()};
}

std::function<void(double)> progress_of(const char* function, nb::handle progress) {
  if (progress.is_none()) return {};
  if (!PyCallable_Check(progress.ptr())) {
    throw nb::type_error((std::string(function) + ": progress: expected a function, got " + repr_of(progress)).c_str());
  }
  return [progress](double share) {
    const WithGil gil;
    progress(share);
  };
}

const Tokenizer& Loaded::tokenizer(const char* function) const {
  if (!known_tokenizer)
    known_tokenizer = call(function, [&] { return std::make_shared<const Tokenizer>(model.tokenizer()); });
  return *known_tokenizer;
}

std::vector<std::int64_t> Loaded::read_ids(const char* function, const char* argument, nb::handle ids,
                                           const char* expected) const {
  if (!nb::isinstance<nb::str>(ids)) return list_of(read_integers(function, argument, ids, expected));
  (void)tokenizer(function);
  const std::string text = text_of(ids);
  return call(function, [&] { return encode(model, text).ids; });
}

std::vector<std::int64_t> Loaded::read_decoder_ids(const char* function, nb::handle ids) {
  if (ids.is_none()) return {};
  std::vector<std::int64_t> read = list_of(read_integers(function, "decoder_ids", ids));
  if (read.empty()) throw Error(ErrorCode::bad_value, function, "decoder_ids is empty: expected None, or some");
  return read;
}

std::optional<std::int64_t> Loaded::read_token(const char* function, const char* argument, nb::handle token) const {
  if (token.is_none()) return std::nullopt;
  if (nb::isinstance<nb::str>(token)) {
    const Tokenizer& own = tokenizer(function);
    const std::string text = text_of(token);
    return call(function, [&] { return single_token(own, text); });
  }
  std::int64_t id = 0;
  if (!nb::try_cast(token, id)) {
    throw nb::type_error(
        (std::string(function) + ": " + argument + ": expected a token's id or text, got " + repr_of(token)).c_str());
  }
  return id;
}

CallArguments::CallArguments(const Loaded& loaded, const char* function, nb::handle ids, nb::handle starts,
                             nb::handle types, nb::handle caches, nb::handle edits, nb::handle decoder_ids,
                             nb::handle decoder_starts)
    : ids_(loaded.read_ids(function, "ids", ids,
                           "a text, or whole numbers [N]; of several sequences all ids, and starts says where each "
                           "begins")),
      caches_(function, caches),
      edits_(function, edits),
      decoder_ids_(Loaded::read_decoder_ids(function, decoder_ids)) {
  // For the library, nothing and none are one.
  const auto refuse_empty = [&](const char* name, bool empty) {
    if (empty) throw Error(ErrorCode::bad_value, function, std::string(name) + " is empty: expected None, or some");
  };
  if (!starts.is_none()) starts_ = read_integers(function, "starts", starts);
  if (!types.is_none()) types_ = read_integers(function, "types", types);
  refuse_empty("starts", starts_ && starts_->count() == 0);
  refuse_empty("types", types_ && types_->count() == 0);
  if (!decoder_starts.is_none()) decoder_starts_ = list_of(read_integers(function, "decoder_starts", decoder_starts));
  refuse_empty("decoder_starts", !decoder_starts.is_none() && decoder_starts_.empty());
  refuse_empty("caches", !caches.is_none() && caches_.get().empty());
}

ModelCall CallArguments::call(Recorder* recorder) const {
  return {.starts = starts_ ? numbers_of(*starts_) : std::span<const std::int64_t>(),
          .types = types_ ? numbers_of(*types_) : std::span<const std::int64_t>(),
          .caches = caches_.get(),
          .decoder_ids = decoder_ids_,
          .decoder_starts = decoder_starts_,
          .recorder = recorder,
          .edits = edits_.get(),
          .knockouts = edits_.knockouts(),
          .observe = {}};
}

namespace {

nb::object encoder_states(const Loaded& self, nb::handle ids, nb::handle starts, nb::handle edits) {
  constexpr const char* function = "Model.encoder_states";
  const CallArguments given(self, function, ids, starts, nb::none(), nb::none(), edits);
  return to_python({}, call(function, [&] { return self.model.encoder_states(given.ids(), given.call()); }));
}

nb::object logits(const Loaded& self, nb::handle hidden) {
  constexpr const char* function = "Model.logits";
  const Array states(function, "hidden", hidden);
  return to_python(states.kind(), call(function, [&] { return self.model.logits(states.view()); }));
}

nb::object read_only(Tensor tensor) {
  nb::object array = to_python({}, std::move(tensor));
  array.attr("setflags")(nb::arg("write") = false);
  return array;
}

nb::dict model_weights(const Loaded& self, std::optional<std::int64_t> layer, bool encoder) {
  nb::dict all;
  for (auto& [name, tensor] : call("Model.weights", [&] {
         if (!layer && encoder)
           throw Error(ErrorCode::bad_value, "Model.weights", "encoder needs a layer, and layer is None");
         return layer ? self.model.weights(*layer, encoder) : self.model.weights();
       }))
    all[name.c_str()] = read_only(std::move(tensor));
  return all;
}

nb::object weight(const Loaded& self, const std::string& name) {
  return read_only(call("Model.weight", [&] { return self.model.weight(name); }));
}

nb::dict means_(const Loaded& self, nb::handle texts, nb::handle keep, bool by_position) {
  constexpr const char* function = "Model.means";
  const nb::list keys = read_list(function, "keep", "a list of places, \"mlp\" or (\"z\", layer)", keep);
  const std::vector<Keep> places = read_keep(function, keys);
  std::vector<std::vector<std::int64_t>> ids;
  for (const nb::handle each : read_list(function, "texts", "a list of texts, or of ids", texts))
    ids.push_back(self.read_ids(function, ("texts[" + std::to_string(ids.size()) + "]").c_str(), each));
  std::vector<Tensor> found = call(function, [&] { return means(self.model, ids, places, by_position); });
  nb::dict all;
  for (std::size_t n = 0; n < found.size(); ++n) all[keys[n]] = to_python({}, std::move(found[n]));
  return all;
}

std::int64_t kept_bytes_(const Loaded& self, nb::handle keep, nb::handle tokens) {
  constexpr const char* function = "Model.kept_bytes";
  const nb::list keys = read_list(function, "keep", "a list of places, \"mlp\" or (\"z\", layer)", keep);
  const std::vector<Keep> places = read_keep(function, keys);
  const auto count = expect<std::int64_t>(function, "tokens", whole_number, tokens);
  if (count < 0)
    throw Error(ErrorCode::bad_value, function, "tokens is " + std::to_string(count) + ", expected at least 0");
  return call(function, [&] { return kept_bytes(self.model.info(), places, count); });
}

constexpr const char* means_doc =
    R"(Means of what passes over several texts (or lists of ids) compute at places, named as for forward(keep=).

The mean is over all tokens: [C] for a place in one layer, [L,C] for all layers. Edit(set=) and ablate(set=) take it; for "z" this is
what the literature calls mean ablation. by_position: the mean over the texts at each position, [T,C] or [L,T,C], where T is the
longest text's length.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> means = model.means([[1, 2, 3], [4, 5]], ["z", ("mlp", 0)])
>>> means["z"].shape, means["mlp", 0].shape
((2, 16), (16,))
>>> model.ablate([1, 2, 3], set=means["z"]).kl.shape
(2, 4)
>>> model.kept_bytes(["z", ("mlp", 0)], tokens=3) == sum(kept.nbytes for kept in model.forward([1, 2, 3], keep=["z", ("mlp", 0)])[1].values())
True)";

constexpr const char* model_weights_doc =
    R"(The weights of a layer, or with None of the model around the layers: float32 and read-only, quantized weights as numbers.

A layer has, where y = W x + b: "W_Q" [H,D,E], "W_K" and "W_V" [Hkv,D,E], "W_O" [H,E,D], "W_in" and "W_gate" [F,E], "W_out" [E,F],
"b_Q", ..., and its norms, "attention_norm", "mlp_norm", "attention_norm_bias", ... [E]. An encoder-decoder's layer has "cross_W_Q",
... too; encoder=True gives a layer of its encoder. With None there are "embeddings" [vocabulary,E], "norm" and "W_output"
[vocabulary,E]. A Gemma's norms are 1 + those in its file.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> {name: array.shape for name, array in model.weights(0).items() if name in ("W_Q", "W_O", "W_in")}
{'W_O': (4, 16, 4), 'W_Q': (4, 4, 16), 'W_in': (32, 16)})";

std::string with_activations(const ModelInfo& info) {
  if (info.activations == Activations::exact) return "";
  return ", " + std::string(name_of(info.activations)) + " activations";
}

std::string model_describe(const Loaded& self) {
  const ModelInfo& info = self.model.info();
  return "Model('" + self.name + "': " + info.type + ", " + std::to_string(info.layers) + " layers, " +
         std::to_string(info.parameters) + " parameters, " + python_name(info.dtype) + with_activations(info) + ")";
}

Activations read_activations(const char* function, const std::string& name) {
  if (const auto named = activations_named(name)) return *named;
  throw Error(ErrorCode::bad_value, function, "activations is '" + name + "', expected exact, fast or int8");
}

Loaded model_load(nb::handle path, nb::handle dtype, const std::string& activations) {
  constexpr const char* function = "Model.load";
  const std::string name = path_of(path);
  ModelOptions options;
  if (!dtype.is_none()) options.dtype = read_dtype(function, dtype, {DType::f32, DType::bf16});
  options.activations = call(function, [&] { return read_activations(function, activations); });
  nb::str from = lasting_path(name);
  Loaded loaded = call(function, [&] {
    Model model = Model::load(name, options);  // first: where that is no name, it says so
    std::filesystem::path place = std::filesystem::absolute(name).lexically_normal();
    if (!place.has_filename()) place = place.parent_path();
    return Loaded{std::move(model), place.filename().string(), find_model(name).string(), options.dtype, nb::object()};
  });
  loaded.from = std::move(from);  // whose count of references is the GIL's
  return loaded;
}

GivenTokenizer with_path(const Tokenizer& tokenizer, const std::string& path) {
  return {tokenizer, nb::type<Loaded>().attr("load_tokenizer"), lasting_path(path)};
}

GivenTokenizer load_tokenizer(nb::handle path) {
  const std::string name = path_of(path);
  return with_path(call("Model.load_tokenizer", [&] { return Model::load_tokenizer(name); }), name);
}

nb::tuple reduced(const Loaded& self) {
  const nb::object dtype = self.given_dtype ? nb::object(nb::str(python_name(*self.given_dtype))) : nb::none();
  const nb::str activations(name_of(self.model.info().activations).data());
  return nb::make_tuple(nb::type<Loaded>().attr("load"), nb::make_tuple(self.from, dtype, activations));
}

constexpr const char* model_class_doc =
    R"(A pretrained Transformer from the families of BERT, GPT-2, Llama and others (docs/models.md lists them).

Model.load() opens a Hugging Face folder or a GGUF file. The model computes in float32 or bfloat16, as eager Transformers does. It
also computes gradients (gradient()), but none for its weights. If something about a model is not known here, load() raises an
OSError that names it and never guesses. Any number of threads may call one model. Results are NumPy arrays of float32. They have the
same bits for any number of threads, and for a sequence alone or among others.

>>> import attend
>>> model = attend.Model.load("tiny")  # a folder with config.json and model.safetensors
>>> model.info.type, model.info.layers, model.info.embedding_size
('llama', 2, 16)
>>> hidden = model.forward([1, 2, 3, 4, 5], starts=[0, 2, 5])  # two sequences, of 2 and 3 tokens
>>> hidden.shape, model.logits(hidden[[1, 4]]).shape
((5, 16), (2, 1000))
>>> model.generate([1, 2, 3], max_new_tokens=5).shape
(5,)
>>> cache = model.cache()
>>> for id in [1, 2, 3]:
...     last = model.forward([id], caches=[cache])  # what forward([1, 2, 3]) has of them
>>> len(cache), last.shape
(3, (1, 16)))";

constexpr const char* load_doc =
    R"(path: a folder with config.json and model.safetensors or its shards; a .gguf file; or the name of a model in attend's cache or
Hugging Face's, such as "sentence-transformers/all-MiniLM-L6-v2" (attend model --list shows the names). Nothing is downloaded.

dtype: compute in float32 or bfloat16. None: the dtype in config.json, with float16 computed as float32. Quantized weights stay as
they are. Weights in that dtype are read from the file while the model is used, so the file must not change.

activations: 'exact', or rounded for speed before layers multiply them by their weights. 'fast' rounds to 16 bits where weights are
quantized. 'int8' rounds to 8 bits, and other weights become Q8_0. All else is float32. forward(), generate(), embed(), record() and
tasks take such a model; gradients and analyses raise ValueError.

Raises OSError, which lists everything that is missing, unexpected or of another shape, and names what is not known here.)";

}  // namespace

void bind_model(nb::module_& m) {
  bind_model_info(m);
  bind_edit(m);
  nb::class_<Loaded> model(m, "Model", model_class_doc);
  copies_are_itself(model);
  pickles_as(model, &reduced);
  model
      .def_static("load", &model_load, nb::arg("path"), nb::arg("dtype") = nb::none(), nb::arg("activations") = "exact",
                  nb::sig("def load(path: str | os.PathLike[str] | bytes, dtype: object = None, activations: "
                          "Literal['exact', 'fast', 'int8'] = 'exact') -> Model"),
                  load_doc)
      .def_static("load_tokenizer", &load_tokenizer, nb::arg("path"),
                  nb::sig("def load_tokenizer(path: str | os.PathLike[str] | bytes) -> Tokenizer"),
                  "The tokenizer beside the model: the folder's, as Tokenizer.load reads it, or the GGUF file's own.")
      .def_prop_ro(
          "info", [](const Loaded& self) { return self.model.info(); }, "What the model is.")
      .def_prop_ro(
          "tokenizer", [](const Loaded& self) { return with_path(self.tokenizer("Model.tokenizer"), self.path); },
          "The tokenizer beside the model.")
      .def("encoder_states", &encoder_states, nb::arg("ids"), nb::arg("starts") = nb::none(),
           nb::arg("edits") = nb::none(),
           nb::sig("def encoder_states(self, ids: Any, starts: Any = None, edits: Sequence[Edit | Knockout] | None = "
                   "None) -> "
                   "numpy.ndarray"),
           "What an encoder-decoder's encoder makes of ids [N] or a text: [N,E], which its decoder reads. logits() "
           "does not take it. starts and edits are as for forward(). ValueError for other models.")
      .def("logits", &logits, nb::arg("hidden"), nb::sig("def logits(self, hidden: ArrayT) -> ArrayT"),
           "hidden [...,E] to logits [...,vocabulary], float32. ValueError for encoders and for models without an "
           "output layer.")
      .def("means", &means_, nb::arg("texts"), nb::arg("keep"), nb::arg("by_position") = false,
           nb::sig(
               "def means(self, texts: Sequence[str | Ids], keep: Sequence[str | tuple[str, int]], by_position: bool "
               "= False) -> dict[Any, numpy.ndarray]"),
           means_doc)
      .def("kept_bytes", &kept_bytes_, nb::arg("keep"), nb::arg("tokens"),
           nb::sig("def kept_bytes(self, keep: Sequence[str | tuple[str, int]], tokens: int) -> int"),
           "The bytes of the arrays that forward(keep=) gives for that many tokens, in the encoder as in the decoder. "
           "ValueError for a place that the model does not have.")
      .def("weights", &model_weights, nb::arg("layer") = nb::none(), nb::arg("encoder") = false,
           nb::sig("def weights(self, layer: int | None = None, encoder: bool = False) -> dict[str, numpy.ndarray]"),
           model_weights_doc)
      .def("weight", &weight, nb::arg("name"), nb::sig("def weight(self, name: str) -> numpy.ndarray"),
           "The tensor of that name, as Transformers has it, float32, read-only; weight_names lists them.")
      .def_prop_ro(
          "weight_names", [](const Loaded& self) { return self.model.weight_names(); },
          nb::sig("def weight_names(self) -> list[str]"),
          "The names of its tensors for weight(), as Transformers has them, also for a GGUF file.")
      .def("__repr__", &model_describe);
  bind_model_cache(m, model);
  bind_model_forward(model);
  bind_model_embed(model);
  bind_model_tasks(model);
  bind_model_vectors(model);
  bind_model_generate(model);
  bind_model_record(model);
  bind_steering(m, model);
  bind_jacobian_lens(m, model);
  bind_gradient(model);
  bind_features(m, model);
  bind_analysis(m, model);
}

}  // namespace attend::python
