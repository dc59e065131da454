// What the analyses of attend.Model share, and the list of them.
#include "analysis.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

namespace attend::python {

Analysed analysed(const Loaded& self, std::vector<std::int64_t> ids, std::vector<std::int64_t> decoder_ids) {
  Analysed of;
  of.model = self.name, of.path = self.path, of.tokenizer = self.known_tokenizer;
  (decoder_ids.empty() ? of.ids : of.encoder_ids) = std::move(ids);
  if (!decoder_ids.empty()) of.ids = std::move(decoder_ids);
  return of;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Analysed& x) {
  if (x.tokenizer || x.path.empty()) return x.tokenizer;
  const std::filesystem::path path = x.path;
  const bool folder = std::filesystem::is_directory(path);
  const auto has = [&](const char* file) { return std::filesystem::exists(path / file); };
  if (folder ? !has("tokenizer.json") && !has("source.spm") : !std::filesystem::exists(path)) return nullptr;
  return std::make_shared<const Tokenizer>(Model::load_tokenizer(path));
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

AttentionKind read_attention(const char* function, const std::string& name) {
  if (name == "self") return AttentionKind::self;
  if (name == "cross") return AttentionKind::cross;
  if (name == "encoder") return AttentionKind::encoder;
  throw Error(ErrorCode::bad_value, function, "attention is '" + name + "', expected 'self', 'cross' or 'encoder'");
}

Tensor Found::tensor(const char* field) const {
  const nb::object array = result.attr(field);
  return Array(function.c_str(), field, array).view().clone();
}

void bind_analysis(nb::module_& m, nb::class_<Loaded>& model) {
  nb::class_<Analysed>(m, "_Analysed")
      .def("__getstate__", &state_of)
      .def("__setstate__", [](Analysed& self, const nb::tuple& state) { new (&self) Analysed(analysed_from(state)); });
  bind_attribute(m, model);
  bind_lens(m, model);
  bind_ablate(m, model);
  bind_patch(m, model);
}

}  // namespace attend::python
