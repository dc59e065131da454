// Model.lens(), and how a Lens is looked at.
#include "analysis.h"

namespace attend::python {

namespace {

nb::object lens_(const Loaded& self, nb::handle ids, nb::handle positions, std::int64_t top, nb::handle decoder_ids) {
  constexpr const char* function = "Model.lens";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  std::vector<std::int64_t> at;
  if (!positions.is_none()) at = list_of(read_integers(function, "positions", positions));
  const Lens found = call(function, [&] { return lens(self.model, given, at, top, decoder); });
  Analysed of = analysed(self, given, decoder);
  for (const std::int64_t position : at)
    of.positions.push_back(position < 0 ? position + std::ssize(of.ids) : position);
  return found_as("Lens", of, to_python({}, found.ids), to_python({}, found.log_probabilities),
                  to_python({}, found.rank));
}

constexpr const char* lens_doc =
    R"(What the layers think: the tokens that the stream before each layer, and at last, would answer.

The model's own last norm and output layer read it. positions: rising; None: all. Gives ids and log_probabilities
[L+1,P,top], and rank [L+1,P], the place, from 0, of the token that the model answers at last.
decoder_ids: of an encoder-decoder, whose decoder's layers these are. ValueError for encoders.)";

struct LensLook {
  Lens x;
  std::vector<std::int64_t> positions;

  explicit LensLook(const Found& found)
      : x{found.tensor("ids"), found.tensor("log_probabilities"), found.tensor("rank")},
        positions(found.of.positions) {}
  Picture picture(const AnalysisOf& of, std::int64_t most) const { return lens_picture(x, positions, of, most); }
  std::string csv(const AnalysisOf& of) const { return lens_csv(x, positions, of); }
  std::string json() const { return to_json(x, positions); }
};

}  // namespace

void bind_lens(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<LensLook, std::int64_t>(m, "Lens", nb::arg("most"));
  model.def(
      "lens", &lens_, nb::arg("ids"), nb::arg("positions") = nb::none(), nb::arg("top") = 5,
      nb::arg("decoder_ids") = nb::none(),
      nb::sig("def lens(self, ids: str | Ids, positions: Ids | None = None, top: int = 5, decoder_ids: Ids | None "
              "= None) -> attend.Lens"),
      lens_doc);
}

}  // namespace attend::python
