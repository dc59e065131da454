// attend.Knockout.
#include <nanobind/stl/string.h>

#include <string>

#include "analysis.h"
#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr const char* knockout_signature =
    "def __init__(self, keys: Ids, rows: Ids | None = None, layer: int | str | None = None, head: int | None = None, "
    "attention: Literal['self', 'cross', 'encoder'] = 'self') -> None";

void knockout_construct(GivenKnockout* self, const nb::args& args, const nb::kwargs& keywords) {
  constexpr const char* function = "Knockout";
  const nb::list given = constructed_with(function, knockout_signature, args, keywords);
  GivenKnockout made;
  Knockout& x = made.knockout;
  made.keys = nb::borrow(given[0]), made.rows = nb::borrow(given[1]);
  x.keys = list_of(read_integers(function, "keys", made.keys));
  if (!made.rows.is_none()) x.rows = list_of(read_integers(function, "rows", made.rows));
  const nb::object layer = given[2], head = given[3];
  if (!head.is_none()) x.head = expect<std::int64_t>(function, "head", whole_number, head);
  x.attention = read_attention(function, expect<std::string>(function, "attention", "a text", given[4]));
  if (nb::isinstance<nb::str>(layer)) {
    const std::string name = text_of(layer);
    const NamedHead named = call(function, [&] { return head_named(name); });
    if (x.head) throw Error(ErrorCode::bad_value, function, "head is given twice: " + name + " names one");
    x.layer = named.head.first, x.head = named.head.second;
    if (named.attention) x.attention = *named.attention;
  } else if (!layer.is_none()) {
    x.layer = expect<std::int64_t>(function, "layer", "a whole number, or a head's name such as '18.6'", layer);
  }
  new (self) GivenKnockout(std::move(made));
}

const char* name_of(AttentionKind attention) {
  constexpr const char* names[] = {"self", "cross", "encoder"};
  return names[static_cast<int>(attention)];
}

nb::object or_none(const std::optional<std::int64_t>& number) {
  return number ? nb::object(nb::int_(*number)) : nb::none();
}

std::string knockout_describe(const GivenKnockout& self) {
  const Knockout& x = self.knockout;
  std::string out = "Knockout(" + std::to_string(x.keys.size()) + " keys";
  if (x.rows) out += ", " + std::to_string(x.rows->size()) + " rows";
  if (x.layer) out += ", layer=" + std::to_string(*x.layer);
  if (x.head) out += ", head=" + std::to_string(*x.head);
  if (x.attention != AttentionKind::self) out += std::string(", attention='") + name_of(x.attention) + "'";
  return out + ")";
}

constexpr const char* knockout_doc =
    R"(Rows of attention that may not see some keys, for edits=[...] of Model.forward() and others (Geva et al. 2023).

keys, rows: positions in the sequence, below 0 from the end. rows None: all, also those that generate() adds.
layer, head: as in attend.Edit; None: all.
attention: "self"; in an encoder-decoder also "cross", where rows are the decoder's and keys the encoder's, or "encoder".

The softmax is over the other keys, with the same bits as attend.attention() gives with that mask. No matrix of all pairs is made. A
row that sees no key gets zeros.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> blind = model.forward([1, 2, 3], edits=[attend.Knockout(keys=[0], rows=[-1])])  # the last token can't read the first
>>> plain = model.forward([1, 2, 3])
>>> bool((blind[:2] == plain[:2]).all()), bool((blind[2] == plain[2]).all())
(True, False))";

}  // namespace

void bind_knockout(nb::module_& m) {
  nb::class_<GivenKnockout> knockout(m, "Knockout", knockout_doc);
  knockout.def("__init__", &knockout_construct, nb::sig(knockout_signature)).def("__repr__", &knockout_describe);
  pickles_as(knockout, [](const GivenKnockout& self) {
    const Knockout& x = self.knockout;
    return nb::make_tuple(
        nb::type<GivenKnockout>(),
        nb::make_tuple(self.keys, self.rows, or_none(x.layer), or_none(x.head), std::string(name_of(x.attention))));
  });
}

}  // namespace attend::python
