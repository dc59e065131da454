// attend.Model.embed_tokens() and embed_sparse(), max_sim() and TokenVectorFile.
#include <nanobind/stl/string.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "attend/analysis_look.h"
#include "attend/late_interaction.h"
#include "attend/sparse_vectors.h"
#include "bindings.h"
#include "call.h"
#include "model.h"
#include "pickle.h"
#include "picture.h"
#include "progress.h"
#include "text.h"
#include "texts.h"

namespace attend::python {

namespace {

nb::object made(const char* name) {
  return nb::module_::import_("attend._token_vectors").attr(name);
}

nb::object array_of(const std::vector<std::int64_t>& ids) {
  const Tensor whole = View(ids.data(), DType::i64, {std::ssize(ids)}).clone();
  return to_python({}, whole);
}

// ---- A vector for each token ----

TextRole read_role(const char* function, nb::handle given) {
  const std::string said = nb::isinstance<nb::str>(given) ? text_of(given) : "";
  for (const TextRole each : {TextRole::query, TextRole::document})
    if (said == name_of(each)) return each;
  if (said.empty()) refuse(function, "role", "'query' or 'document'", given);
  throw Error(ErrorCode::bad_value, function, "role is " + repr_of(given) + ", expected 'query' or 'document'");
}

nb::object python_vectors(const Tokenizer& tokenizer, std::string_view text, TokenVectors found) {
  nb::list tokens, offsets;
  for (const auto& each : tokenizer.texts(found.ids)) tokens.append(each ? nb::object(text_object(*each)) : nb::none());
  for (const Range& each : found.offsets)
    offsets.append(nb::make_tuple(characters(text.substr(0, static_cast<std::size_t>(each.begin))),
                                  characters(text.substr(0, static_cast<std::size_t>(each.end)))));
  return made("TokenVectors")(to_python({}, std::move(found.vectors)), array_of(found.ids), nb::tuple(tokens),
                              nb::tuple(offsets), found.cut);
}

nb::object embed_tokens_(const Loaded& self, nb::handle texts, nb::handle role, nb::handle prompt,
                         nb::handle max_tokens, bool truncate, nb::handle progress) {
  constexpr const char* name = "Model.embed_tokens";
  const auto [given, single] = read_text_or_texts(name, "texts", texts);
  TokenVectorOptions options;
  options.role = read_role(name, role), options.truncate = truncate;
  if (!prompt.is_none()) options.prompt = read_text(name, "prompt", prompt);
  if (!max_tokens.is_none()) options.max_tokens = expect<std::int64_t>(name, "max_tokens", whole_number, max_tokens);
  const Shown shown(name, progress, given.size());
  options.progress = shown.tell();
  std::vector<TokenVectors> found =
      call(name, [&] { return embed_tokens(self.model, std::span<const std::string>(given), options); });
  nb::list all;
  for (std::size_t n = 0; n < given.size(); ++n)
    all.append(python_vectors(self.model.tokenizer(), given[n], std::move(found[n])));
  return single ? nb::object(all[0]) : nb::object(all);
}

nb::tuple max_sim_(nb::handle query, nb::handle passage) {
  constexpr const char* name = "max_sim";
  const Array of_query(name, "query", query), of_passage(name, "passage", passage);
  MaxSim found = call(name, [&] { return max_sim(of_query.view(), of_passage.view()); });
  return nb::make_tuple(found.score, to_python({}, std::move(found.similarities)), array_of(found.best));
}

std::vector<std::string> tokens_of(nb::handle match, const char* name) {
  std::vector<std::string> tokens;
  for (const nb::handle each : nb::tuple(match.attr(name))) tokens.push_back(each.is_none() ? "" : text_of(each));
  return tokens;
}

Drawn match_picture_(nb::handle match, nb::handle title) {
  constexpr const char* name = "TokenMatch.picture";
  const nb::object similarities = match.attr("similarities"), best = match.attr("best");
  const Array products(name, "similarities", similarities);
  MaxSim found{.score = nb::cast<double>(match.attr("score")), .similarities = products.view().clone(), .best = {}};
  for (const nb::handle each : best) found.best.push_back(nb::cast<std::int64_t>(nb::int_(each)));
  const std::vector<std::string> query = tokens_of(match, "query"), passage = tokens_of(match, "passage");
  std::optional<std::string> said;
  if (!title.is_none()) said = read_text(name, "title", title);
  return draw(name, [&] { return match_picture(found, query, passage, said); });
}

// ---- Files ----

struct OpenTokens {
  TokenVectorFile file;
  nb::object path;
};

constexpr const char* token_vectors_signature = "def __init__(self, path: str | os.PathLike[str] | bytes) -> None";

void token_vectors_construct(OpenTokens* self, const nb::args& args, const nb::kwargs& keywords) {
  const std::string path = path_of(constructed_with("TokenVectorFile", token_vectors_signature, args, keywords)[0]);
  new (self) OpenTokens{call("TokenVectorFile", [&] { return TokenVectorFile(path); }), lasting_path(path)};
}

void write(nb::handle path, nb::handle vectors) {
  constexpr const char* name = "TokenVectorFile.write";
  const std::string to = path_of(path);
  std::optional<TokenVectorWriter> writer;
  for (const nb::handle each : nb::list(vectors)) {
    const nb::object own = nb::hasattr(each, "vectors") ? nb::object(each.attr("vectors")) : nb::borrow(each);
    const Array given(name, "vectors", own);
    call(name, [&] {
      if (!writer) writer.emplace(to, given.view().rank() == 2 ? given.view().size(1) : 0);
      writer->add(given.view());
    });
  }
  if (!writer) throw Error(ErrorCode::bad_value, name, "vectors: expected those of a text or more, got none");
  call(name, [&] { writer->commit(); });
}

nb::list nearest(const OpenTokens& self, nb::handle query, std::int64_t k) {
  constexpr const char* name = "TokenVectorFile.nearest";
  const nb::object own = nb::hasattr(query, "vectors") ? nb::object(query.attr("vectors")) : nb::borrow(query);
  const Array given(name, "query", own);
  const nb::object near = made("NearText");
  nb::list all;
  for (const NearText& each : call(name, [&] { return self.file.nearest(given.view(), k); }))
    all.append(near(each.text, each.score));
  return all;
}

nb::object vectors_of(const OpenTokens& self, std::int64_t text) {
  if (text < 0) text += self.file.texts();
  if (text < 0 || text >= self.file.texts()) throw nb::index_error("TokenVectorFile: no such text");
  return to_python({}, self.file.vectors(text).clone());
}

// ---- Weights of words ----

nb::object python_sparse(const Tokenizer& tokenizer, const SparseVector& found) {
  nb::list words;
  for (const std::int64_t id : found.ids)
    words.append(id < tokenizer.size() ? nb::object(text_object(tokenizer.token(id))) : nb::none());
  const Tensor weights = View(found.weights.data(), DType::f32, {std::ssize(found.weights)}).clone();
  return made("SparseVector")(array_of(found.ids), to_python({}, weights), nb::tuple(words));
}

nb::object embed_sparse_(const Loaded& self, nb::handle texts, nb::handle prompt, bool truncate, nb::handle progress) {
  constexpr const char* name = "Model.embed_sparse";
  const auto [given, single] = read_text_or_texts(name, "texts", texts);
  EmbedOptions options;
  options.truncate = truncate;
  if (!prompt.is_none()) options.prompt = read_text(name, "prompt", prompt);
  const Shown shown(name, progress, given.size());
  options.progress = shown.tell();
  const SparseEmbeddings found =
      call(name, [&] { return embed_sparse(self.model, std::span<const std::string>(given), options); });
  nb::list all;
  for (const SparseVector& each : found.vectors) all.append(python_sparse(self.model.tokenizer(), each));
  return single ? nb::object(all[0]) : nb::object(all);
}

constexpr const char* tokens_doc =
    R"(A vector for each token of a text, for late interaction (ColBERT): an attend.TokenVectors, or for a list of texts a list of them.

For a model whose files describe such vectors (info.vectors is "token"). They are those of sentence-transformers' MultiVectorEncoder,
of PyLate and of ColBERT's own program.
role: "query" or "document". It decides the marker before a text, its length, whether it is filled up with masks (queries) and whether
punctuation has vectors.
prompt: what to put before each text instead of the role's own prompt, as a text or by the name of one of info.prompts.
max_tokens: cut longer texts there; None: as the folder says. truncate: False raises ValueError for longer texts.
progress: True shows a bar; a function is called with the share done.

