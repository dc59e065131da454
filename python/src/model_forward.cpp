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
      throw Error(ErrorCode::bad_value, forward_function, "starts are of ids in one list, and there are several lists");
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
    R"(ids [N], or a text that the model's tokenizer takes, to the last hidden states [N,E], after
the last norm.

starts: [sequences + 1], where each of several sequences begins, and the end. types: [N], BERT's token_type_ids; None: 0.
caches: of a decoder, a ModelCache for each sequence: what came before it, and now it too. decoder_ids: of an
encoder-decoder, its decoder's text so far, which begins with info.start: the hidden states are this text's, and
encoder_states() has those of ids; decoder_starts as starts. A cache keeps what the encoder made of ids, which are [] from the second call on. edits: what is set to
something else on the way (attend.Edit), and rows that may not see keys (attend.Knockout).

keep: what is computed on the way and given too, as (hidden, kept): of ("z", 23) kept["z", 23] is that layer's [N,H*Dv], of
"mlp" kept["mlp"] is that of all layers [L,N,E], float32; docs/why.md lists the places. observe is called with each place's
name, its layer and its numbers, as they come. If it raises ValueError (ids
outside the vocabulary, sequences that are too long, NaN in a result, ...), caches are as they were.

Of a list of texts, or of lists of ids, the list of their hidden states, in one pass; each has the bits that it has alone. With keep
(hidden, kept), a list of dicts. edits are of all texts, their rows counted in each, or a list of edits for each; types, caches and
decoder_ids are lists with one for each.)";

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
