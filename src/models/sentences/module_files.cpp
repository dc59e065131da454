#include "models/sentences/module_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "models/config.h"
#include "models/sentences/keys.h"
#include "models/weights.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* module_files_function = "Model.embed";

// A module's tensors, all of which are to be taken.
class Tensors {
 public:
  explicit Tensors(const fs::path& folder) : weights_(Weights::open(module_files_function, folder)) {}

  std::int64_t rows(const char* name) const {
    const View& found = find(name);
    return found.rank() == 2 ? found.size(0) : 0;
  }
  View take(const char* name, const Dims& shape) {
    const View* found = &find(name);
    if (found->shape() != shape)
      fail_at(weights_.place(), "{} has shape {}, expected {}", quote(name), found->shape(), shape);
    if (!is_floating(found->dtype())) fail_at(weights_.place(), "{} is {}", quote(name), found->dtype());
    taken_.emplace_back(name);
    return *found;
  }
  void check_all_taken() const {
    for (const auto& [name, view] : weights_.all())
      if (std::ranges::find(taken_, name) == taken_.end()) fail_at(weights_.place(), "{} is not known", quote(name));
  }

 private:
  const View& find(const char* name) const {
    const Matrix* matrix = weights_.find(name);
    if (!matrix) fail_at(weights_.place(), "{} is missing", quote(name));
    return matrix->view;
  }

  Weights weights_;
  std::vector<std::string> taken_;
};

Activation read_function(const Member& config) {
  if (!config.given("activation_function")) return Activation::tanh;
  const Member of = config["activation_function"];
  const std::string name = of.text(), last = name.substr(name.rfind('.') + 1);
  const auto found = std::ranges::find(dense_functions, last, [](const auto& each) { return each.first; });
  if (!name.starts_with("torch.nn.") || found == std::end(dense_functions))
    refuse_value(of, "Identity, Tanh, Sigmoid, ReLU, GELU and SiLU of torch.nn are");
  return found->second;
}

}  // namespace

// sentence_transformers.models.Pooling, or wherever later versions have it. PyLate's one class is the same.
std::string ModuleEntry::name() const {
  const std::string type = said["type"].text();
  if (!type.starts_with("sentence_transformers.") && type != "pylate.models.Dense.Dense")
    fail_at(said["type"].place(), "{} is not known here; modules of sentence_transformers are", quote(type));
  return type.substr(type.rfind('.') + 1);
}

// What is read lies in the folder: whoever wrote the file does not choose among this machine's.
std::string ModuleEntry::path() const {
  std::string path = said["path"].text();
  if (path == ".") path.clear();  // as model2vec writes it
  if (path == ".." || path.find('/') != std::string::npos) said["path"].refuse("a folder's name");
  return path;
}

void ModuleEntry::refuse(std::string_view known) const {
  fail_at(said["type"].place(), "{} is not known here; {}", quote(said["type"].text()), known);
}

std::vector<ModuleEntry> module_entries(const Member& list) {
  const std::vector<Member> all = list.list();
  std::vector<std::size_t> counting;  // of all
  std::map<std::string, std::size_t> places;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const auto [place, is_new] = places.try_emplace(all[n]["name"].text(), counting.size());
    if (is_new) counting.push_back(n);
    counting[place->second] = n;
  }
  std::vector<ModuleEntry> entries;
  entries.reserve(counting.size());
  for (const std::size_t n : counting) entries.push_back({all[n]});
  return entries;
}

std::vector<ModuleEntry> followed_entries(const Member& list) {
  constexpr std::size_t most = 32;
  std::vector<ModuleEntry> entries = module_entries(list);
  if (entries.size() > most) list.refuse(fmt::format("{} modules at most", most));
  return entries;
}

void check_rows(const Member& config, const char* rows, const char* otherwise) {
  const auto check = [&](const char* key, const char* unsaid) {
    if (text_or(config, key, unsaid) != rows)
      refuse_value(config.given(key) ? config[key] : config, fmt::format("a module that reads and writes {} is", rows));
  };
  check("module_input_name", otherwise);
  check("module_output_name", rows);
}

DenseModule read_dense(const fs::path& folder, const char* rows, std::int64_t& size) {
  std::optional<DenseModule> made;
  const bool there = read_if_there(module_files_function, folder / "config.json", [&](const Member& config) {
    check_rows(config, rows, rows);
    const std::int64_t in = config["in_features"].whole(1), out = config["out_features"].whole(1);
    if (in != size) fail_at(config["in_features"].place(), "is {}, what comes has {}", in, size);
    Tensors tensors(folder);
    const View weight = tensors.take("linear.weight", {out, in});
    const bool bias = truth_or(config, "bias", true);
    made.emplace(DenseModule{
        .linear = bias ? Linear(weight, tensors.take("linear.bias", {out})) : Linear(weight),
        .function = read_function(config),
        .adds_input = truth_or(config, "use_residual", false),
    });
    if (made->adds_input && in != out) made->residual.emplace(tensors.take("residual.weight", {out, in}));
    tensors.check_all_taken();
    size = out;
  });
  if (!there) fail_at({module_files_function, quote(folder.string())}, "config.json is missing");
  return std::move(*made);
}

DenseModule read_projection(const fs::path& folder, std::int64_t& size) {
  constexpr const char* name = "linear.weight";
  Tensors tensors(folder);
  const std::int64_t in = std::exchange(size, tensors.rows(name));
  return {.linear = Linear(tensors.take(name, {size, in})), .function = Activation::linear};
}

LayerNorm read_layer_norm(const fs::path& folder, std::int64_t size) {
  Tensors tensors(folder);
  LayerNorm norm(tensors.take("norm.weight", {size}), tensors.take("norm.bias", {size}));
  tensors.check_all_taken();
  return norm;
}

}  // namespace attend::inline v1::models
