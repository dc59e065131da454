// attend.Model.classify(), rank(), tag(), fill() and task_logits().
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attend/tasks.h"
#include "call.h"
#include "model.h"
#include "progress.h"
#include "text.h"
#include "texts.h"

namespace attend::python {

namespace {

nb::object task_made(const char* name) {
  return nb::module_::import_("attend._tasks").attr(name);
}

// A text, or a pair in a tuple; or a list of these.
struct GivenTexts {
  std::vector<std::pair<std::string, std::optional<std::string>>> held;
  std::vector<TaskText> texts;

  GivenTexts(const char* function, nb::handle given) {
    if (nb::isinstance<nb::str>(given) || is_pair(given)) {
      add(function, "texts", given);
    } else {
      std::size_t n = 0;
      for (const nb::handle each : read_all(function, "texts", given, expected))
        add(function, "texts[" + std::to_string(n++) + "]", each);
    }
    for (const auto& [text, second] : held) texts.push_back({text, second});
  }

 private:
  static constexpr const char* expected = "a text, a pair of texts (a tuple of two), or a list of these";

  static bool is_pair(nb::handle given) { return nb::isinstance<nb::tuple>(given) && nb::len(given) == 2; }
  void add(const char* function, const std::string& place, nb::handle given) {
    if (nb::isinstance<nb::str>(given)) {
      held.emplace_back(read_text(function, place, given), std::nullopt);
      return;
    }
    if (!is_pair(given) && !(nb::isinstance<nb::list>(given) && nb::len(given) == 2))
      refuse(function, place, "a text, or a pair of texts", given);
    held.emplace_back(read_text(function, place + "[0]", given[0]), read_text(function, place + "[1]", given[1]));
  }
};

template <class Of>
Of read_named(const char* function, const char* name, nb::handle given, std::span<const Of> all) {
  std::string names, said = nb::isinstance<nb::str>(given) ? text_of(given) : "";
  for (const Of each : all) {
    if (said == name_of(each)) return each;
    names += (names.empty() ? "'" : ", '") + std::string(name_of(each)) + "'";
  }
  if (said.empty()) refuse(function, name, names.c_str(), given);
  throw Error(ErrorCode::bad_value, function, std::string(name) + " is " + repr_of(given) + ", expected " + names);
}

std::optional<ScoreFunction> read_function(const char* function, nb::handle given) {
  if (given.is_none()) return std::nullopt;
  return read_named<ScoreFunction>(function, "function", given, score_functions());
}

std::optional<std::int64_t> read_count(const char* function, const char* name, nb::handle given) {
  if (given.is_none()) return std::nullopt;
  return expect<std::int64_t>(function, name, whole_number, given);
}

nb::tuple labels_of(const Loaded& self) {
  nb::list labels;
  for (const std::string& each : self.model.info().labels) labels.append(nb::str(each.c_str(), each.size()));
  return nb::tuple(labels);
}

nb::object classify_(const Loaded& self, nb::handle texts, nb::handle function, nb::handle max_tokens, bool truncate,
                     nb::handle progress) {
  constexpr const char* name = "Model.classify";
  const GivenTexts given(name, texts);
  ClassifyOptions options;
  options.function = read_function(name, function);
  options.max_tokens = read_count(name, "max_tokens", max_tokens), options.truncate = truncate;
  const Shown shown(name, progress, given.texts.size());
  options.progress = shown.tell();
  Classification found = call(name, [&] { return classify(self.model, given.texts, options); });
  return task_made("Classification")(labels_of(self), to_python({}, std::move(found.logits)),
                                     to_python({}, std::move(found.scores)), text_object(name_of(found.function)),
                                     found.cut);
}

nb::object rank_(const Loaded& self, nb::handle query, nb::handle passages, nb::handle count, nb::handle function,
                 nb::handle prompt, nb::handle max_tokens, nb::handle progress) {
  constexpr const char* name = "Model.rank";
  const std::string asked = read_text(name, "query", query);
  const std::vector<std::string> given = read_list_of_texts(name, "passages", passages);
  RankOptions options;
  options.function = read_function(name, function);
  options.count = read_count(name, "count", count), options.max_tokens = read_count(name, "max_tokens", max_tokens);
  if (!prompt.is_none()) options.prompt = read_text(name, "prompt", prompt);
  const Shown shown(name, progress, given.size());
  options.progress = shown.tell();
  const Ranking found = call(name, [&] { return rank(self.model, asked, given, options); });
  const nb::object ranked = task_made("Ranked");
  nb::list all;
  for (const Ranked& each : found.passages) {
    const std::string& text = given[static_cast<std::size_t>(each.passage)];
    all.append(ranked(each.passage, each.score, nb::str(text.c_str(), text.size())));
  }
  return all;
}

nb::object python_tagged(const Loaded& self, std::string_view text, Tagged found) {
  const nb::object tag_class = task_made("Tag");
  nb::list tags;
  for (const Tag& each : found.tags) {
    const auto begin = static_cast<std::size_t>(each.span.begin),
               size = static_cast<std::size_t>(each.span.end) - begin;
    const std::int64_t start = characters(text.substr(0, begin));
    const std::string_view span = text.substr(begin, size);
    tags.append(tag_class(text_object(each.label), each.score, start, start + characters(span), text_object(span)));
  }
  return task_made("Tagged")(tags, nb::cast(std::move(found.tokens)), to_python({}, std::move(found.scores)),
                             labels_of(self), found.cut);
}

nb::object tag_(const Loaded& self, nb::handle texts, nb::handle aggregation, nb::handle without, nb::handle max_tokens,
                bool truncate, nb::handle progress) {
  constexpr const char* name = "Model.tag";
  const auto [given, single] = read_text_or_texts(name, "texts", texts);
  TagOptions options;
  options.aggregation = read_named<Aggregation>(name, "aggregation", aggregation, aggregations());
  options.without = read_list_of_texts(name, "without", without);
  options.max_tokens = read_count(name, "max_tokens", max_tokens), options.truncate = truncate;
  const Shown shown(name, progress, given.size());
  options.progress = shown.tell();
  std::vector<Tagged> found = call(name, [&] { return tag(self.model, given, options); });
  nb::list all;
  for (std::size_t n = 0; n < given.size(); ++n) all.append(python_tagged(self, given[n], std::move(found[n])));
  return single ? nb::object(all[0]) : nb::object(all);
}

nb::object fill_(const Loaded& self, nb::handle text, nb::handle count) {
  constexpr const char* name = "Model.fill";
  const std::string given = read_text(name, "text", text);
  const auto most = expect<std::int64_t>(name, "count", whole_number, count);
  const auto found = call(name, [&] { return fill(self.model, given, most); });
  const nb::object filling = task_made("Filling");
  nb::list masks;
  for (const std::vector<Filling>& each : found) {
    nb::list words;
    for (const Filling& word : each)
      words.append(filling(text_object(word.token), word.probability, word.id, text_object(word.text)));
    masks.append(words);
  }
  return masks;
}

nb::object task_logits_(const Loaded& self, nb::handle ids, nb::handle starts, nb::handle types, nb::handle edits) {
  constexpr const char* name = "Model.task_logits";
  const CallArguments call_of(self, name, ids, starts, types, nb::none(), edits);
  return to_python({}, call(name, [&] { return task_logits(self.model, call_of.ids(), call_of.call()); }));
}

constexpr const char* classify_doc =
    R"(Classify texts or pairs of texts: an attend.Classification with scores and logits [N,labels].

For a model with a head for sequence classification (info.task is "classify"; its labels are info.labels).
texts: a text, a pair in a tuple, or a list of these.
function: "softmax", "sigmoid" or "none"; None: as in Transformers' pipeline, by problem_type in config.json.
max_tokens: cut longer texts there; None: as the folder says. In a pair, the longer text is cut first.
truncate: False raises ValueError for longer texts.
progress: True shows a bar (tqdm's if it is installed); a function is called with the share done.

    model = attend.Model.load("distilbert-sst2")
    model.classify(["a fine film", "dull"]).best()  # [('POSITIVE', 0.99), ('NEGATIVE', 0.99)]

Raises ValueError for a model of another task.)";

constexpr const char* rank_doc =
    R"(Rank passages by how well they answer a query, best first: a list of attend.Ranked(passage, score, text).

It gives what CrossEncoder.rank() of sentence-transformers gives, for a model with one label.
count: how many of the best; None: all.
function: "sigmoid" or "none"; None: what the folder says, else sigmoid.
prompt: what to put before the query; None: the folder's default.
max_tokens, progress: as for classify().
Raises ValueError for a model with another task or with more labels.

