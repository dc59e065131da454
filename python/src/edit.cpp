// attend.Edit.
#include "attend/analysis.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <numeric>

#include <string>

#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

const char* z_of(AttentionKind attention) {
  return attention == AttentionKind::self ? "z" : attention == AttentionKind::cross ? "cross_z" : "encoder_z";
}

// What stands there instead: set, add or scale, of which one is given.
void read_change(GivenEdit& given, nb::handle set, nb::handle add, nb::handle scale) {
  Edit& edit = given.edit;
  const int count = int(!set.is_none()) + int(!add.is_none()) + int(!scale.is_none());
  if (count > 1)
    throw Error(ErrorCode::bad_value, "Edit", "set, add and scale: expected one of them, got " + std::to_string(count));
  if (nb::isinstance<nb::str>(set)) {
    edit.set = read_set("Edit", text_of(set), "'zero', 'mean' or an array");
  } else if (!set.is_none()) {
    edit.set = Edit::Set::values, given.values = nb::borrow(set);
  } else if (!add.is_none()) {
    edit.set = Edit::Set::add, given.values = nb::borrow(add);
  } else if (!scale.is_none()) {
    edit.set = Edit::Set::scale;
    if (!nb::try_cast(scale, edit.by)) given.values = nb::borrow(scale), edit.by = 1;
  }
}

std::string edit_describe(const GivenEdit& self) {
  constexpr const char* arrays[] = {"'zero'", "'mean'", "an array", "an array", "an array"};  // by Edit::Set
  const Edit& edit = self.edit;
  std::string out = "Edit(layer=" + std::to_string(edit.layer);
  if (edit.head) out += ", head=" + std::to_string(*edit.head);
  out += ", at='" + std::string(name_of(edit.at)) + "'";
  if (edit.unit) out += ", unit=" + std::to_string(*edit.unit);
  if (edit.rows) out += ", " + std::to_string(edit.rows->size()) + " rows";
  out += edit.set == Edit::Set::add ? ", add=" : edit.set == Edit::Set::scale ? ", scale=" : ", set=";
  if (edit.set == Edit::Set::scale && self.values.is_none()) return out + repr_of(nb::float_(edit.by)) + ")";
  return out + arrays[static_cast<int>(edit.set)] + ")";
}

std::string signature() {
  std::string places;
  for (const ModelPlace place : model_places())
    places += (places.empty() ? "'" : ", '") + std::string(name_of(place)) + "'";
  return "def __init__(self, layer: int | str, head: int | None = None, at: Literal[" + places +
         "] = 'z', rows: Ids | None = None, set: Array | Literal['zero', 'mean'] | None = None, add: Array | None = "
         "None, scale: float | Array | None = None, unit: int | None = None) -> None";
}

void edit_construct(GivenEdit* self, const nb::args& args, const nb::kwargs& keywords) {
  static const std::string expected = signature();
  const nb::list given = constructed_with("Edit", expected, args, keywords);
  const auto number = [&](std::size_t n, const char* name) -> std::optional<std::int64_t> {
    if (nb::object(given[n]).is_none()) return {};
    return expect<std::int64_t>("Edit", name, whole_number, given[n]);
  };
  GivenEdit made;
  made.edit.head = number(1, "head");
  std::string at = expect<std::string>("Edit", "at", "a text", given[2]);
  if (nb::isinstance<nb::str>(given[0])) {
    const std::string name = text_of(given[0]);
    const NamedHead named = call("Edit", [&] { return head_named(name); });
    if (made.edit.head)
      throw Error(ErrorCode::bad_value, "Edit", "head is given twice: " + text_of(given[0]) + " names one");
    made.edit.layer = named.head.first, made.edit.head = named.head.second;
    if (named.attention && at == "z") at = z_of(*named.attention);
  } else {
    made.edit.layer =
        expect<std::int64_t>("Edit", "layer", "a whole number, or a head's name such as '18.6'", given[0]);
  }
  made.edit.at = place_of("Edit", at);
  if (!nb::object(given[3]).is_none()) {
    made.rows = nb::borrow(given[3]);
    made.edit.rows = list_of(read_integers("Edit", "rows", made.rows));
  }
  read_change(made, given[4], given[5], given[6]);
  made.edit.unit = number(7, "unit");
  new (self) GivenEdit(std::move(made));
}