    query = model.embed_tokens("who wrote Faust?", role="query")
    query.match(model.embed_tokens("Goethe wrote Faust.")).words())";

constexpr const char* sparse_doc =
    R"(Weights for the words that a text is about, for sparse retrieval (SPLADE): an attend.SparseVector, or for a list of texts a list of them.

For a model with a head for masked words. A word's weight is the largest log(1 + max(0, logit)) over the text's tokens, or what the
folder's SpladePooling says (info.vectors is "sparse" then). prompt, truncate and progress are as for embed().

    model.embed_sparse("who wrote Faust?").top(5))";

constexpr const char* max_sim_doc =
    R"(How well a passage answers a query, by their token vectors: (score, similarities [Q,P] float32, best [Q]).

query is [Q,V] and passage [P,V], float32. Each query token takes its largest product with a passage token, whose index is in best.
score is the sum of these products (MaxSim: Khattab and Zaharia 2020, arXiv:2004.12832).

>>> import attend, numpy
>>> score, similarities, best = attend.max_sim(numpy.eye(2, 4, dtype=numpy.float32), numpy.eye(4, dtype=numpy.float32)[::-1].copy())
>>> score, best.tolist()
(2.0, [3, 2]))";

constexpr const char* file_doc =
    R"(Token vectors of many texts in two .npy files, searched in place. `attend embed` and write() make them.