    model = attend.Model.load("ms-marco-MiniLM-L6-v2")
    model.rank("who wrote Faust?", passages, count=3)[0].text)";

constexpr const char* tag_doc =
    R"(Find the labelled spans of a text: an attend.Tagged, or for a list of texts a list of them.

For a model with a head for token classification (info.task is "tag").
aggregation: how tokens become spans, as in Transformers' pipeline. "simple" joins neighbours with one label, by the B- and I- before
it. "first", "max" and "average" do the same with whole words, by their first token, their token with the highest score or the mean of
their tokens. "none" keeps each token by itself.
without: labels to leave out.
max_tokens, truncate, progress: as for classify().
A span's start and end count characters: text[start:end].)";

constexpr const char* fill_doc =
    R"(For each mask in the text, in order, the `count` likeliest words, likeliest first: a list of lists of attend.Filling.

For a model with a head for masked words (info.task is "fill"). Raises ValueError for a text without a mask.)";

constexpr const char* task_logits_doc = R"(The logits that a task's head gives for ids, or for a text, float32.

For sequence classification [sequences,labels], for token classification [N,labels], for masked words [N,V]. starts, types and edits
are as for forward().)";

}  // namespace

void bind_model_tasks(nb::class_<Loaded>& model) {
  model.def("classify", &classify_, nb::arg("texts"), nb::arg("function") = nb::none(),
            nb::arg("max_tokens") = nb::none(), nb::arg("truncate") = true, nb::arg("progress") = nb::none(),
            nb::sig("def classify(self, texts: str | tuple[str, str] | Iterable[str | tuple[str, str] | list[str]], "
                    "function: Literal['softmax', 'sigmoid', 'none'] | None = None, max_tokens: int | None = None, "
                    "truncate: bool = True, progress: bool | Callable[[float], object] | None = None) -> "
                    "attend.Classification"),
            classify_doc);
  model.def("rank", &rank_, nb::arg("query"), nb::arg("passages"), nb::arg("count") = nb::none(),
            nb::arg("function") = nb::none(), nb::arg("prompt") = nb::none(), nb::arg("max_tokens") = nb::none(),
            nb::arg("progress") = nb::none(),
            nb::sig("def rank(self, query: str, passages: Iterable[str], count: int | None = None, function: "
                    "Literal['sigmoid', 'none'] | None = None, prompt: str | None = None, max_tokens: int | None = "
                    "None, progress: bool | Callable[[float], object] | None = None) -> list[attend.Ranked]"),
            rank_doc);
  model.def("tag", &tag_, nb::arg("texts"), nb::arg("aggregation") = "simple", nb::arg("without") = nb::make_tuple("O"),
            nb::arg("max_tokens") = nb::none(), nb::arg("truncate") = true, nb::arg("progress") = nb::none(),
            nb::sig("@overload\n"
                    "def tag(self, texts: str, aggregation: Literal['none', 'simple', 'first', 'max', 'average'] = "
                    "'simple', without: Iterable[str] = ('O',), max_tokens: int | None = None, truncate: bool = True, "
                    "progress: bool | Callable[[float], object] | None = None) -> attend.Tagged: ...\n"
                    "@overload\n"
                    "def tag(self, texts: Iterable[str], aggregation: Literal['none', 'simple', 'first', 'max', "
                    "'average'] = 'simple', without: Iterable[str] = ('O',), max_tokens: int | None = None, truncate: "
                    "bool = True, progress: bool | Callable[[float], object] | None = None) -> list[attend.Tagged]"),
            tag_doc);
  model.def("fill", &fill_, nb::arg("text"), nb::arg("count") = 5,
            nb::sig("def fill(self, text: str, count: int = 5) -> list[list[attend.Filling]]"), fill_doc);
  model.def(
      "task_logits", &task_logits_, nb::arg("ids"), nb::kw_only(), nb::arg("starts") = nb::none(),
      nb::arg("types") = nb::none(), nb::arg("edits") = nb::none(),
      nb::sig((std::string("def task_logits(self, ids: str | Ids, *, starts: Ids | None = None, types: Ids | None "
                           "= None") +
               given_edits + ") -> numpy.ndarray")
                  .c_str()),
      task_logits_doc);
}

}  // namespace attend::python
