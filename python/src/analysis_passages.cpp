// Model.passages(), and how a Passages is looked at.
#include "analysis.h"
#include "attend/passages.h"
#include "gradient.h"

namespace attend::python {

namespace {

// "paragraph" or "line" of a text, {name: (begin, end)}, or [(begin, end), ...].
std::vector<Range> read_passages(const char* passages_function, const Loaded& self, nb::handle spans, nb::handle text,
                                 std::int64_t count, std::vector<std::string>& names) {
  if (nb::isinstance<nb::str>(spans)) {
    const std::string by = nb::cast<std::string>(spans);
    if (by != "paragraph" && by != "line")
      throw Error(ErrorCode::bad_value, passages_function,
                  "spans is '" + by + "', expected 'paragraph', 'line', a dict or a list of (begin, end)");
    if (!nb::isinstance<nb::str>(text))
      throw Error(ErrorCode::bad_value, passages_function,
                  "spans is '" + by + "', which is of a text, and ids are given");
    const std::string of = text_of(text);
    return call(passages_function, [&] {
      return passages_of(of, encode(self.model, of), by == "line" ? PassageBy::line : PassageBy::paragraph);
    });
  }
  if (nb::isinstance<nb::dict>(spans)) return read_spans(passages_function, "spans", spans, count, names);
  nb::dict numbered;
  for (const nb::handle span : expect<nb::list>(passages_function, "spans", "a list of (begin, end)", spans))
    numbered[nb::str(std::to_string(nb::len(numbered)).c_str())] = span;
  std::vector<std::string> numbers;
  return read_spans(passages_function, "spans", numbered, count, numbers);
}

// What is asked of the text: of an answer the log-probability of its tokens, which come after all that was given.
struct PassagesQuestion {
  PassagesQuestion(const char* passages_function, const Loaded& self, nb::handle given_ids, nb::handle given_answer,
                   nb::handle token, nb::handle against, nb::handle position, nb::handle of, nb::handle decoder_ids)
      : ids(self.read_ids(passages_function, "ids", given_ids)),
        decoder(Loaded::read_decoder_ids(passages_function, decoder_ids)),
        tokens(std::ssize(ids)),
        number(passages_function, self, of, token, against) {
    number.say(options);
    options.position = expect<std::int64_t>(passages_function, "position", whole_number, position);
    if (given_answer.is_none()) return;
    if (!token.is_none() || !against.is_none() || !of.is_none() || options.position != -1)
      throw Error(ErrorCode::bad_value, passages_function,
                  "answer says what the number is: token, against, of and position can't be given beside it");
    if (nb::isinstance<nb::str>(given_answer)) {
      const Tokenizer& own = self.tokenizer(passages_function);
      const std::string text = text_of(given_answer);
      answer = call(passages_function, [&] { return own.encode(text, false).ids; });
    } else {
      answer = list_of(read_integers(passages_function, "answer", given_answer));
    }
    std::vector<std::int64_t>& before = self.model.info().encoder_decoder() ? decoder : ids;
    options.of = GradientOf::log_probability;
    options.tokens = answer;
    options.position = std::ssize(before) - 1;
    before.insert(before.end(), answer.begin(), answer.end());
  }
  PassagesQuestion(const PassagesQuestion&) = delete;
  PassagesQuestion& operator=(const PassagesQuestion&) = delete;

  std::vector<std::int64_t> ids, decoder, answer = {};
  std::int64_t tokens;  // of the text, before an answer
  Number number;
  GradientOptions options = {};
};

nb::list list_of_spans(const std::vector<Range>& spans) {
  nb::list all;
  for (const Range& span : spans) all.append(nb::make_tuple(span.begin, span.end));
  return all;
}

constexpr const char* passages_function = "Model.passages";

nb::object of_one(const Loaded& self, const PassagesQuestion& question, nb::handle text, nb::handle spans,
                  nb::handle hide, nb::handle types, nb::handle memory, const std::function<void(double)>& progress) {
  std::vector<std::int64_t> of_types;
  if (!types.is_none()) of_types = list_of(read_integers(passages_function, "types", types));
  PassagesOptions options{.number = question.options};
  std::vector<std::string> names;
  options.spans = read_passages(passages_function, self, spans, text, question.tokens, names);
  options.hide = expect<std::int64_t>(passages_function, "hide", whole_number, hide);
  options.number.types = of_types, options.number.decoder_ids = question.decoder;
  if (!memory.is_none())
    options.number.memory = expect<std::int64_t>(passages_function, "memory", "a number of bytes or None", memory);
  options.progress = progress;
  const Passages found = call(passages_function, [&] { return passages(self.model, question.ids, options); });
  Analysed context = analysed(self, question.ids, question.decoder);
  context.token = found.token, context.against = found.against, context.names = std::move(names);
  Tensor hidden({std::ssize(found.hidden)}, DType::i64);
  std::copy(found.hidden.begin(), found.hidden.end(), hidden.data<std::int64_t>());
  return found_as("Passages", context, to_python({}, found.estimated), to_python({}, hidden),
                  to_python({}, found.measured), list_of_spans(found.spans), found.value);
}

nb::object passages_(const Loaded& self, nb::handle ids, nb::handle spans, nb::handle answer, nb::handle token,
                     nb::handle against, nb::handle position, nb::handle of, nb::handle hide, nb::handle types,
                     nb::handle decoder_ids, nb::handle memory, nb::handle progress) {
  return of_texts(passages_function, ids, progress, [&](const auto& each, const nb::object& text, const auto& told) {
    const PassagesQuestion question(passages_function, self, text, each("answer", answer), each("token", token),
                                    each("against", against), each("position", position), of,
                                    each("decoder_ids", decoder_ids, true));
    return of_one(self, question, text, spans, hide, each("types", types, true), memory, told);
  });
}

constexpr const char* passages_doc =
    R"(Which passages of a text made the model answer so: an attend.Passages.

What a passage gave is the number less what the number becomes when no row after the passage sees the passage's keys, in any
layer. estimated has this for every passage, from one pass forward and one backward. The `hide` passages with the largest
estimates are then really hidden, with a pass for each, and measured has what they gave. An estimate may be far from the truth.

spans: "paragraph" (empty lines separate paragraphs) or "line", {"Paris": (0, 12), "Rome": (12, 30)}, or a list of (begin, end), in
tokens.
answer: what comes after the text, " Paris" or its ids; its log-probability is the number. Without answer, token, against,
position and of say the number, as for gradient().
types, decoder_ids, memory: as for gradient(). progress: called with the share done.

In an encoder, no other row sees a hidden passage. In an encoder-decoder, ids are the encoder's text, and the decoder's rows do not
see the passage either. A list of texts gives attend.Results, a list of Passages; answer, token, against, position, types and
decoder_ids apply to all texts, or are lists with one entry for each. Raises ValueError for what gradient() refuses and for spans
outside the text.)";

struct PassagesLook {
  Passages x;

