// Which number of a pass a gradient is of, as Python says it.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "attend/gradient.h"
#include "model.h"

namespace attend::python {

// A label's name or number, or of a model that fills masks a token; none: not given.
inline std::optional<std::int64_t> read_label(const char* function, const Loaded& self, const char* name,
                                              nb::handle given) {
  const std::vector<std::string>& labels = self.model.info().labels;
  if (!nb::isinstance<nb::str>(given) || labels.empty()) return self.read_token(function, name, given);
  const std::string said = text_of(given);
  const auto found = std::ranges::find(labels, said);
  if (found != labels.end()) return found - labels.begin();
  std::string all;
  for (const std::string& each : labels) all += (all.empty() ? "" : ", ") + each;
  throw Error(ErrorCode::bad_value, function,
              std::string(name) + " is " + repr_of(given) + ", expected one of the model's labels: " + all);
}

// Of what attribute() and ablate() say: a token's logit, or a label's.
class LogitOf {
 public:
  LogitOf(const char* function, const Loaded& self, nb::handle of) : function_(function), self_(self) {
    const std::string name = of.is_none() ? "logit" : expect<std::string>(function, "of", "'logit' or 'label'", of);
    if (name != "logit" && name != "label")
      throw Error(ErrorCode::bad_value, function, "of is '" + name + "', expected 'logit' or 'label'");
    if (name == "label") of_ = GradientOf::label;
  }

  GradientOf of() const { return of_; }
  // `token` or `against`.
  std::optional<std::int64_t> read(const char* name, nb::handle given) const {
    return of_ == GradientOf::label ? read_label(function_, self_, name, given)
                                    : self_.read_token(function_, name, given);
  }
  std::vector<std::string> labels() const {
    return of_ == GradientOf::label ? self_.model.info().labels : std::vector<std::string>();
  }

 private:
  const char* function_;
  const Loaded& self_;
  GradientOf of_ = GradientOf::logit;
};

// types as ModelCall has them, of None none.
inline std::vector<std::int64_t> read_types(const char* function, nb::handle types) {
  return types.is_none() ? std::vector<std::int64_t>() : list_of(read_integers(function, "types", types));
}

// What `of` says: a name, the vector of a cosine, or what is summed up, of the hidden states or by place.
class Number {
 public:
  Number(const char* function, const Loaded& self, nb::handle of, nb::handle token, nb::handle against)
      : function_(function) {
    const bool named = of.is_none() || nb::isinstance<nb::str>(of);
    if (!named && !(token.is_none() && against.is_none()))
      throw Error(ErrorCode::bad_value, function_, "token and against are for a logit, and of is something else");
    if (named)
      read_name(self, of, token, against);
    else if (nb::isinstance<nb::dict>(of))
      read_places(nb::cast<nb::dict>(of));
    else
      read_array(of);
  }

  // As GradientOptions have them; they last as long as this.
  void say(GradientOptions& options) const {
    options.of = of_;
    options.token = token_, options.against = against_, options.tokens = tokens_;
    options.vector = vector_, options.cotangent = cotangent_, options.at_places = places_;
  }
  bool several() const { return several_; }

 private:
  void read_name(const Loaded& self, nb::handle of, nb::handle token, nb::handle against) {
    const std::string name = of.is_none() ? "logit" : nb::cast<std::string>(of);
    if (name == "label") {
      of_ = GradientOf::label;
      token_ = read_label(function_, self, "token", token);
      against_ = read_label(function_, self, "against", against);
      return;
    }
    against_ = self.read_token(function_, "against", against);
    if (name == "logit") {
      token_ = self.read_token(function_, "token", token);
      return;
    }
    if (name != "log_probability")
      throw Error(ErrorCode::bad_value, function_,
                  "of is '" + name + "', expected 'logit', 'log_probability', 'label', an array or a dict of arrays");
    if (against_) throw Error(ErrorCode::bad_value, function_, "against is for a logit only");
    of_ = GradientOf::log_probability;
    if (nb::isinstance<nb::str>(token) || nb::isinstance<nb::int_>(token)) {
      tokens_ = {*self.read_token(function_, "token", token)};
    } else if (!token.is_none()) {
      tokens_ = list_of(read_integers(function_, "token", token));
    }
  }

  View keep(const std::string& name, nb::handle given) {
    const View view = held_.emplace_back(function_, name.c_str(), given).view();
    several_ = view.rank() == 3;
    return view;
  }

  void read_array(nb::handle of) {
    const View view = keep("of", of);
    of_ = view.rank() == 1 ? GradientOf::cosine : GradientOf::sum;
    (view.rank() == 1 ? vector_ : cotangent_) = view;
  }

  void read_places(const nb::dict& of) {
    of_ = GradientOf::sum;
    for (const auto& [place, given] : of) {
      if (nb::isinstance<nb::str>(place) && nb::cast<std::string>(place) == "hidden") {
        cotangent_ = keep("of['hidden']", given);
        continue;
      }
      nb::list one;
      one.append(place);
      const Keep at = read_keep(function_, one, "of's places").front();
      if (!at.layer && at.at != ModelPlace::embeddings && at.at != ModelPlace::encoder_embeddings)
        throw Error(ErrorCode::bad_value, function_,
                    "of has " + std::string(name_of(at.at)) + ", expected a layer of it too: ('z', 3)");
      places_.push_back({.at = at.at, .layer = at.layer.value_or(0), .values = keep("of[...]", given)});
    }
  }

  const char* function_;
  GradientOf of_ = GradientOf::logit;
  std::optional<std::int64_t> token_, against_;
  std::vector<std::int64_t> tokens_;
  std::deque<Array> held_;
  OptionalView vector_, cotangent_;
  std::vector<Cotangent> places_;
  bool several_ = false;
};

}  // namespace attend::python