nb::tuple edit_reduced(const GivenEdit& self) {
  const Edit& x = self.edit;
  const auto number = [](const std::optional<std::int64_t>& of) { return of ? nb::object(nb::int_(*of)) : nb::none(); };
  nb::object set = nb::none(), add = nb::none(), scale = nb::none();
  if (x.set == Edit::Set::zero) set = nb::str("zero");
  if (x.set == Edit::Set::mean) set = nb::str("mean");
  if (x.set == Edit::Set::values) set = self.values;
  if (x.set == Edit::Set::add) add = self.values;
  if (x.set == Edit::Set::scale) scale = self.values.is_none() ? nb::object(nb::float_(x.by)) : self.values;
  return nb::make_tuple(nb::type<GivenEdit>(), nb::make_tuple(x.layer, number(x.head), std::string(name_of(x.at)),
                                                              self.rows, set, add, scale, number(x.unit)));
}

constexpr const char* edit_doc =
    R"(Put something else in the place of what a model's pass computes: for edits=[...] of Model.forward() and others.

layer: the layer's number, or for a head's place ("z", "q", "k", "v", ...) the head's name, such as "18.6", or "decoder.3.cross.6" in
an encoder-decoder. layer, head, unit and rows count from 0, or below 0 from the end.
at: the place, as docs/why.md lists them. "z" are the heads' outputs before the output projection: one head's [rows,Dv], or with head
None all side by side [rows,H*Dv]. "mlp_hidden" are the hidden units of the MLP [rows,F], or one of them with unit. "attention" and
"mlp" are what these add to the stream [rows,E]. "residual" is the stream before the layer [rows,E]; layer info.layers is after
the last one.
rows: rows of the call's ids; None: all, and in generate() each new token too.
set, add, scale: one of them, or none for set="zero". set is "zero", "mean" (over the edited rows of each sequence) or an array. add
is an array. scale is a number or an array. Arrays broadcast, so that [E] applies to every row. Adding 0 or multiplying by 1 keeps
the bits.

The call that gets the edit raises ValueError for a place that the model does not have, and for an array of another shape or with
NaN.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> cut = model.forward([1, 2, 3], edits=[attend.Edit(0, head=1), attend.Edit(1, at="mlp", rows=[-1], scale=0.5)])
>>> cut.shape, bool((cut == model.forward([1, 2, 3])).all())
((3, 16), False))";

}  // namespace

// Whose rows are those of the encoder's ids.
bool is_of_encoder(ModelPlace place) {
  return place >= ModelPlace::encoder_embeddings || place == ModelPlace::cross_k || place == ModelPlace::cross_v;
}

ModelPlace place_of(const char* function, const std::string& at) {
  std::string known;
  for (const ModelPlace place : model_places()) {
    if (name_of(place) == at) return place;
    known += (known.empty() ? "'" : ", '") + std::string(name_of(place)) + "'";
  }
  throw Error(ErrorCode::bad_value, function, "at is '" + at + "', expected one of " + known);
}

Edit::Set read_set(const char* function, const std::string& name, const char* expected) {
  if (name == "zero") return Edit::Set::zero;
  if (name == "mean") return Edit::Set::mean;
  throw Error(ErrorCode::bad_value, function, "set is '" + name + "', expected " + expected);
}

namespace {

// The text's rows that an edit is of, where they stand among those of all texts.
Edit of_text(Edit edit, const char* function, std::size_t text, std::span<const std::int64_t> starts) {
  const std::int64_t begin = starts[text], count = starts[text + 1] - begin;
  if (!edit.rows) {
    edit.rows.emplace(static_cast<std::size_t>(count));
    std::iota(edit.rows->begin(), edit.rows->end(), 0);
  }
  for (std::int64_t& row : *edit.rows) {
    if (row < -count || row >= count)
      throw Error(ErrorCode::bad_value, function,
                  "texts[" + std::to_string(text) + "]: an edit of row " + std::to_string(row) + ", expected 0 to " +
                      std::to_string(count - 1) + ", or " + std::to_string(-count) + " to -1 from the end");
    row += begin + (row < 0 ? count : 0);
  }
  return edit;
}

}  // namespace

Edits::Edits(const char* function, nb::handle edits) {
  add(function, edits);
}

Edits::Edits(const char* function, nb::handle edits, std::span<const std::int64_t> starts,
             std::span<const std::int64_t> encoder_starts) {
  const std::size_t count = starts.size() - 1;
  const bool own = read_several(edits).has_value();
  std::vector<Edit> all, of_this;
  for (std::size_t n = 0; n < count; ++n) {
    edits_.clear();
    if (own || n == 0) {
      add(function, of_each(function, "edits", edits, n, count, true));
      of_this.assign(edits_.begin(), edits_.end());
    }
    for (const Edit& edit : of_this)
      all.push_back(of_text(edit, function, n, is_of_encoder(edit.at) ? encoder_starts : starts));
  }
  if (own && !knockouts_.empty())
    throw Error(ErrorCode::bad_value, function,
                "edits: a Knockout applies to all texts, and here each text has a list of its own");
  edits_ = std::move(all);
}

