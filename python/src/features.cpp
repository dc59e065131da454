// attend.SparseAutoencoder, and Model.features().
#include "attend/features.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

using GivenPlace = std::optional<std::pair<std::string, std::int64_t>>;

std::optional<LayerPlace> read_place(const char* function, const GivenPlace& given) {
  if (!given) return {};
  return LayerPlace{place_of(function, given->first), given->second};
}

nb::object pair_of(const std::optional<LayerPlace>& place) {
  if (!place) return nb::none();
  return nb::make_tuple(std::string(name_of(place->at)), place->layer);
}

SparseAutoencoder load(nb::handle folder, const GivenPlace& reads, const GivenPlace& writes,
                       std::optional<bool> centred) {
  constexpr const char* function = "SparseAutoencoder.load";
  const SparseAutoencoderOptions options{
      .reads = read_place(function, reads), .writes = read_place(function, writes), .centred = centred};
  const std::string from = path_of(folder);
  return call(function, [&] { return SparseAutoencoder::load(from, options); });
}

nb::object features_encode(const SparseAutoencoder& self, nb::handle x) {
  constexpr const char* function = "SparseAutoencoder.encode";
  const Array given(function, "x", x);
  return to_python(given.kind(), call(function, [&] { return self.encode(given.view()); }));
}

nb::object features_decode(const SparseAutoencoder& self, nb::handle activations, nb::handle x) {
  constexpr const char* function = "SparseAutoencoder.decode";
  const Array given(function, "activations", activations);
  const OptionalArray rows(function, "x", x);
  return to_python(given.kind(), call(function, [&] { return self.decode(given.view(), rows.view()); }));
}

nb::object direction(const SparseAutoencoder& self, std::int64_t feature) {
  return to_python({}, call("SparseAutoencoder.direction", [&] { return self.direction(feature); }));
}

nb::dict features_weights(const SparseAutoencoder& self) {
  nb::dict all;
  for (const auto& [name, tensor] : self.weights()) all[name.c_str()] = to_python({}, tensor);
  return all;
}

// attend.Edit of the same.
nb::object edit_of(const FeatureEdit& made) {
  nb::object rows = nb::none();
  if (made.rows) rows = nb::cast(*made.rows);
  return nb::type<GivenEdit>()(nb::arg("layer") = made.place.layer, nb::arg("at") = std::string(name_of(made.place.at)),
                               nb::arg("rows") = rows, nb::arg("add") = to_python({}, made.values));
}

// What edit() needs of an attend.Features.
Features read_features(const char* function, nb::handle found) {
  if (!nb::isinstance(found, nb::module_::import_("attend._features").attr("Features")))
    refuse(function, "found", "the Features that Model.features() gives", found);
  const auto tensor = [&](const char* field) {
    const nb::object array = found.attr(field);
    return Array(function, field, array).view().to(DType::f32);
  };
  return {.activations = tensor("activations"), .reconstruction = {}, .error = {}, .scales = tensor("scales")};
}

nb::object edit(const SparseAutoencoder& self, nb::handle found, std::int64_t feature, double scale,
                std::optional<double> set) {
  constexpr const char* function = "SparseAutoencoder.edit";
  const Features given = read_features(function, found);
  return edit_of(
      call(function, [&] { return set ? self.set_to(given, feature, *set) : self.scaled(given, feature, scale); }));
}

nb::object features_add(const SparseAutoencoder& self, std::int64_t feature, double value) {
  return edit_of(call("SparseAutoencoder.add", [&] { return self.added(feature, value); }));
}

nb::object features_of(const Loaded& self, nb::handle ids, nb::handle autoencoder, nb::handle starts, nb::handle types,
                       nb::handle caches, nb::handle edits, nb::handle decoder_ids, nb::handle decoder_starts) {
  constexpr const char* function = "Model.features";
  const auto& of = read_instance<SparseAutoencoder>(function, "autoencoder", "a SparseAutoencoder", autoencoder);
  const CallArguments given(self, function, ids, starts, types, caches, edits, decoder_ids, decoder_starts);
  const Features found = call(function, [&] { return features(self.model, of, given.ids(), given.call()); });
  return nb::module_::import_("attend._features")
      .attr("Features")(to_python({}, found.activations), to_python({}, found.reconstruction),
                        to_python({}, found.error), to_python({}, found.scales));
}