name.npy has the rows [tokens,V], float32, of one text after another. name.starts.npy has where each text begins, and the end:
[texts + 1] int64. The files must not change while they are open.

>>> import attend, numpy
>>> attend.TokenVectorFile.write("tokens.npy", [numpy.eye(2, 4, dtype=numpy.float32), numpy.eye(4, dtype=numpy.float32)])
>>> file = attend.TokenVectorFile("tokens.npy")
>>> len(file), file[1].shape
(2, (4, 4))
>>> file.nearest(numpy.eye(3, 4, dtype=numpy.float32), k=1)
[NearText(text=1, score=3.0)])";

constexpr const char* nearest_doc =
    R"(The k texts with the highest MaxSim for a query, highest first: a list of attend.NearText. Of equal texts, the first comes first.

query: an attend.TokenVectors, or [Q,V] float32. All texts are read, so the result is exact. A text without vectors comes last.)";

}  // namespace

void bind_model_vectors(nb::class_<Loaded>& model) {
  const std::string progress = "progress: bool | Callable[[float], object] | None = None)",
                    of_tokens =
                        ", role: Literal['query', 'document'] = 'document', prompt: str | None = None, "
                        "max_tokens: int | None = None, truncate: bool = True, " +
                        progress,
                    of_sparse = ", prompt: str | None = None, truncate: bool = True, " + progress;
  const auto both = [](const std::string& name, const std::string& rest, const std::string& gives) {
    return "@overload\ndef " + name + "(self, texts: str" + rest + " -> attend." + gives + ": ...\n@overload\ndef " +
           name + "(self, texts: Iterable[str]" + rest + " -> list[attend." + gives + "]";
  };
  model.def("embed_tokens", &embed_tokens_, nb::arg("texts"), nb::arg("role") = "document",
            nb::arg("prompt") = nb::none(), nb::arg("max_tokens") = nb::none(), nb::arg("truncate") = true,
            nb::arg("progress") = nb::none(), nb::sig(both("embed_tokens", of_tokens, "TokenVectors").c_str()),
            tokens_doc);
  model.def("embed_sparse", &embed_sparse_, nb::arg("texts"), nb::arg("prompt") = nb::none(),
            nb::arg("truncate") = true, nb::arg("progress") = nb::none(),
            nb::sig(both("embed_sparse", of_sparse, "SparseVector").c_str()), sparse_doc);
}

void bind_token_vectors(nb::module_& m) {
  m.def("max_sim", &max_sim_, nb::arg("query").none(), nb::arg("passage").none(),
        nb::sig("def max_sim(query: Array, passage: Array) -> tuple[float, numpy.ndarray, numpy.ndarray]"),
        max_sim_doc);
  m.def("_match_picture", &match_picture_, nb::arg("match"), nb::arg("title").none());
  nb::class_<OpenTokens> file(m, "TokenVectorFile", file_doc);
  copies_are_itself(file);
  pickles_as(file,
             [](const OpenTokens& self) { return nb::make_tuple(nb::type<OpenTokens>(), nb::make_tuple(self.path)); });
  file.def("__init__", &token_vectors_construct, nb::sig(token_vectors_signature))
      .def_static("write", &write, nb::arg("path"), nb::arg("vectors"),
                  nb::sig("def write(path: str | os.PathLike[str] | bytes, vectors: Iterable[attend.TokenVectors | "
                          "Array]) -> None"),
                  "Writes both files. vectors: for each text its attend.TokenVectors, or [tokens,V] float32.")
      .def("nearest", &nearest, nb::arg("query").none(), nb::arg("k") = 10,
           nb::sig("def nearest(self, query: attend.TokenVectors | Array, k: int = 10) -> list[attend.NearText]"),
           nearest_doc)
      .def("__len__", [](const OpenTokens& self) { return self.file.texts(); })
      .def("__getitem__", &vectors_of, nb::sig("def __getitem__(self, text: int) -> numpy.ndarray"))
      .def("__repr__", [](const OpenTokens& self) {
        return "<attend.TokenVectorFile: " + std::to_string(self.file.texts()) + " texts, vectors of " +
               std::to_string(self.file.size()) + ">";
      });
}

}  // namespace attend::python
