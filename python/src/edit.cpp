// attend.Edit.
#include "attend/analysis.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

ModelPlace place_of(const std::string& at) {
  for (int n = 0; n <= static_cast<int>(ModelPlace::encoder_mlp); ++n)
    if (const auto place = static_cast<ModelPlace>(n); name_of(place) == at) return place;
  throw Error(ErrorCode::bad_value, "Edit",
              "at is '" + at +
                  "', expected 'residual', 'z', 'attention' or 'mlp'; of an encoder-decoder also 'cross_z', "
                  "'cross_attention', or 'encoder_' and one of the first four");
}

const char* z_of(AttentionKind attention) {
  return attention == AttentionKind::self ? "z" : attention == AttentionKind::cross ? "cross_z" : "encoder_z";
}

Edit::Set set_of(nb::handle set) {
  return nb::isinstance<nb::str>(set) ? read_set("Edit", text_of(set), "'zero', 'mean' or an array")
                                      : Edit::Set::values;
}

GivenEdit make(std::int64_t layer, std::optional<std::int64_t> head, const std::string& at, nb::handle rows,
               const nb::object& set) {
  GivenEdit given{.edit = {.layer = layer, .at = place_of(at), .head = head, .set = set_of(set)}, .set = set};
  given.rows = rows.is_none() ? nb::object(nb::none()) : nb::borrow(rows);
  if (!rows.is_none()) given.edit.rows = list_of(read_integers("Edit", "rows", rows));
  return given;
}

std::string describe(const GivenEdit& self) {
  const Edit& edit = self.edit;
  std::string out = "Edit(layer=" + std::to_string(edit.layer);
  if (edit.head) out += ", head=" + std::to_string(*edit.head);
  out += ", at='" + std::string(name_of(edit.at)) + "'";
  if (edit.rows) out += ", " + std::to_string(edit.rows->size()) + " rows";
  return out + ", set=" + (edit.set == Edit::Set::values ? "an array" : repr_of(self.set)) + ")";
}

constexpr const char* signature =
    "def __init__(self, layer: int | str, head: int | None = None, at: Literal['z', 'attention', 'mlp', 'residual', "
    "'cross_z', "
    "'cross_attention', 'encoder_residual', 'encoder_z', 'encoder_attention', 'encoder_mlp'] = 'z', rows: Ids | None = "
    "None, set: Array | Literal['zero', 'mean'] = 'zero') -> None";

void construct(GivenEdit* self, const nb::args& args, const nb::kwargs& keywords) {
  const nb::list given = constructed_with("Edit", signature, args, keywords);
  std::optional<std::int64_t> head;
  if (!nb::object(given[1]).is_none()) head = expect<std::int64_t>("Edit", "head", whole_number, given[1]);
  std::string at = expect<std::string>("Edit", "at", "a text", given[2]);
  std::int64_t layer = 0;
  if (nb::isinstance<nb::str>(given[0])) {
    const std::string name = text_of(given[0]);
    const NamedHead named = call("Edit", [&] { return head_named(name); });
    if (head) throw Error(ErrorCode::bad_value, "Edit", "head is given twice: " + text_of(given[0]) + " names one");
    layer = named.head.first, head = named.head.second;
    if (named.attention && at == "z") at = z_of(*named.attention);
  } else {
    layer = expect<std::int64_t>("Edit", "layer", "a whole number, or a head's name such as '18.6'", given[0]);
  }
  new (self) GivenEdit(make(layer, head, at, given[3], given[4]));
}

constexpr const char* doc =
    R"(Something else where a model's pass computed one thing: edits=[...] of Model.forward() and others.

layer counts from 0, from the end where it is below 0, and so do head and rows; or it is a head's name, "18.6", of an
encoder-decoder "decoder.3.cross.6". at: "z", the heads' outputs before the output projection, of one head [rows,Dv] or, with head None, of
all side by side [rows,H*Dv]; "attention" or "mlp", what the layer's attention or MLP adds to the stream [rows,E]; "residual",
the stream before the layer, with layer info.layers after all [rows,E]. An encoder-decoder has also "cross_z" and
"cross_attention", and its encoder "encoder_residual", "encoder_z", "encoder_attention" and "encoder_mlp". rows: of the call's ids, rising; None: all. set: "zero"; "mean", over the rows
edited of each sequence; or an array with a row for each row.

A place that the model does not have, and an array of another shape, are a ValueError of the call that it is given to.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> cut = model.forward([1, 2, 3], edits=[attend.Edit(0, head=1), attend.Edit(1, at="mlp", rows=[-1], set="mean")])
>>> cut.shape, bool((cut == model.forward([1, 2, 3])).all())
((3, 16), False))";

}  // namespace

Edit::Set read_set(const char* function, const std::string& name, const char* expected) {
  if (name == "zero") return Edit::Set::zero;
  if (name == "mean") return Edit::Set::mean;
  throw Error(ErrorCode::bad_value, function, "set is '" + name + "', expected " + expected);
}

Edits::Edits(const char* function, nb::handle edits) {
  if (edits.is_none()) return;
  held_ = read_list(function, "edits", "a list of Edit", edits);
  for (const nb::handle each : held_) {
    const std::string place = "edits[" + std::to_string(edits_.size()) + "]";
    const GivenEdit& given = read_instance<GivenEdit>(function, place, "an Edit", each);
    edits_.push_back(given.edit);
    if (given.edit.set == Edit::Set::values)
      edits_.back().values = values_.emplace_back(function, "an edit's set", given.set).view();
  }
}

void bind_edit(nb::module_& m) {
  nb::class_<GivenEdit> edit(m, "Edit", doc);
  edit.def("__init__", &construct, nb::sig(signature)).def("__repr__", &describe);
  pickles_as(edit, [](const GivenEdit& self) {
    const Edit& x = self.edit;
    const nb::object head = x.head ? nb::object(nb::int_(*x.head)) : nb::none();
    return nb::make_tuple(nb::type<GivenEdit>(),
                          nb::make_tuple(x.layer, head, std::string(name_of(x.at)), self.rows, self.set));
  });
}

}  // namespace attend::python
