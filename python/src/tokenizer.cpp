// attend.Tokenizer and what it gives.
#include "attend/tokenizer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <optional>
#include <string>

#include "array.h"
#include "bindings.h"
#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"
#include "tokenizer.h"

namespace attend::python {

namespace {

// ---- Encoding ----

nb::object array(const std::vector<std::int64_t>& numbers) {
  Tensor out({std::ssize(numbers)}, DType::i64);
  std::ranges::copy(numbers, out.data<std::int64_t>());
  return to_python({}, out);
}

nb::object offsets(const Encoding& self) {
  Tensor out({std::ssize(self.offsets), 2}, DType::i64);
  auto* to = out.data<std::int64_t>();
  for (const Range& bytes : self.offsets) *to++ = bytes.begin, *to++ = bytes.end;
  return to_python({}, out);
}

nb::object special(const Encoding& self) {
  Tensor out({std::ssize(self.special)}, DType::boolean);
  std::ranges::copy(self.special, out.data<bool>());
  return to_python({}, out);
}

nb::tuple tokenizer_state_of(const Encoding& self) {
  return nb::make_tuple(array(self.ids), offsets(self), special(self), array(self.types), array(self.texts));
}

void tokenizer_restore(Encoding& self, const nb::tuple& state) {
  const auto numbers = [&](std::size_t n) { return list_of(read_integers("Encoding", "state", state[n])); };
  new (&self) Encoding{.ids = numbers(0), .offsets = {}, .special = {}, .types = numbers(3), .texts = numbers(4)};
  const nb::list ranges = read_list("Encoding", "state", "offsets", state[1]),
                 special = read_list("Encoding", "state", "special", state[2]);
  for (const nb::handle each : ranges) self.offsets.push_back(*read_range("Encoding", "state", each));
  for (const nb::handle each : special) self.special.push_back(nb::cast<bool>(each));
}

void bind_encoding(nb::module_& m) {
  nb::class_<Encoding> encoding(m, "Encoding", "The tokens of a text, or of a pair, as Tokenizer.encode() gives them.");
  copies_are_itself(encoding);
  encoding.def("__getstate__", &tokenizer_state_of).def("__setstate__", &tokenizer_restore);
  encoding
      .def_prop_ro(
          "ids", [](const Encoding& self) { return array(self.ids); }, nb::sig("def ids(self) -> numpy.ndarray"),
          "[T] int64")
      .def_prop_ro(
          "offsets", &offsets, nb::sig("def offsets(self) -> numpy.ndarray"),
          "[T,2] int64: which bytes of its text, in UTF-8, each token stands for; 0, 0 for tokens that were added")
      .def_prop_ro("special", &special, nb::sig("def special(self) -> numpy.ndarray"),
                   "[T] bool: whether the tokenizer added it")
      .def_prop_ro(
          "types", [](const Encoding& self) { return array(self.types); }, nb::sig("def types(self) -> numpy.ndarray"),
          "[T] int64: BERT's token_type_ids")
      .def_prop_ro(
          "texts", [](const Encoding& self) { return array(self.texts); }, nb::sig("def texts(self) -> numpy.ndarray"),
          "[T] int64: 0 for the text, 1 for the pair's second text, -1 for neither")
      .def("__len__", [](const Encoding& self) { return self.ids.size(); })
      .def("__repr__", [](const Encoding& self) { return "Encoding(" + std::to_string(self.ids.size()) + " tokens)"; });
}

// ---- Tokenizer ----

Encoding encode(const GivenTokenizer& self, std::string_view text, std::optional<std::string_view> pair, bool special) {
  return call("Tokenizer.encode", [&] {
    return pair ? self.tokenizer.encode_pair(text, *pair, special) : self.tokenizer.encode(text, special);
  });
}

std::string decode(const GivenTokenizer& self, nb::handle ids, bool skip_special) {
  constexpr const char* function = "Tokenizer.decode";
  const Tensor numbers = read_integers(function, "ids", ids);
  const auto count = static_cast<std::size_t>(numbers.count());
  return call(function, [&] { return self.tokenizer.decode({numbers.data<std::int64_t>(), count}, skip_special); });
}

// [{"role": "user", "content": "..."}, ...]
std::vector<Message> read_messages(nb::handle messages) {
  const auto refuse = [](nb::handle what) {
    throw nb::type_error(
        ("Tokenizer.chat: messages: expected a list of dicts with a role and a content, both text, got " +
         repr_of(what))
            .c_str());
  };
  if (!nb::isinstance<nb::list>(messages) && !nb::isinstance<nb::tuple>(messages)) refuse(messages);
  std::vector<Message> out;
  for (const nb::handle each : messages) {
    if (!nb::isinstance<nb::dict>(each)) refuse(each);
    const auto fields = nb::borrow<nb::dict>(each);
    if (fields.size() != 2 || !fields.contains("role") || !fields.contains("content")) refuse(each);
    std::string role, content;
    if (!nb::try_cast(fields["role"], role) || !nb::try_cast(fields["content"], content)) refuse(each);
    out.push_back({std::move(role), std::move(content)});
  }
  return out;
}

std::string chat(const GivenTokenizer& self, nb::handle messages, bool add_generation_prompt) {
  const std::vector<Message> said = read_messages(messages);
  return call("Tokenizer.chat", [&] { return self.tokenizer.chat(said, add_generation_prompt); });
}

constexpr const char* tokenizer_signature = "def __init__(self, json: str) -> None";

void tokenizer_construct(GivenTokenizer* self, const nb::args& args, const nb::kwargs& keywords) {
  const nb::list given = constructed_with("Tokenizer", tokenizer_signature, args, keywords);
  const auto json = expect<std::string>("Tokenizer", "json", "a text, of Unicode", given[0]);
  new (self) GivenTokenizer{call("Tokenizer", [&] { return Tokenizer::parse(json); }),
                            nb::borrow(nb::type<GivenTokenizer>()), given[0]};
}

GivenTokenizer tokenizer_load(nb::handle path) {
  const std::string name = path_of(path);
  return {call("Tokenizer.load", [&] { return Tokenizer::load(name); }), nb::type<GivenTokenizer>().attr("load"),
          lasting_path(name)};
}

constexpr const char* tokenizer_class_doc =
    R"(Turn text into ids and back as the package `tokenizers` does, from what tokenizer.json holds.

It knows WordPiece, BPE, Unigram and WordLevel. A part that is not known raises an OSError that names it; nothing is guessed.
Truncation and padding, which such a file may ask for, are left to the caller.

>>> import attend
>>> json = '''{"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece",
... "prefix": "##", "cleanup": true}, "model": {"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 100,
... "continuing_subword_prefix": "##", "vocab": {"?": 0, "look": 1, "##ing": 2}}}'''
>>> tokenizer = attend.Tokenizer(json)
>>> encoding = tokenizer.encode("looking up")
>>> encoding.ids.tolist(), encoding.offsets.tolist()
([1, 2, 0], [[0, 4], [4, 7], [8, 10]])
>>> tokenizer.decode(encoding.ids)
'looking?')";

constexpr const char* encode_doc = R"(The tokens of a text, or of a pair of texts, as an Encoding.

special: add the tokens that the model expects around a text.)";