void Edits::add(const char* function, nb::handle edits) {
  if (edits.is_none()) return;
  const nb::list given = read_list(function, "edits", "a list of Edit and Knockout", edits);
  for (const nb::handle each : given) {
    held_.append(each);
    const std::string place = "edits[" + std::to_string(edits_.size() + knockouts_.size()) + "]";
    if (GivenKnockout* knockout = nullptr; nb::try_cast(each, knockout) && knockout != nullptr) {
      knockouts_.push_back(knockout->knockout);
      continue;
    }
    const GivenEdit& of = read_instance<GivenEdit>(function, place, "an Edit or a Knockout", each);
    edits_.push_back(of.edit);
    if (!of.values.is_none())
      edits_.back().values = values_.emplace_back(function, "an edit's array", of.values).view();
  }
}

std::vector<Keep> read_keep(const char* function, const nb::list& given, const char* name) {
  std::vector<Keep> keep;
  for (const nb::handle each : given) {
    Keep& asked = keep.emplace_back();
    if (nb::isinstance<nb::str>(each)) {
      asked.at = place_of(function, text_of(each));
      continue;
    }
    std::int64_t layer = 0;
    const bool two = nb::isinstance<nb::tuple>(each) && nb::len(each) == 2;
    const nb::object place = two ? nb::object(each[0]) : nb::none();
    if (!nb::isinstance<nb::str>(place) || !nb::try_cast(nb::object(each[1]), layer))
      refuse(function, std::string(name) + "[" + std::to_string(keep.size() - 1) + "]", "\"mlp\" or (\"z\", layer)",
             each);
    asked.at = place_of(function, text_of(place)), asked.layer = layer;
  }
  return keep;
}

Watching::Watching(const char* function, const ModelInfo& info, nb::handle keep, nb::handle observe, const char* name)
    : function_(function) {
  if (!observe.is_none()) {
    if (!PyCallable_Check(observe.ptr()))
      throw nb::type_error((std::string(function) + ": observe: expected a function, got " + repr_of(observe)).c_str());
    observe_ = nb::borrow(observe);
  }
  if (keep.is_none()) return;
  keys_ = read_list(function, name, "a list of places, \"mlp\" or (\"z\", layer)", keep);
  keep_ = read_keep(function, keys_, name);
  keeper_.emplace(info, keep_);
}

Watching::Observer Watching::observer() {
  if (!keeper_ && !observe_.is_valid()) return {};
  return [this](ModelPlace place, std::int64_t layer, const View& values) {
    if (keeper_) keeper_->at(place, layer, values);
    if (!observe_.is_valid()) return;
    Tensor copy = values.to(DType::f32);
    const WithGil gil;
    const std::string_view name = name_of(place);
    observe_(nb::str(name.data(), name.size()), layer, to_python({}, copy));
  };
}

nb::object Watching::with_kept(nb::object result) {
  if (!keeper_) return result;
  nb::dict kept;
  std::vector<Tensor> arrays = call(function_, [&] { return keeper_->finish(); });
  for (std::size_t n = 0; n < arrays.size(); ++n) kept[keys_[n]] = to_python({}, std::move(arrays[n]));
  return nb::make_tuple(std::move(result), kept);
}

nb::object Watching::with_kept(const nb::object& result, std::span<const std::int64_t> starts,
                               std::span<const std::int64_t> encoder_starts) {
  const auto rows = [](const nb::object& array, std::span<const std::int64_t> of, std::size_t n) {
    const nb::none any;
    const nb::slice all(any, any, any);
    const nb::object some = nb::slice(nb::int_(of[n]), nb::int_(of[n + 1]), any);
    const bool of_layers = nb::cast<int>(array.attr("ndim")) == 3;
    return nb::object(array[of_layers ? nb::object(nb::make_tuple(all, some)) : some]);
  };
  const nb::object whole = with_kept(result);
  nb::list each, all;
  for (std::size_t n = 0; n + 1 < starts.size(); ++n) each.append(rows(result, starts, n));
  if (!keeper_) return each;
  const nb::dict arrays = nb::cast<nb::dict>(whole[1]);
  for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
    nb::dict kept;
    for (std::size_t k = 0; k < keep_.size(); ++k) {
      const nb::object key = keys_[k];
      kept[key] = rows(arrays[key], is_of_encoder(keep_[k].at) ? encoder_starts : starts, n);
    }
    all.append(kept);
  }
  return nb::make_tuple(each, all);
}

void bind_edit(nb::module_& m) {
  nb::class_<GivenEdit> edit(m, "Edit", edit_doc);
  bind_knockout(m);
  edit.def("__init__", &edit_construct, nb::sig(signature().c_str())).def("__repr__", &edit_describe);
  pickles_as(edit, &edit_reduced);
}

}  // namespace attend::python
