// Why a model answers so: what `model` can be asked beside its heads. Each analysis is a file, analysis_*.cpp, and a
// line of the list in analyses.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/analysis_look.h"
#include "attend/session.h"
#include "cli/line.h"
#include "cli/terminal.h"

namespace attend::cli {

struct Computed;
struct ShowArguments;
class Analysis;

// ---- What was found ----

// An analysis's result, as each door tells it.
struct Finding {
  std::string name;  // in JSON
  std::function<std::string()> json;
  std::function<std::string(const Computed&)> words;
  // What pictures and CSV are of; empty: they stay those of heads.
  std::function<Picture(const AnalysisOf&)> picture = {};
  std::function<std::string(const AnalysisOf&)> csv = {};
  // What the terminal draws below all words; empty: the picture.
  std::function<std::string(const AnalysisOf&, const TerminalStyle&)> drawing = {};
  std::vector<std::int64_t> corrupt = {};  // the ids of a second text
  std::function<std::string()> dot = {};   // a graph, for Graphviz
};

// The one that pictures and CSV are of; null where there is none.
const Finding* pictured(const Computed& computed);
// What is written of a model's text beside its heads.
AnalysisOf analysis_of(const Computed& computed);
std::string findings_csv(const Computed& computed);
// As a picture or .csv.
void write_findings(const std::string& file, const Computed& computed);
// In words, bars and small pictures.
// token, against: as given. x: the tokens of its recording are those that were read.
std::string attribution_words(const Computed& x, const Attribution& found, const std::string& token,
                              const std::string& against = "");
std::string findings_text(const Computed& computed, const TerminalStyle& style);

// ---- What is asked ----

// Of the command line.
struct AnalysisArguments {
  AnalysisArguments();

  // What more than one of them take; empty: not given.
  std::string why, against, attention, patch;
  bool circuit = false;  // with patch
  std::vector<std::unique_ptr<Analysis>> all;

  std::vector<const Analysis*> asked() const;
};

void add_analyses(App& app, AnalysisArguments& arguments);
// Before anything is computed: what can't stand together, and what nothing would use. Throws UsageError.
void check_analyses(const AnalysisArguments& arguments, const ShowArguments& what,
                    const std::vector<std::string>& files);

// Of a text that is about to be passed through a model, and then of one that was.
struct Question {
  const Model& model;
  const Computed& computed;
  const AnalysisArguments& arguments;
  std::optional<std::int64_t> token = {}, against = {};

  AttentionKind attention() const;
};
// Throws UsageError for a --why or an --against that is not one token.
Question question_of(const Model& model, const Computed& computed, const AnalysisArguments& arguments);

struct AnalysisKind {
  const char* option;            // that asks for it
  bool of_decoders = false;      // encoders have no answer
  bool alone = true;             // can't stand with another that is alone
  bool drawn = true;             // pictures and CSV are of it
  bool takes_attention = false;  // --attention is for it
  bool takes_token = false;      // --why says of which token, and asks for nothing itself
  bool graph = false;            // .dot is of it
};

class Analysis : public AnalysisKind {
 public:
  explicit Analysis(AnalysisKind kind) : AnalysisKind(kind) {}
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;
  virtual ~Analysis() = default;

  virtual void add(App& app, AnalysisArguments& arguments) = 0;
  virtual bool asked(const AnalysisArguments& arguments) const = 0;
  virtual void check(const AnalysisArguments&) const {}
  // What the pass over the text is asked for. width: of the terminal; none: what is written has room for everything.
  virtual void ask(const Question&, std::optional<int> /*width*/, PassOptions&) const {}
  // What that pass has found, or what others find.
  virtual Finding find(const Question& question, const PassOptions& asked, Pass& pass) const = 0;
};

// What was found beside a second text, in JSON.
std::string with_corrupt_ids(const std::string& json, const std::vector<std::int64_t>& corrupt);

// ---- Words ----

std::string in_quotes(std::string_view token);
std::string in_quotes(const Tokenizer& tokenizer, std::int64_t token);
// Of each sign the largest of `values`, as bars of one scale, and how much the others are together. name(n): what the
// n-th is called. of_sum: they are parts of one, of which shares and the others' are told.
std::string signed_lines(const std::vector<double>& values, std::size_t most,
                         const std::function<std::string(std::size_t)>& name, bool of_sum = true);
// [L,H]: the heads that change most.
std::string head_lines(const Tensor& values);

}  // namespace attend::cli
