// Model.lens(), and how a Lens is looked at.
#include "analysis.h"
#include "attend/jacobian_lens.h"

namespace attend::python {

namespace {

nb::object lens_found(const Lens& found, Analysed of, const std::vector<std::int64_t>& positions) {
  for (const std::int64_t position : positions)
    of.positions.push_back(position < 0 ? position + std::ssize(of.ids) : position);
  return found_as("Lens", of, to_python({}, found.ids), to_python({}, found.log_probabilities),
                  to_python({}, found.rank));
}

nb::object lens_(const Loaded& self, nb::handle ids, nb::handle positions, std::int64_t top, nb::handle decoder_ids,
                 const JacobianLens* jacobian) {
  constexpr const char* function = "Model.lens";
  const std::optional<nb::list> several = read_several(ids);
  const std::size_t count = several ? nb::len(*several) : 1;
  const auto texts = read_texts(self, function, "ids", ids, several);
  std::vector<std::vector<std::int64_t>> decoder;
  std::vector<LensOptions> options;
  for (std::size_t n = 0; n < count; ++n) {
    const auto each = [&](const char* name, nb::handle of) {
      return several ? of_each(function, name, of, n, count, true) : nb::borrow(of);
    };
    decoder.push_back(Loaded::read_decoder_ids(function, each("decoder_ids", decoder_ids)));
    options.push_back({.positions = {}, .top = top, .jacobian = jacobian});
    if (const nb::object at = each("positions", positions); !at.is_none())
      options[n].positions = list_of(read_integers(function, "positions", at));
  }
  for (std::size_t n = 0; n < count; ++n) options[n].decoder_ids = decoder[n];
  const std::vector<Lens> found = call(function, [&] {
    if (several) return lens(self.model, texts, options);
    std::vector<Lens> one;
    one.push_back(lens(self.model, texts[0], options[0].positions, top, decoder[0], jacobian));
    return one;
  });
  nb::list all;
  for (std::size_t n = 0; n < count; ++n)
    all.append(lens_found(found[n], analysed(self, texts[n], decoder[n]), options[n].positions));
  return several ? results_of(all) : nb::object(all[0]);
}

constexpr const char* lens_doc =
    R"(What the layers think: the tokens that the stream would answer before each layer, and after the last one.

The stream is read by the model's own last norm and output layer. ids and log_probabilities are [L+1,P,top]. rank [L+1,P] is the
place, from 0, of the token that the model answers in the end.

positions: rows to read, rising; None: all.
decoder_ids: for an encoder-decoder, its decoder's text; the layers are the decoder's.
jacobian: an attend.JacobianLens, which first turns the streams between the first layer and the last into what they mean for the
last one.

A list of texts, or of lists of ids, gives attend.Results, a list of Lens, computed several texts at a time; positions apply to all
texts, or are a list of them for each. Raises ValueError for encoders.)";

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

void bind_lens(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<LensLook, std::int64_t>(m, "Lens", nb::arg("most"));
  model.def("lens", &lens_, nb::arg("ids"), nb::arg("positions") = nb::none(), nb::arg("top") = 5,
            nb::arg("decoder_ids") = nb::none(), nb::arg("jacobian").none() = nb::none(),
            nb::sig("@overload\n"
                    "def lens(self, ids: str | Ids, positions: Ids | None = None, top: int = 5, decoder_ids: Ids | "
                    "None = None, jacobian: JacobianLens | None = None) -> attend.Lens: ...\n"
                    "@overload\n"
                    "def lens(self, ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray], "
                    "positions: Ids | None | Sequence[Ids] = None, top: int = 5, decoder_ids: Ids | None | "
                    "Sequence[Ids] = None, jacobian: JacobianLens | None = None) -> attend.Results[attend.Lens]: ...\n"
                    "def lens(self, ids: str | Ids | Sequence[str | Ids], positions: Ids | None | Sequence[Ids] = "
                    "None, top: int = 5, decoder_ids: Ids | None | Sequence[Ids] = None, jacobian: JacobianLens | None "
                    "= None) -> attend.Lens | "
                    "attend.Results[attend.Lens]"),
            lens_doc);
}

const AnalysisBinding lens_binding(bind_lens);

}  // namespace

}  // namespace attend::python
