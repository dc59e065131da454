// Pictures and CSV of what attend.Model's analyses found.
#include "attend/analysis_look.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <utility>

#include "analysis.h"
#include "array.h"
#include "attend/session.h"
#include "call.h"

namespace attend::python {

namespace {

// The tokenizer beside the model; null where there is none.
std::shared_ptr<const Tokenizer> tokenizer_of(const Analysed& x) {
  if (x.tokenizer || x.path.empty()) return x.tokenizer;
  const std::filesystem::path path = x.path;
  const bool folder = std::filesystem::is_directory(path);
  const auto has = [&](const char* file) { return std::filesystem::exists(path / file); };
  if (folder ? !has("tokenizer.json") && !has("source.spm") : !std::filesystem::exists(path)) return nullptr;
  return std::make_shared<const Tokenizer>(Model::load_tokenizer(path));
}

// What an analysis was of; of one that was made by hand, nothing is known.
const Analysed& analysed_of(nb::handle of) {
  static const Analysed nothing;
  return of.is_none() ? nothing : nb::cast<const Analysed&>(of);
}

// make(AnalysisOf).
template <class Make>
auto with_names(const char* function, const Analysed& x, const Text& title, Make make) {
  return call(function, [&] {
    const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(x);
    return make(AnalysisOf{x.ids, x.corrupt, x.encoder_ids, tokenizer.get(), x.model, title});
  });
}

Tensor read_tensor(const char* function, const char* name, nb::handle object) {
  return Array(function, name, object).view().clone();
}

Lens read_lens(const char* function, nb::handle ids, nb::handle log_probabilities, nb::handle rank) {
  return {read_tensor(function, "ids", ids), read_tensor(function, "log_probabilities", log_probabilities),
          read_tensor(function, "rank", rank)};
}

Drawn lens_picture_(nb::handle of, nb::handle ids, nb::handle log_probabilities, nb::handle rank, std::int64_t most,
                    const Text& title) {
  constexpr const char* function = "Lens.picture";
  const Lens lens = read_lens(function, ids, log_probabilities, rank);
  const Analysed& x = analysed_of(of);
  return with_names(function, x, title,
                    [&](const AnalysisOf& names) { return drawn(lens_picture(lens, x.positions, names, most)); });
}

std::string lens_csv_(nb::handle of, nb::handle ids, nb::handle log_probabilities, nb::handle rank) {
  constexpr const char* function = "Lens.to_csv";
  const Lens lens = read_lens(function, ids, log_probabilities, rank);
  const Analysed& x = analysed_of(of);
  return with_names(function, x, {}, [&](const AnalysisOf& names) { return lens_csv(lens, x.positions, names); });
}

Ablation read_ablation(const char* function, const Analysed& x, nb::handle logit, nb::handle log_probability,
                       nb::handle kl, nb::handle cosine_distance) {
  Ablation out;
  const auto read = [&](const char* name, nb::handle given, Tensor& to) {
    if (nb::isinstance<nb::float_>(given))
      to = Tensor::from({1}, {static_cast<float>(nb::cast<double>(given))});  // of heads that were taken out together
    else if (!given.is_none())
      to = read_tensor(function, name, given);
  };
  read("logit", logit, out.logit), read("log_probability", log_probability, out.log_probability);
  read("kl", kl, out.kl), read("cosine_distance", cosine_distance, out.cosine_distance);
  out.token = x.token, out.against = x.against, out.heads = x.heads, out.attention = x.attention;
  return out;
}

Drawn ablation_picture_(nb::handle of, nb::handle logit, nb::handle log_probability, nb::handle kl,
                        nb::handle cosine_distance, const Text& change, const Text& title) {
  constexpr const char* function = "Ablation.picture";
  const Analysed& x = analysed_of(of);
  const Ablation ablation = read_ablation(function, x, logit, log_probability, kl, cosine_distance);
  return with_names(function, x, title, [&](const AnalysisOf& names) {
    return drawn(ablation_picture(ablation, names, change.value_or("")));
  });
}

std::string ablation_csv_(nb::handle of, nb::handle logit, nb::handle log_probability, nb::handle kl,
                          nb::handle cosine_distance) {
  constexpr const char* function = "Ablation.to_csv";
  const Analysed& x = analysed_of(of);
  const Ablation ablation = read_ablation(function, x, logit, log_probability, kl, cosine_distance);
  return with_names(function, x, {}, [&](const AnalysisOf& names) { return ablation_csv(ablation, names); });
}

Patching read_patching(const char* function, const Analysed& x, nb::handle recovered) {
  Patching out;
  out.recovered = read_tensor(function, "recovered", recovered);
  out.what = x.residual ? PatchOptions::What::residual : PatchOptions::What::heads;
  out.token = x.token.value_or(-1), out.against = x.against.value_or(-1), out.attention = x.attention;
  return out;
}

std::string lens_json_(nb::handle of, nb::handle ids, nb::handle log_probabilities, nb::handle rank) {
  const Lens lens = read_lens("Lens.to_json", ids, log_probabilities, rank);
  return call("Lens.to_json", [&, &positions = analysed_of(of).positions] { return to_json(lens, positions); });
}

std::string ablation_json_(nb::handle of, nb::handle logit, nb::handle log_probability, nb::handle kl,
                           nb::handle cosine_distance) {
  constexpr const char* function = "Ablation.to_json";
  const Ablation ablation = read_ablation(function, analysed_of(of), logit, log_probability, kl, cosine_distance);
  return call(function, [&] { return to_json(ablation); });
}

Drawn patching_picture_(nb::handle of, nb::handle recovered, nb::handle, nb::handle, const Text& title) {
  constexpr const char* function = "Patching.picture";
  const Analysed& x = analysed_of(of);
  const Patching patching = read_patching(function, x, recovered);
  return with_names(function, x, title,
                    [&](const AnalysisOf& names) { return drawn(patching_picture(patching, names)); });
}

std::string patching_csv_(nb::handle of, nb::handle recovered, nb::handle, nb::handle) {
  constexpr const char* function = "Patching.to_csv";
  const Analysed& x = analysed_of(of);
  const Patching patching = read_patching(function, x, recovered);
  return with_names(function, x, {}, [&](const AnalysisOf& names) { return patching_csv(patching, names); });
}

std::string patching_json_(nb::handle of, nb::handle recovered, double clean, double corrupt) {
  constexpr const char* function = "Patching.to_json";
  Patching patching = read_patching(function, analysed_of(of), recovered);
  patching.clean = clean, patching.corrupt = corrupt;
  return call(function, [&] { return to_json(patching); });
}

}  // namespace

Analysed analysed(const Loaded& self, std::vector<std::int64_t> ids, std::vector<std::int64_t> decoder_ids) {
  Analysed of;
  of.model = self.name, of.path = self.path, of.tokenizer = self.known_tokenizer;
  (decoder_ids.empty() ? of.ids : of.encoder_ids) = std::move(ids);
  if (!decoder_ids.empty()) of.ids = std::move(decoder_ids);
  return of;
}

Drawn attribution_picture_(const Explained& self, const Text& title) {
  return with_names("Attribution.picture", self.of, title,
                    [&](const AnalysisOf& names) { return drawn(attribution_picture(self, names)); });
}

std::string attribution_csv_(const Explained& self) {
  return with_names("Attribution.to_csv", self.of, {},
                    [&](const AnalysisOf& names) { return attribution_csv(self, names); });
}

std::vector<PartWords> words_of(const Explained& self, const std::vector<AttributionPart>& parts) {
  return with_names("Attribution.top", self.of, {}, [&](const AnalysisOf& of) {
    std::vector<PartWords> words;
    for (const AttributionPart& part : parts) {
      const auto& ids = part.kind == AttributionPart::Kind::cross ? of.encoder_ids : of.ids;
      const bool read = of.tokenizer != nullptr && part.key >= 0 && part.key < std::ssize(ids);
      const auto token = read ? of.tokenizer->text(ids[static_cast<std::size_t>(part.key)]) : std::nullopt;
      words.push_back({name_of(part, of), token.value_or("")});
    }
    return words;
  });
}

nb::tuple state_of(const Analysed& x) {
  const auto bytes = [](const std::string& of) { return nb::bytes(of.data(), of.size()); };  // of any encoding
  return nb::make_tuple(bytes(x.model), bytes(x.path), x.ids, x.corrupt, x.positions, x.encoder_ids, x.token, x.against,
                        x.residual, x.heads, static_cast<int>(x.attention));
}

Analysed analysed_from(const nb::tuple& state) {
  using Ids = std::vector<std::int64_t>;
  using Token = std::optional<std::int64_t>;
  Analysed x;
  const auto text = [&](std::size_t n) {
    const auto bytes = nb::cast<nb::bytes>(state[n]);
    return std::string(bytes.c_str(), bytes.size());
  };
  x.model = text(0), x.path = text(1);
  x.ids = nb::cast<Ids>(state[2]), x.corrupt = nb::cast<Ids>(state[3]), x.positions = nb::cast<Ids>(state[4]);
  x.encoder_ids = nb::cast<Ids>(state[5]);
  x.token = nb::cast<Token>(state[6]), x.against = nb::cast<Token>(state[7]);
  x.residual = nb::cast<bool>(state[8]), x.heads = nb::cast<std::vector<Head>>(state[9]);
  x.attention = static_cast<AttentionKind>(nb::cast<int>(state[10]));
  return x;
}

void bind_analysis_look(nb::module_& m) {
  nb::class_<Analysed> analysed(m, "_Analysed");
  analysed.def("__getstate__", &state_of).def("__setstate__", [](Analysed& self, const nb::tuple& state) {
    new (&self) Analysed(analysed_from(state));
  });
  analysed.def_ro("residual", &Analysed::residual).def_ro("positions", &Analysed::positions);
  m.def("_lens_picture", &lens_picture_, nb::arg("of").none(), nb::arg("ids").none(),
        nb::arg("log_probabilities").none(), nb::arg("rank").none(), nb::arg("most"), nb::arg("title").none());
  m.def("_lens_csv", &lens_csv_, nb::arg("of").none(), nb::arg("ids").none(), nb::arg("log_probabilities").none(),
        nb::arg("rank").none());
  m.def("_lens_json", &lens_json_, nb::arg("of").none(), nb::arg("ids").none(), nb::arg("log_probabilities").none(),
        nb::arg("rank").none());
  m.def("_ablation_json", &ablation_json_, nb::arg("of").none(), nb::arg("logit").none(),
        nb::arg("log_probability").none(), nb::arg("kl").none(), nb::arg("cosine_distance").none());
  m.def("_patching_json", &patching_json_, nb::arg("of").none(), nb::arg("recovered").none(), nb::arg("clean"),
        nb::arg("corrupt"));
  m.def("_ablation_picture", &ablation_picture_, nb::arg("of").none(), nb::arg("logit").none(),
        nb::arg("log_probability").none(), nb::arg("kl").none(), nb::arg("cosine_distance").none(),
        nb::arg("change").none(), nb::arg("title").none());
  m.def("_ablation_csv", &ablation_csv_, nb::arg("of").none(), nb::arg("logit").none(),
        nb::arg("log_probability").none(), nb::arg("kl").none(), nb::arg("cosine_distance").none());
  m.def("_patching_picture", &patching_picture_, nb::arg("of").none(), nb::arg("recovered").none(),
        nb::arg("clean").none(), nb::arg("corrupt").none(), nb::arg("title").none());
  m.def("_patching_csv", &patching_csv_, nb::arg("of").none(), nb::arg("recovered").none(), nb::arg("clean").none(),
        nb::arg("corrupt").none());
}

}  // namespace attend::python
