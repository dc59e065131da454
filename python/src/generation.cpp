#include "generation.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "model.h"
#include "text.h"
#include "texts.h"

namespace attend::python {

namespace {

using Ids = std::vector<std::int64_t>;

// Reads the values of keyword arguments of one call.
class Given {
 public:
  explicit Given(const char* function) : function_(function) {}

  void read(const std::string& name, nb::handle value, double& to) const {
    if (!nb::try_cast(value, to)) refuse(function_, name, "a number", value);
  }
  void read(const std::string& name, nb::handle value, std::int64_t& to) const {
    if (!PyIndex_Check(value.ptr()) || PyBool_Check(value.ptr())) refuse(function_, name, "a whole number", value);
    const nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
    if (!whole.is_valid() || !nb::try_cast(whole, to)) {
      PyErr_Clear();
      refuse(function_, name, "a whole number of 64 bits", value);
    }
  }
  void read(const std::string& name, nb::handle value, Ids& to) const {
    to = list_of(read_integers(function_, name.c_str(), value));
  }
  void read(const std::string& name, nb::handle value, std::vector<Ids>& to) const {
    for (const nb::handle each : read_list(function_, name.c_str(), "a list of lists of ids", value))
      read(name + "[" + std::to_string(to.size()) + "]", each, to.emplace_back());
  }
  // {(1, 2): -5.0}, or a list of pairs as JSON has them.
  void read(const std::string& name, nb::handle value, std::vector<SequenceBias>& to) const {
    constexpr const char* expected = "a dict {(id, ...): number}, or a list of ([id, ...], number)";
    const nb::object pairs = nb::isinstance<nb::dict>(value) ? value.attr("items")() : nb::borrow(value);
    for (const nb::handle each : read_list(function_, name.c_str(), expected, pairs)) {
      const std::string place = name + "[" + std::to_string(to.size()) + "]";
      const nb::list both = read_list(function_, place.c_str(), expected, each);
      if (nb::len(both) != 2) refuse(function_, place, "ids and a number", each);
      SequenceBias& bias = to.emplace_back();
      read(place, both[0], bias.ids);
      read(place, both[1], bias.bias);
    }
  }
  void read(const std::string& name, nb::handle value, EarlyStopping& to) const {
    if (nb::isinstance<nb::str>(value) && text_of(value) == "never")
      to = EarlyStopping::never;
    else if (PyBool_Check(value.ptr()))
      to = nb::cast<bool>(value) ? EarlyStopping::yes : EarlyStopping::no;
    else
      refuse(function_, name, "True, False or 'never'", value);
  }
  void read(const std::string& name, nb::handle value, std::vector<std::string>& to) const {
    if (nb::isinstance<nb::str>(value))
      to = {text_of(value)};
    else
      to = read_list_of_texts(function_, name, value);
  }

 private:
  const char* function_;
};

// Calls see(name, setting, its type in a signature) for each setting of `of`.
template <class Settings, class See>
void for_each_setting(Settings& of, See see) {
  const char *number = "float", *whole = "int", *ids = "Ids";
  see("temperature", of.temperature, number);
  see("top_k", of.top_k, whole);
  see("top_p", of.top_p, number);
  see("min_p", of.min_p, number);
  see("sequence_bias", of.sequence_bias, "Mapping[tuple[int, ...], float] | Sequence[tuple[Sequence[int], float]]");
  see("repetition_penalty", of.repetition_penalty, number);
  see("no_repeat_ngram_size", of.no_repeat_ngram_size, whole);
  see("bad_words_ids", of.bad_words_ids, "Sequence[Ids]");
  see("min_length", of.min_length, whole);
  see("min_new_tokens", of.min_new_tokens, whole);
  see("suppress_tokens", of.suppress_tokens, ids);
  see("begin_suppress_tokens", of.begin_suppress_tokens, ids);
  see("forced_bos_token_id", of.forced_bos_token_id, whole);
  see("forced_eos_token_id", of.forced_eos_token_id, whole);
  see("stop_strings", of.stop_strings, "str | Sequence[str]");
  see("num_beams", of.num_beams, whole);
  see("length_penalty", of.length_penalty, number);
  see("early_stopping", of.early_stopping, "bool | Literal['never']");
  see("num_return_sequences", of.num_return_sequences, whole);
}

nb::object python_value(const std::vector<SequenceBias>& biases) {
  nb::list all;
  for (const auto& [ids, bias] : biases) all.append(nb::make_tuple(nb::cast(ids), bias));
  return all;
}
nb::object python_value(EarlyStopping when) {
  return when == EarlyStopping::never ? nb::object(nb::str("never"))
                                      : nb::object(nb::bool_(when == EarlyStopping::yes));
}
template <class T>
nb::object python_value(const T& value) {
  return nb::cast(value);
}

}  // namespace

GenerationSettings read_settings(const char* function, const nb::kwargs& given) {
  GenerationSettings settings;
  std::size_t known = 0;
  const Given values(function);
  for_each_setting(settings, [&](const char* name, auto& setting, const char*) {
    if (!given.contains(name)) return;
    ++known;
    const nb::object value = given[name];
    if (!value.is_none()) values.read(name, value, setting.emplace());
  });
  if (known < given.size())  // _calls.py says which, and what was meant
    throw nb::type_error((std::string(function) + "() got an unexpected keyword argument").c_str());
  return settings;
}

nb::dict settings_dict(const GenerationSettings& settings) {
  nb::dict all;
  for_each_setting(settings, [&](const char* name, const auto& setting, const char*) {
    if (setting) all[name] = python_value(*setting);
  });
  return all;
}

std::string settings_signature() {
  std::string all;
  const GenerationSettings none;
  for_each_setting(none, [&](const char* name, const auto&, const char* type) {
    all += std::string(", ") + name + ": " + type + " | None = None";
  });
  return all;
}

}  // namespace attend::python