constexpr const char* chat_doc =
    R"(Messages as the text that the model was trained on, by the chat template in its folder or file.

messages: a list of {"role": "system", "user" or "assistant", "content": text}.
add_generation_prompt: end with what begins an answer.
The text has its special tokens: encode(text, special=False) gives its ids, as Transformers' apply_chat_template does.
Only templates that are known to the letter are used: ChatML, Llama 2 and 3, Mistral, Gemma, Phi-3, Qwen 2 and 3, SmolLM2
(docs/models.md). Raises OSError for another template and where there is none, and ValueError for a role or an order of
messages that the template refuses.

>>> import attend
>>> json = '{"version": "1.0", "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}}}'
>>> attend.Tokenizer(json).chat([{"role": "user", "content": "Hello"}])
Traceback (most recent call last):
...
OSError: Tokenizer.chat: the tokenizer came without the folder or the file that has a chat template)";

constexpr const char* decode_doc = R"(The text that the ids stand for. Bytes that are not a character become U+FFFD.

skip_special: leave out the tokens that the file calls special. Raises ValueError for an id outside the vocabulary.)";

}  // namespace

void bind_tokenizer(nb::module_& m) {
  bind_encoding(m);
  nb::class_<GivenTokenizer> tokenizer(m, "Tokenizer", tokenizer_class_doc);
  copies_are_itself(tokenizer);
  pickles_as(tokenizer, [](const GivenTokenizer& self) { return nb::make_tuple(self.how, nb::make_tuple(self.of)); });
  tokenizer.def("__init__", &tokenizer_construct, nb::sig(tokenizer_signature))
      .def_static("load", &tokenizer_load, nb::arg("path"),
                  nb::sig("def load(path: str | os.PathLike[str] | bytes) -> Tokenizer"),
                  "Load a tokenizer.json, or a folder that has one or Marian's files (source.spm, vocab.json).")
      .def("encode", &encode, nb::arg("text"), nb::arg("pair") = nb::none(), nb::arg("special") = true, encode_doc)
      .def("decode", &decode, nb::arg("ids"), nb::arg("skip_special") = true,
           nb::sig("def decode(self, ids: Ids, skip_special: bool = True) -> str"), decode_doc)
      .def("chat", &chat, nb::arg("messages"), nb::arg("add_generation_prompt") = true,
           nb::sig("def chat(self, messages: collections.abc.Sequence[dict[str, str]], "
                   "add_generation_prompt: bool = True) -> str"),
           chat_doc)
      .def(
          "id", [](const GivenTokenizer& self, std::string_view token) { return self.tokenizer.id(token); },
          nb::arg("token"), "The token's id, or None if it is not a token.")
      .def(
          "token",
          [](const GivenTokenizer& self, std::int64_t id) {
            return call("Tokenizer.token", [&] { return self.tokenizer.token(id); });
          },
          nb::arg("id"), "The token as the vocabulary writes it: '##ing', 'Ġthe'.")
      .def("__len__", [](const GivenTokenizer& self) { return self.tokenizer.size(); })
      .def("__repr__", [](const GivenTokenizer& self) {
        return "Tokenizer(" + std::to_string(self.tokenizer.size()) + " tokens)";
      });
}

}  // namespace attend::python
