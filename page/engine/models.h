// What the page's module for models looks at, and what it answers: shared by the requests of models.cpp,
// why.cpp, circuits.cpp and recorded.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attend/circuits.h"
#include "attend/jacobian_lens.h"
#include "attend/session.h"
#include "page/engine/json.h"

namespace attend::page {

constexpr const char* function = "model";

using Ids = std::vector<std::int64_t>;

// What the page looks at.
struct State {
  std::optional<Model> model;
  ModelText text;           // that was run or grows
  std::vector<Edit> edits;  // that it was run with
  // Of each attention, by its name in the recording, v [1,Hkv,Tk,Dv]; none: nobody asked yet.
  std::map<std::string, Tensor> values;
  std::optional<Recording> recording;
  std::optional<Growth> growth;
  std::optional<Edges> edges;            // of that text and another
  std::optional<JacobianLens> jacobian;  // of the model
};
extern State state;

// Of the last request, as long as the next one is not there.
struct Answer {
  std::vector<Tensor> tensors;
  Json json = Json::object();
  std::string text;  // in place of json

  void add(const std::string& name, Tensor tensor) {
    tensors.push_back(std::move(tensor));
    json["tensors"][name] = tensor_json(tensors.back());
  }
};
extern Answer answer;

struct Asked {
  std::string_view name;
  void (*answer)(Request&);
};

std::span<const Asked> asked_of_recordings();  // recorded.cpp
std::span<const Asked> asked_of_analyses();    // why.cpp
std::span<const Asked> asked_of_circuits();    // circuits.cpp

// The one that is open. Throws bad_value where none is.
const Model& model();

// A token's id, or its text.
std::optional<std::int64_t> take_token(Request& request, const char* name);
// NAMEtokens and NAMEids.
void add_tokens(const std::string& name, const Ids& ids);
// What to_json() makes of it; its tensors are the answer's.
template <class... Of>
void add_json(const Of&... of) {
  const Json json = Json::parse(to_json(of..., [](std::string_view name, const Tensor& tensor) {
    answer.add(std::string(name), tensor.clone());
    return std::string("null");
  }));
  for (const auto& [name, value] : json.items())
    if (!answer.json["tensors"].contains(name)) answer.json[name] = value;
}

// By what heads are looked at, and of which item.
struct ViewOptions {
  WeighedBy by = WeighedBy::weight;
  std::int64_t item = 0;
};
ViewOptions take_view(Request& request);
// What the page shows of a recording first: all heads, those that tell most, and a small map of each.
void add_view(const ViewOptions& options);

}  // namespace attend::page
