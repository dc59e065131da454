// Model.composition().
#include "attend/composition.h"

#include "analysis.h"

namespace attend::python {

namespace {

nb::object composition_(const Loaded& self, bool encoder) {
  const Composition found = call("Model.composition", [&] { return composition(self.model, encoder); });
  return nb::module_::import_("attend._analysis")
      .attr("Composition")(to_python({}, found.q), to_python({}, found.k), to_python({}, found.v));
}

constexpr const char* composition_doc =
    R"(Which heads read what earlier heads write, by their weights alone (Elhage et al. 2021): an attend.Composition.

q, k and v are [L,H,L,H]: how much a head (layer, head) reads from an earlier head (layer, head) by its queries, keys or values; 0
where the other head is not in an earlier layer. k is |W_QK W_OV'| / (|W_QK| |W_OV'|) in Frobenius norms, where ' marks the earlier
head. q has W_QK transposed, and v has W_OV in the place of W_QK. Weights of norms are folded in; rotary positions and biases are
left out. encoder: take an encoder-decoder's encoder instead of its decoder.)";

void bind_composition(nb::module_&, nb::class_<Loaded>& model) {
  model.def("composition", &composition_, nb::arg("encoder") = false,
            nb::sig("def composition(self, encoder: bool = False) -> attend.Composition"), composition_doc);
}

const AnalysisBinding composition_binding(bind_composition);

}  // namespace

}  // namespace attend::python
