// Model.vary(), and how a Variants is looked at.
#include "analysis.h"
#include "attend/variants.h"

namespace attend::python {

namespace {

constexpr const char* variants_function = "Model.vary";

// One word of all texts, or a list with one of each.
std::string word_of(const char* name, nb::handle given, std::size_t text, std::size_t count) {
  if (given.is_none()) return "";
  if (nb::isinstance<nb::str>(given)) return text_of(given);
  const auto list = expect<nb::list>(variants_function, name, "a word, or a list with one of each text", given);
  if (nb::len(list) != count)
    throw Error(
        ErrorCode::bad_value, variants_function,
        std::string(name) + " has " + std::to_string(nb::len(list)) + " words for " + std::to_string(count) + " texts");
  const nb::object word = list[text];
  return word.is_none() ? "" : expect<std::string>(variants_function, name, "a word", word);
}

std::vector<VariantText> read_texts(nb::handle texts, nb::handle query, nb::handle words, nb::handle target,
                                    nb::handle other) {
  std::vector<std::string> all;
  if (nb::isinstance<nb::str>(texts)) {
    const std::string text = text_of(texts);
    all = {text};
    if (!words.is_none()) {
      const auto varied = expect<std::string>(variants_function, "words", "a text, as 'tired=wide,full'", words);
      all = call(variants_function, [&] { return varied_texts(text, varied); });
    }
  } else {
    if (!words.is_none())
      throw Error(ErrorCode::bad_value, variants_function, "words vary one text, and several are given");
    for (const nb::handle text : expect<nb::list>(variants_function, "texts", "a text or a list of texts", texts))
      all.push_back(expect<std::string>(variants_function, "texts", "a text or a list of texts", text));
  }
  std::vector<VariantText> out;
  for (std::size_t n = 0; n < all.size(); ++n)
    out.push_back({all[n], word_of("query", query, n, all.size()), word_of("target", target, n, all.size()),
                   word_of("other", other, n, all.size())});
  return out;
}

nb::object pair_of(const std::optional<Range>& tokens) {
  return tokens ? nb::object(nb::make_tuple(tokens->begin, tokens->end)) : nb::none();
}

nb::object vary_(const Loaded& self, nb::handle texts, nb::handle query, nb::handle words, nb::handle target,
                 nb::handle other, nb::handle progress) {
  const std::vector<VariantText> asked = read_texts(texts, query, words, target, other);
  (void)self.tokenizer(variants_function);
  const std::function<void(double)> told = progress_of(variants_function, progress);
  const Variants found = call(variants_function, [&] { return vary(self.model, asked, told); });
  nb::list of_texts, ids, of_words, queries, targets, others, weights;
  for (const VariantRow& each : found.rows) {
    nb::list own;
    for (const VariantWord& word : each.words) own.append(nb::make_tuple(word.word.c_str(), pair_of(word.tokens)));
    Tensor tokens({std::ssize(each.ids)}, DType::i64);
    std::copy(each.ids.begin(), each.ids.end(), tokens.data<std::int64_t>());
    of_texts.append(nb::str(each.text.data(), each.text.size())), ids.append(to_python({}, tokens)),
        of_words.append(own);
    queries.append(each.query), targets.append(pair_of(each.target)), others.append(pair_of(each.other));
    weights.append(to_python({}, each.weights));
  }
  return found_as("Variants", analysed(self, {}, {}), of_texts, ids, of_words, queries, targets, others, weights,
                  to_python({}, times_held(found)));
}

std::optional<Range> range_of(const char* method, const char* name, nb::handle given) {
  if (given.is_none()) return std::nullopt;
  const auto [begin, end] = read_two(method, name, "(begin, end) or None", given);
  return Range{begin, end};
}

struct VariantsLook {
  Variants x;

