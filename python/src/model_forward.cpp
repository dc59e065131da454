// Model.forward(): of one text, of sequences that stand one after another, and of a list of texts.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "call.h"
#include "model.h"

namespace attend::python {

nb::object of_each(const char* forward_function, const char* name, nb::handle given, std::size_t n, std::size_t count,
                   bool many) {
  const bool list = nb::isinstance<nb::list>(given) || nb::isinstance<nb::tuple>(given);
  if (!list || (many && !read_several(given))) return nb::borrow(given);
  if (nb::len(given) != count)
    throw Error(ErrorCode::bad_value, forward_function,
                std::string(name) + " has " + std::to_string(nb::len(given)) + ", expected one for each of " +
                    std::to_string(count) + " texts");
  return given[n];
}

std::vector<std::vector<std::int64_t>> read_texts(const Loaded& self, const char* forward_function, const char* name,
                                                  nb::handle given, const std::optional<nb::list>& several) {
  std::vector<std::vector<std::int64_t>> ids;
  if (!several) ids.push_back(self.read_ids(forward_function, name, given));
  for (std::size_t n = 0; several && n < nb::len(*several); ++n)
    ids.push_back(self.read_ids(forward_function, (name + ("[" + std::to_string(n) + "]")).c_str(), (*several)[n]));
  return ids;
}

namespace {

constexpr const char* forward_function = "Model.forward";

// Lists of ids, one after another, and where each begins.
struct Sequences {
  std::vector<std::int64_t> ids, starts{0};