nb::list strongest(nb::handle activations, std::int64_t position, std::int64_t n) {
  constexpr const char* function = "Features.top";
  const Features given{.activations = Array(function, "activations", activations).view().to(DType::f32),
                       .reconstruction = {},
                       .error = {},
                       .scales = {}};
  nb::list all;
  for (const auto& [feature, value] : call(function, [&] { return strongest_features(given, position, n); }))
    all.append(nb::make_tuple(feature, value));
  return all;
}

nb::tuple features_state_of(const SparseAutoencoder& self) {
  return nb::make_tuple(self.config(), features_weights(self), pair_of(self.reads()),
                        self.transcoder() ? pair_of(self.writes()) : nb::none(), self.centred(),
                        self.reads_before_weight());
}

void features_restore(SparseAutoencoder& self, const nb::tuple& state) {
  TensorMap tensors;
  for (const auto& [name, array] : nb::cast<nb::dict>(state[1]))
    tensors.emplace(nb::cast<std::string>(name), Array("SparseAutoencoder", "state", array).view().clone());
  // Where ln2.hook_normalized is what it reads, the text says it.
  SparseAutoencoderOptions options{.centred = nb::cast<bool>(state[4])};
  if (!nb::cast<bool>(state[5])) options.reads = read_place("SparseAutoencoder", nb::cast<GivenPlace>(state[2]));
  options.writes = read_place("SparseAutoencoder", nb::cast<GivenPlace>(state[3]));
  new (&self) SparseAutoencoder(SparseAutoencoder::of(nb::cast<std::string>(state[0]), tensors, options));
}

std::string features_describe(const SparseAutoencoder& self) {
  std::string out = "SparseAutoencoder(" + self.architecture() + ", " + std::to_string(self.size()) + " features";
  const auto place = [](const LayerPlace& of) {
    return std::string(name_of(of.at)) + " of layer " + std::to_string(of.layer);
  };
  if (self.reads()) out += ", reads " + place(*self.reads());
  if (self.writes()) out += ", writes " + place(*self.writes());
  return out + ")";
}

constexpr const char* features_class_doc =
    R"(A sparse autoencoder or transcoder for a place in a model, as SAELens saves it. SparseAutoencoder.load() reads it.

Features are activation(W_enc (x - b_dec) + b_enc). They decode to W_dec features + b_dec; a skip transcoder adds W_skip x. in_size
and out_size are how many numbers it reads and writes, and size is the number of features. Model.features() gives the features of
a pass, and Model.attribute(features=) what each of them wrote into an answer. edit() takes a feature out of a pass, and add() puts
one in. docs/why.md tells more.

>>> import attend
>>> sae = attend.SparseAutoencoder.load("autoencoder")  # a folder with cfg.json and sae_weights.safetensors
>>> sae.architecture, sae.size, sae.reads
('standard', 3, ('residual', 1))
>>> model = attend.Model.load("tiny")
>>> found = model.features([1, 2, 3, 4], sae)
>>> found.activations.shape, model.attribute([1, 2, 3, 4], features=sae).features.shape
((4, 3), (3,))
>>> sae.edit(found, 1)  # takes feature 1 out
Edit(layer=1, at='residual', 4 rows, add=an array))";

constexpr const char* features_load_doc = R"(A folder with cfg.json and sae_weights.safetensors.

Architectures: standard, gated, jumprelu, topk (batchtopk is saved as jumprelu), transcoder, skip_transcoder, jumprelu_transcoder
and jumprelu_skip_transcoder. hook_name and hook_name_out become places of attend: blocks.5.hook_resid_post is ("residual", 6).
reads, writes: such places, instead of what the file says; writes is for transcoders only.
centred: whether the mean is taken off the stream before it is read, as in a model that TransformerLens read with
center_writing_weights (gpt2-small-res-jb); None: as the file says.
Raises OSError for a bad file, and names what is missing, unexpected or not known here.)";

constexpr const char* features_doc = R"(The features of a pass, an attend.Features.

