// What analyses found, with what they were of: which their pictures name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attend/analysis_look.h"
#include "model.h"
#include "picture.h"

namespace attend::python {

struct Analysed {
  std::string model, path;
  std::vector<std::int64_t> ids, corrupt, positions, encoder_ids;
  std::optional<std::int64_t> token = {}, against = {};
  bool residual = false;
  std::vector<Head> heads = {};  // of an ablation, taken out together
  AttentionKind attention = AttentionKind::self;
  std::shared_ptr<const Tokenizer> tokenizer = {};  // where it was known already
};

// model.h's `self` and the text; of an encoder-decoder decoder_ids are what answers come after.
Analysed analysed(const Loaded& self, std::vector<std::int64_t> ids, std::vector<std::int64_t> decoder_ids);

// For pickle: all but the tokenizer, which is read again.
nb::tuple state_of(const Analysed& x);
Analysed analysed_from(const nb::tuple& state);

struct Explained : Attribution {
  Analysed of = {};
};
using Text = std::optional<std::string>;
Drawn attribution_picture_(const Explained& self, const Text& title);
std::string attribution_csv_(const Explained& self);
// What a part is called, and the token that a head read; empty: nothing is known of it.
struct PartWords {
  std::string name, token;
};
std::vector<PartWords> words_of(const Explained& self, const std::vector<AttributionPart>& parts);

void bind_analysis_look(nb::module_& module);

}  // namespace attend::python