  void add(std::span<const std::int64_t> more) {
    ids.insert(ids.end(), more.begin(), more.end());
    starts.push_back(std::ssize(ids));
  }
};

nb::object forward_several(const Loaded& self, nb::handle ids, const nb::list& texts, nb::handle types,
                           nb::handle caches, nb::handle edits, nb::handle decoder_ids, nb::handle keep,
                           nb::handle observe) {
  const std::size_t count = nb::len(texts);
  Sequences text, decoder, of_types;
  for (const auto& each : read_texts(self, forward_function, "ids", ids, texts)) text.add(each);
  const bool decodes = !decoder_ids.is_none();
  for (std::size_t n = 0; n < count; ++n) {
    if (decodes)
      decoder.add(Loaded::read_decoder_ids(forward_function,
                                           of_each(forward_function, "decoder_ids", decoder_ids, n, count, true)));
    if (!types.is_none())
      of_types.add(
          list_of(read_integers(forward_function, "types", of_each(forward_function, "types", types, n, count, true))));
  }
  const Caches held(forward_function, caches);
  const std::vector<std::int64_t>& starts = decodes ? decoder.starts : text.starts;
  const Edits given(forward_function, edits, starts, text.starts);
  Watching watching(forward_function, self.model.info(), keep, observe);
  const ModelCall asked{
      .starts = text.starts,
      .types = of_types.ids,
      .caches = held.get(),
      .decoder_ids = decoder.ids,
      .decoder_starts = decodes ? std::span<const std::int64_t>(decoder.starts) : std::span<const std::int64_t>(),
      .recorder = nullptr,
      .edits = given.get(),
      .knockouts = given.knockouts(),
      .observe = watching.observer()};
  const nb::object hidden = to_python({}, call(forward_function, [&] { return self.model.forward(text.ids, asked); }));
  return watching.with_kept(hidden, starts, text.starts);
}

nb::object forward(const Loaded& self, nb::handle ids, nb::handle starts, nb::handle types, nb::handle caches,
                   nb::handle edits, nb::handle decoder_ids, nb::handle decoder_starts, nb::handle keep,
                   nb::handle observe) {
  if (const auto several = read_several(ids)) {
    if (!starts.is_none() || !decoder_starts.is_none())
      throw Error(ErrorCode::bad_value, forward_function,
                  "starts are for ids in one list, and there are several lists");
    return forward_several(self, ids, *several, types, caches, edits, decoder_ids, keep, observe);
  }
  const CallArguments given(self, forward_function, ids, starts, types, caches, edits, decoder_ids, decoder_starts);
  Watching watching(forward_function, self.model.info(), keep, observe);
  ModelCall asked = given.call();
  asked.observe = watching.observer();
  return watching.with_kept(
      to_python({}, call(forward_function, [&] { return self.model.forward(given.ids(), asked); })));
}

constexpr const char* forward_doc =
    R"(The last hidden states [N,E], after the last norm, for ids [N] or for a text that the model's tokenizer takes.

starts: [sequences + 1], where each of several sequences begins, and the end.
types: [N], BERT's token_type_ids; None: 0.
caches: for a decoder, a ModelCache for each sequence. It holds what came before these ids, and afterwards these ids too.
decoder_ids, decoder_starts: for an encoder-decoder, its decoder's text so far, which begins with info.start. The hidden states are
those of this text; encoder_states() gives those of ids. A cache keeps what the encoder made of ids, so ids are [] from the second
call on.
edits: changes on the way: attend.Edit sets something else at a place, and attend.Knockout hides keys from rows.
keep: places whose numbers are returned too, as (hidden, kept). ("z", 23) gives kept["z", 23], that layer's [N,H*Dv]; "mlp" gives
kept["mlp"], all layers [L,N,E]. All are float32; docs/why.md lists the places.
observe: called with each place's name, its layer and its numbers, as they come.

A list of texts, or of lists of ids, gives the list of their hidden states, in one pass. Each has the bits that it has alone. With keep
it gives (hidden, kept), where kept is a list of dicts. edits apply to all texts, with rows counted in each, or are a list of edits for
each text. types, caches and decoder_ids are lists with one entry for each.

Raises ValueError for ids outside the vocabulary, sequences that are too long, NaN in a result, and the like. Caches are then as they
were.)";

// With keep, what is kept comes too.
std::string forward_signature() {
  const std::string texts = "list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray]";
  const std::string keep = "Sequence[str | tuple[str, int]]", arrays = "numpy.ndarray",
                    kept = "dict[Any, numpy.ndarray]";
  const auto with = [](const std::string& ids, const std::string& of_ids, const std::string& edits,
                       const std::string& asked, const std::string& result) {
    return "def forward(self, ids: " + ids + ", starts: Ids | None = None, types: " + of_ids +
           " = None, caches: Sequence[ModelCache] | None = None, edits: " + edits + " = None, decoder_ids: " + of_ids +
           " = None, decoder_starts: Ids | None = None, " + asked +
           ", observe: Callable[[str, int, numpy.ndarray], object] | None = None) -> " + result;
  };
  const std::string edits = "Sequence[Edit | Knockout]", each = edits + " | Sequence[" + edits + "] | None";
  const auto of = [&](const std::string& ids, const std::string& of_ids, const std::string& own_edits,
                      const std::string& result, const std::string& with_kept) {
    return "@overload\n" + with(ids, of_ids, own_edits, "keep: None = None", result + ": ...\n") + "@overload\n" +
           with(ids, of_ids, own_edits, "*, keep: " + keep, with_kept + ": ...\n");
  };
  const std::string one = "tuple[" + arrays + ", " + kept + "]",
                    several = "tuple[list[" + arrays + "], list[" + kept + "]]";
  return of("str | Ids", "Ids | None", edits + " | None", arrays, one) +
         of(texts, "Sequence[Ids] | None", each, "list[" + arrays + "]", several) +
         with("str | Ids | Sequence[str | Ids]", "Ids | Sequence[Ids] | None", each, "keep: " + keep + " | None = None",
              arrays + " | " + one + " | list[" + arrays + "] | " + several);
}

}  // namespace

void bind_model_forward(nb::class_<Loaded>& model) {
  model.def("forward", &forward, nb::arg("ids"), nb::arg("starts") = nb::none(), nb::arg("types") = nb::none(),
            nb::arg("caches") = nb::none(), nb::arg("edits") = nb::none(), nb::arg("decoder_ids") = nb::none(),
            nb::arg("decoder_starts") = nb::none(), nb::arg("keep") = nb::none(), nb::arg("observe") = nb::none(),
            nb::sig(forward_signature().c_str()), forward_doc);
}

}  // namespace attend::python