  explicit PassagesLook(const Found& found) {
    const auto field = [&](const char* name) { return found.result.attr(name); };
    const char* method = found.function.c_str();
    x.value = expect<double>(method, "value", "a number", field("value"));
    x.estimated = found.tensor("estimated");
    x.hidden = list_of(read_integers(method, "hidden", field("hidden")));
    x.measured = found.tensor("measured");
    for (const nb::handle span : expect<nb::list>(method, "spans", "a list of (begin, end)", field("spans"))) {
      const auto [begin, end] = read_two(method, "spans", "(begin, end)", span);
      x.spans.push_back({begin, end});
    }
    x.token = found.of.token, x.against = found.of.against;
  }
  Picture picture(const AnalysisOf& of) const { return passages_picture(x, of); }
  std::string csv(const AnalysisOf& of) const { return passages_csv(x, of); }
  std::string json() const { return to_json(x); }
};

void bind_passages(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<PassagesLook>(m, "Passages");
  model.def(
      "passages", &passages_, nb::arg("ids"), nb::arg("spans") = "paragraph", nb::arg("answer") = nb::none(),
      nb::arg("token") = nb::none(), nb::arg("against") = nb::none(), nb::arg("position") = -1,
      nb::arg("of") = nb::none(), nb::arg("hide") = 5, nb::arg("types") = nb::none(),
      nb::arg("decoder_ids") = nb::none(), nb::arg("memory") = nb::none(), nb::arg("progress") = nb::none(),
      nb::sig("@overload\n"
              "def passages(self, ids: str | Ids, spans: Literal['paragraph', 'line'] | dict[str, int | tuple[int, "
              "int]] | list[tuple[int, int]] = 'paragraph', answer: str | Ids | None = None, token: int | str | Ids"
              " | None = None, against: int | str | None = None, position: int = -1, of: str | Array | None = None,"
              " hide: int = 5, types: Ids | None = None, decoder_ids: Ids | None = None, memory: int | None = None,"
              " progress: Callable[[float], object] | None = None) -> attend.Passages"
              ": ...\n"
              "@overload\n"
              "def passages(self, ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray], "
              "spans: Literal['paragraph', 'line'] | dict[str, int | tuple[int, int]] | list[tuple[int, int]] = "
              "'paragraph', answer: str | None | Sequence[str | Ids] = None, token: int | str | None | Sequence[int"
              " | str | None] = None, against: int | str | None | Sequence[int | str | None] = None, position: int "
              "| Sequence[int] = -1, of: str | Array | None = None, hide: int = 5, types: Sequence[Ids] | None = "
              "None, decoder_ids: Ids | None | Sequence[Ids] = None, memory: int | None = None, progress: "
              "Callable[[float], object] | None = None) -> attend.Results[attend.Passages]"
              ": ...\n"
              "def passages(self, ids: str | Ids | Sequence[str | Ids], spans: Literal['paragraph', 'line'] | "
              "dict[str, int | tuple[int, int]] | list[tuple[int, int]] = 'paragraph', answer: str | Ids | None | "
              "Sequence[str | Ids] = None, token: int | str | Ids | None | Sequence[int | str | None] = None, "
              "against: int | str | None | Sequence[int | str | None] = None, position: int | Sequence[int] = -1, "
              "of: str | Array | None = None, hide: int = 5, types: Ids | Sequence[Ids] | None = None, decoder_ids:"
              " Ids | None | Sequence[Ids] = None, memory: int | None = None, progress: Callable[[float], object] |"
              " None = None) -> attend.Passages | attend.Results[attend.Passages]"),
      passages_doc);
}

const AnalysisBinding passages_binding(bind_passages);

}  // namespace

}  // namespace attend::python