ids [N], or a text; starts, types, caches, edits, decoder_ids and decoder_starts are as for forward(). Raises ValueError if the model
has no such place, or a place of another size.)";

}  // namespace

void bind_features(nb::module_& m, nb::class_<Loaded>& model) {
  nb::class_<SparseAutoencoder> bound(m, "SparseAutoencoder", features_class_doc);
  copies_are_itself(bound);
  bound.def("__getstate__", &features_state_of).def("__setstate__", &features_restore);
  bound.def_prop_ro("architecture", &SparseAutoencoder::architecture, "SAELens' name of it")
      .def_prop_ro("in_size", &SparseAutoencoder::in_size, "how many numbers it reads of a row")
      .def_prop_ro("size", &SparseAutoencoder::size, "how many features")
      .def_prop_ro("out_size", &SparseAutoencoder::out_size, "how many it writes")
      .def_prop_ro(
          "reads", [](const SparseAutoencoder& self) { return pair_of(self.reads()); },
          nb::sig("def reads(self) -> tuple[str, int] | None"),
          "the place and its layer; None: the file does not say which")
      .def_prop_ro(
          "writes", [](const SparseAutoencoder& self) { return pair_of(self.writes()); },
          nb::sig("def writes(self) -> tuple[str, int] | None"), "likewise; an autoencoder writes where it reads")
      .def_prop_ro("weights", &features_weights, nb::sig("def weights(self) -> dict[str, numpy.ndarray]"),
                   "as the file names them, float32: W_enc [in,size], W_dec [size,out], b_enc, b_dec, ...")
      .def("encode", &features_encode, nb::arg("x"), nb::sig("def encode(self, x: ArrayT) -> ArrayT"),
           "x [N,in_size] to features [N,size], float32.")
      .def("decode", &features_decode, nb::arg("activations"), nb::arg("x") = nb::none(),
           nb::sig("def decode(self, activations: ArrayT, x: Array | None = None) -> ArrayT"),
           "Features [N,size] to [N,out_size], float32. x: the rows that they came from, which skip transcoders "
           "and\nnormalize_activations need.")
      .def("direction", &direction, nb::arg("feature"), nb::sig("def direction(self, feature: int) -> numpy.ndarray"),
           "What 1 of a feature decodes to, [out_size].")
      .def("edit", &edit, nb::arg("found"), nb::arg("feature"), nb::arg("scale") = 0.0, nb::arg("set") = nb::none(),
           nb::sig(
               "def edit(self, found: Features, feature: int, scale: float = 0.0, set: float | None = None) -> Edit"),
           "An Edit for the pass that found came from. It takes the feature out, or gives it scale times its value "
           "in\neach row, or the value set.")
      .def("add", &features_add, nb::arg("feature"), nb::arg("value"),
           nb::sig("def add(self, feature: int, value: float) -> Edit"),
           "An Edit that adds value times the feature to every row, also for the tokens that generate() writes.")
      .def_static("load", &load, nb::arg("folder"), nb::arg("reads") = nb::none(), nb::arg("writes") = nb::none(),
                  nb::arg("centred") = nb::none(),
                  nb::sig("def load(folder: str | os.PathLike[str] | bytes, reads: tuple[str, int] | None = None, "
                          "writes: tuple[str, int] | None = None, centred: bool | None = None) -> SparseAutoencoder"),
                  features_load_doc)
      .def("__repr__", &features_describe);
  m.def("_strongest_features", &strongest, nb::arg("activations"), nb::arg("position"), nb::arg("n"));
  model.def(
      "features", &features_of, nb::arg("ids"), nb::arg("autoencoder"), nb::arg("starts") = nb::none(),
      nb::arg("types") = nb::none(), nb::arg("caches") = nb::none(), nb::arg("edits") = nb::none(),
      nb::arg("decoder_ids") = nb::none(), nb::arg("decoder_starts") = nb::none(),
      nb::sig((std::string("def features(self, ids: str | Ids, autoencoder: SparseAutoencoder, starts: Ids | None "
                           "= None, types: Ids | None = None, caches: Sequence[ModelCache] | None = None") +
               given_edits + ", decoder_ids: Ids | None = None, decoder_starts: Ids | None = None) -> Features")
                  .c_str()),
      features_doc);
}

}  // namespace attend::python