  VariantsLook(const VariantsLook&) = delete;  // a vector says that it can be copied, whatever it holds
  VariantsLook& operator=(const VariantsLook&) = delete;
  explicit VariantsLook(const Found& found) {
    const char* method = found.function.c_str();
    const auto list = [&](const char* name) {
      return expect<nb::list>(method, name, "a list with one of each text", found.result.attr(name));
    };
    const nb::list texts = list("texts"), ids = list("ids"), words = list("words"), query = list("query"),
                   target = list("target"), other = list("other"), weights = list("weights");
    for (const nb::list& each : {ids, words, query, target, other, weights})
      if (nb::len(each) != nb::len(texts))
        throw Error(ErrorCode::bad_shape, method,
                    "lists of " + std::to_string(nb::len(each)) + " and " + std::to_string(nb::len(texts)) +
                        " texts, expected as many");
    for (std::size_t n = 0; n < nb::len(texts); ++n) {
      VariantRow row{.text = expect<std::string>(method, "texts", "a list of texts", texts[n]),
                     .ids = list_of(read_integers(method, "ids", ids[n])),
                     .query = expect<std::int64_t>(method, "query", whole_number, query[n]),
                     .target = range_of(method, "target", target[n]),
                     .other = range_of(method, "other", other[n]),
                     .weights = Array(method, "weights", weights[n]).view().to(DType::f32)};
      for (const nb::handle word : expect<nb::list>(method, "words", "lists of (word, (begin, end))", words[n])) {
        const auto pair = expect<nb::tuple>(method, "words", "lists of (word, (begin, end))", word);
        if (nb::len(pair) != 2)
          throw Error(ErrorCode::bad_value, method, "words: expected lists of (word, (begin, end))");
        const auto [begin, end] = read_two(method, "words", "(begin, end)", pair[1]);
        row.words.push_back({expect<std::string>(method, "words", "a word", pair[0]), {begin, end}});
      }
      x.rows.push_back(std::move(row));
    }
  }
  Picture picture(const AnalysisOf& of, const Text& head) const {
    return head ? variants_picture(x, head_named(*head).head, of) : held_picture(x, of);
  }
  std::string csv(const AnalysisOf& of) const { return variants_csv(x, of); }
  std::string json() const { return to_json(x); }
};

nb::dict baselines_(nb::handle result) {
  const Found found{"Variants", "baselines", result};
  const VariantsLook look(found);
  const VariantBaselines by = call("Variants.baselines", [&] { return baselines(look.x); });
  nb::dict out;
  out["first"] = by.first, out["nearest"] = by.nearest, out["chance"] = by.chance;
  return out;
}

nb::list variant_words(nb::handle result, const std::string& head) {
  const Found found{"Variants", "looks_at", result};
  const VariantsLook look(found);
  const Head which = call(found.function.c_str(), [&] { return head_named(head).head; });
  nb::list out;
  for (const VariantRow& row : look.x.rows) {
    const std::optional<VariantWord> word = call(found.function.c_str(), [&] { return top_word(row, which); });
    out.append(word ? nb::object(nb::make_tuple(word->word.c_str(), given(row, which, word->tokens))) : nb::none());
  }
  return out;
}

constexpr const char* vary_doc =
    R"(What one row of every head gives to each token, in several texts: an attend.Variants.

texts: a list of texts; or one text, which words varies: "tired=wide,full" stands for the text and for the text with "wide" and with
"full" in the place of the first "tired".
query: the word whose row it is; its last token where it has several.
target, other: words of the text; the claim is that the head gives target more than other.

query, target and other apply to all texts, or are lists with one entry for each. A word that comes more than once means the first
one. held [L,H] counts the texts where the claim holds. Without other the claim is that target gets most of all words. Without
target it is that the word which gets most in the first text gets most again; in a text with as many words as the first, that the
word in its place does. progress: called with the share done.

For encoders and decoders. Raises ValueError for a word that is not in its text, and in a decoder for target and other after the
query, which does not see them.)";

void bind_variants(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<VariantsLook, Text>(m, "Variants", nb::arg("head").none());
  m.def("_variant_baselines", &baselines_, nb::arg("found"));
  m.def("_variant_words", &variant_words, nb::arg("found"), nb::arg("head"));
  model.def("vary", &vary_, nb::arg("texts"), nb::arg("query"), nb::arg("words") = nb::none(),
            nb::arg("target") = nb::none(), nb::arg("other") = nb::none(), nb::arg("progress") = nb::none(),
            nb::sig("def vary(self, texts: str | list[str], query: str | list[str], words: str | None = None, "
                    "target: str | list[str] | None = None, other: str | list[str] | None = None, "
                    "progress: Callable[[float], object] | None = None) -> attend.Variants"),
            vary_doc);
}

const AnalysisBinding variants_binding(bind_variants);

}  // namespace

}  // namespace attend::python
