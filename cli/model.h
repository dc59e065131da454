// What `model` does: finds a model's weights, computes a text, and tells what the model made of it.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/models.h"
#include "attend/recording.h"
#include "attend/session.h"
#include "attend/steering.h"
#include "cli/analyses.h"
#include "cli/page.h"
#include "cli/show.h"
#include "cli/writing.h"

namespace attend::cli {

// ---- Weights that can be fetched ----

// "minilm|smollm2"
extern const char* const known_models;
// attend::find_model(), which also says what can be fetched, and what was meant.
std::filesystem::path find_model(const std::string& name);
// The models in the caches, a line each.
void list_models();
// Fetches the weights of a known name into the user's cache, unless they are there. Throws Failure, and says what a
// person can do instead.
void fetch_model(const std::string& name);

// How a model is opened: --dtype and --activations.
struct LoadArguments {
  std::string dtype, activations;
};
void add_load(App& app, LoadArguments& load);
// Of what analyses a model, which rounds nothing then.
void add_dtype(App& app, LoadArguments& load);
ModelOptions model_options(const LoadArguments& load);

// ---- What was computed ----

struct Neighbour {
  std::string text;
  double similarity = 0;  // cosine
};

// What --steer adds.
class Steered {
 public:
  Steered() = default;
  // "calm.gguf", or with how much of it, "calm.gguf:0.8". Throws UsageError for one of another size.
  Steered(const std::vector<std::string>& given, const ModelInfo& info);
  std::span<const Edit> edits() const { return edits_; }

 private:
  std::deque<Steering> read_;
  std::vector<Edit> edits_;
};

struct Computed {
  ModelInfo info;
  std::string text;
  Tokenizer tokenizer;
  Encoding encoding;
  bool chat = false;                     // the text is one message to the model
  Recording recording = {};              // of the text: one layer for each of the model's
  std::vector<NextToken> next = {};      // decoders: the likeliest, falling
  std::optional<Tensor> embedding = {};  // encoders: [1,E]
  std::vector<Neighbour> nearest = {};   // of the sentences given, falling
  std::optional<WrittenText> generated = {};
  std::vector<std::int64_t> decoder_ids = {};  // of an encoder-decoder: its decoder's text
  Steered steered = {};
  std::vector<Finding> findings = {};  // of what was asked for
  std::vector<Tensor> kept = {};       // of each of --place

  // The tokens that answers come after.
  const std::vector<std::string>& answering() const {
    return info.encoder_decoder() ? recording.decoder_tokens[0] : recording.tokens[0];
  }
  const std::vector<std::int64_t>& answering_ids() const { return info.encoder_decoder() ? decoder_ids : encoding.ids; }
};

// What a model is called, as the name of a file: of a path its last part.
std::string file_name(const std::string& model);

// ---- One row over several texts ----

struct VaryArguments {
  std::vector<std::string> words;  // "tired=wide,full"
  std::string over;                // a file of texts

  bool asked() const { return !words.empty() || !over.empty(); }
};
void add_vary(App& app, VaryArguments& arguments);

// ---- What is asked, and computed ----

// The command line.
struct ModelArguments {
  std::string model, get;
  LoadArguments load;
  bool list = false, chat = false;
  std::optional<std::string> text;
  std::string text_file;
  std::vector<std::string> near;
  std::int64_t generate = 0;
  WritingArguments writing;
  std::string said;
  std::vector<std::string> steer;  // "calm.gguf:0.8"
  ShowArguments what;
  std::vector<std::string> files;
  std::string keep;
  std::vector<std::string> places;  // "z.23", or of all layers "z"
  AnalysisArguments analysis;
  VaryArguments vary;
  PageArguments page;
  bool live = false;
};

bool writes(const ModelArguments& arguments, std::string_view ending);
// Whether a file has the recording, for which q and k are kept.
bool keeps_recording(const ModelArguments& arguments);
// The text's ids, with what the model expects around it. Throws Failure for none, and for too many.
// name: what a message calls the model. chat: the text is one message to the model.
Encoding encoded(const Model& model, std::string_view text, const std::string& name, bool chat = false);
// Sentences are the lines of a file of that name, else the words themselves.
std::vector<std::string> sentences(const std::vector<std::string>& given);
// The model and the text, and what --generate writes after it, of which each piece is told.
Computed begun(const Model& model, const std::string& text, const ModelArguments& arguments, const Told& told);
// All that is asked of one pass.
void compute(const Model& model, Computed& x, const ModelArguments& arguments);

// What --vary and --over ask for, in place of all of the above. Throws UsageError for what can't stand beside them.
void check_vary(const ModelArguments& arguments);
// text: empty where all are of a file.
void run_vary(const Model& model, const std::string& text, const ModelArguments& arguments);

// ---- Arrays ----

// Throws UsageError for --place without a file of arrays, and for such a file without it.
void check_places(const ModelArguments& arguments);
// Throws UsageError for what is no place.
std::vector<Keep> places_of(const ModelArguments& arguments);
bool has_arrays(const std::string& file);
void write_kept(const std::string& file, const Computed& computed, const ModelArguments& arguments);

// ---- JSON ----

std::string to_json(const Computed& computed, const Selection& selection, const ShowArguments& what);

// ---- Text ----

// The model, the tokens with their ids.
std::string model_text(const Computed& computed, int width);
std::string next_text(const Computed& computed);
std::string nearest_text(const Computed& computed, int width);
// Of an encoder-decoder, those in which its decoder reads the encoder's text.
std::vector<RecordedHead> cross_heads(const Recording& recording, std::vector<RecordedHead> heads);
// A line for each layer, and in it for each head its label; where none is known, why, and what tells heads apart.
std::string labels_text(const Selection& selection, const TerminalStyle& style);
std::string links_text(const Computed& computed, const std::vector<TellingHead>& heads, int width);
// The tokens on the colour of their lift in the most telling head.
std::string lift_text(const Computed& computed, const TellingHead& head, const TerminalStyle& style);

}  // namespace attend::cli
