// SAELens' files of sparse autoencoders and transcoders, as its load_from_disk() reads them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "analysis/sparse_autoencoder.h"
#include "io/json_file.h"

namespace attend::inline v1 {

namespace {

using State = SparseAutoencoder::State;
using StateKind = State::Kind;

struct Architecture {
  std::string_view name;
  StateKind kind;
  bool transcoder = false, skip = false;
};
constexpr std::array<Architecture, 8> architectures = {{
    {"standard", StateKind::relu},
    {"gated", StateKind::gated},
    {"jumprelu", StateKind::jumprelu},
    {"topk", StateKind::topk},
    {"transcoder", StateKind::relu, true},
    {"skip_transcoder", StateKind::relu, true, true},
    {"jumprelu_transcoder", StateKind::jumprelu, true},
    {"jumprelu_skip_transcoder", StateKind::jumprelu, true, true},
}};

// A name of TransformerLens, behind "blocks.5.".
struct Hook {
  std::string_view name;
  ModelPlace at;
  std::int64_t after = 0;  // how many layers later our place stands
};
constexpr std::string_view normalized_hook = "ln2.hook_normalized";
constexpr std::array<Hook, 13> hooks = {{
    {"hook_resid_pre", ModelPlace::residual},
    {"hook_resid_post", ModelPlace::residual, 1},
    {"hook_resid_mid", ModelPlace::residual_mid},
    {"hook_attn_out", ModelPlace::attention},
    {"hook_mlp_out", ModelPlace::mlp},
    {"attn.hook_q", ModelPlace::q},
    {"attn.hook_k", ModelPlace::k},
    {"attn.hook_v", ModelPlace::v},
    {"attn.hook_z", ModelPlace::z},
    {normalized_hook, ModelPlace::mlp_input},
    {"hook_mlp_in", ModelPlace::mlp_input},  // of TransformerLens' bridges, whose MLPs' input has that name too
    {"mlp.hook_in", ModelPlace::mlp_input},
    {"mlp.hook_post", ModelPlace::mlp_hidden},
}};

// What says where it belongs: under "metadata", before SAELens 6 beside all else.
class Metadata {
 public:
  explicit Metadata(const Member& config) : config_(config) {
    if (config.given("metadata")) inner_.emplace(config["metadata"]);
  }
  // Under the first of these names that it has; none where that is null.
  std::optional<Member> find(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (inner_ && inner_->given(name)) return (*inner_)[name];
      if (config_.given(name)) return config_[name];
    }
    return {};
  }

 private:
  const Member& config_;
  std::optional<Member> inner_;
};

const Hook* find_hook(std::string_view rest) {
  const auto* found = std::ranges::find(hooks, rest, &Hook::name);
  return found == hooks.end() ? nullptr : found;
}

// "blocks.5.hook_resid_post"
LayerPlace read_hook(const Member& name) {
  const std::string text = name.text();
  constexpr std::string_view begin = "blocks.";
  std::int64_t layer = 0;
  const char* first = text.data() + std::min(begin.size(), text.size());
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, layer);
  const bool numbered = text.starts_with(begin) && error == std::errc() && layer >= 0 && end != last && *end == '.';
  const Hook* hook =
      numbered ? find_hook(std::string_view(end + 1, static_cast<std::size_t>(last - end - 1))) : nullptr;
  if (hook == nullptr || layer > 100'000) {
    std::string known;
    for (const Hook& each : hooks) known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
    fail_at(name.place(), "{} is not known here, expected blocks.N. and one of {}; or give the place", quote(text),
            known);
  }
  return {hook->at, layer + hook->after};
}

const Architecture& read_architecture(const Member& config) {
  std::string name = config.given("architecture") ? config["architecture"].text() : "standard";
  for (const char* key : {"activation_fn", "activation_fn_str"}) {  // before SAELens 6
    if (!config.given(key)) continue;
    const std::string activation = config[key].text();
    if (activation == "topk") name = "topk";
    if (activation != "topk" && activation != "relu")
      fail_at(config[key].place(), "{} is not known here, expected 'relu' or 'topk'", quote(activation));
  }
  const auto* found = std::ranges::find(architectures, name, &Architecture::name);
  if (found != architectures.end()) return *found;
  std::string known;
  for (const Architecture& each : architectures) known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
  fail_at(config.place().in("architecture"), "{} is not known here, expected one of {}", quote(name), known);
}

State::Normalised read_normalised(const Member& config) {
  if (!config.given("normalize_activations")) return State::Normalised::none;
  const Member member = config["normalize_activations"];
  if (member.value().is_boolean() && !member.truth()) return State::Normalised::none;
  const std::string name = member.value().is_boolean() ? "expected_average_only_in" : member.text();
  if (name == "none") return State::Normalised::none;
  if (name == "constant_norm_rescale") return State::Normalised::length;
  if (name == "layer_norm") return State::Normalised::layer_norm;
  if (name == "expected_average_only_in" || name == "covariance_whitening")
    fail_at(member.place(), "{} has to be folded into the weights, as SAELens does when it saves what it has trained",
            quote(name));
  fail_at(member.place(), "{} is not known here, expected none, constant_norm_rescale or layer_norm", quote(name));
}

std::int64_t read_k(const Member& config, std::int64_t features) {
  if (!config.given("activation_fn_kwargs") || config.given("k")) return config["k"].whole(1, features);
  return config["activation_fn_kwargs"]["k"].whole(1, features);
}

// What TransformerLens does to a model's weights when it reads them changes what stands at its places.
void read_processing(const Metadata& metadata, State& of) {
  const std::optional<Member> options = metadata.find({"model_from_pretrained_kwargs"});
  if (!options) return;
  const auto asks = [&](const char* name) { return options->given(name) && (*options)[name].truth(); };
  if (asks("center_writing_weights")) of.centred_stream = true;
  const bool z = of.reads && (of.reads->at == ModelPlace::z || of.reads->at == ModelPlace::v);
  if (z && asks("fold_value_biases"))
    fail_at(options->place(), "fold_value_biases takes the values' biases out of the heads, and these have them here");
  if (of.reads && of.reads->at == ModelPlace::mlp_input && asks("fold_ln"))
    fail_at(options->place(), "fold_ln takes the norm's weight out of what an MLP reads, which has it here");
}

void read_places(const Member& config, const Architecture& architecture, const SparseAutoencoderOptions& options,
                 State& of) {
  const Metadata metadata(config);
  if (const auto head = metadata.find({"hook_head_index", "hook_point_head_index"}))
    fail_at(head->place(), "an autoencoder for a single head is not known here, expected null");
  const std::optional<Member> reads = metadata.find({"hook_name", "hook_point"}),
                              writes = metadata.find({"hook_name_out"});
  of.reads = options.reads;
  if (!of.reads && reads) {
    of.reads = read_hook(*reads);
    of.before_weight = reads->text().ends_with(normalized_hook);
  }
  of.writes = of.reads;
  if (architecture.transcoder)
    of.writes = writes && !options.writes ? std::optional(read_hook(*writes)) : options.writes;
  if (!architecture.transcoder && options.writes)
    fail(ErrorCode::bad_value, config.place().function,
         "an autoencoder writes where it reads: writes is for transcoders only");
  read_processing(metadata, of);
  if (options.centred) of.centred_stream = *options.centred;
}

struct Expected {
  std::string_view name;
  Dims shape;
};

std::vector<Expected> expected_weights(const Architecture& of, std::int64_t in, std::int64_t size, std::int64_t out) {
  std::vector<Expected> all{{"W_enc", {in, size}}, {"W_dec", {size, out}}, {"b_dec", {out}}};
  if (of.kind == StateKind::gated)
    all.insert(all.end(), {{"b_gate", {size}}, {"r_mag", {size}}, {"b_mag", {size}}});
  else
    all.push_back({"b_enc", {size}});
  if (of.kind == StateKind::jumprelu) all.push_back({"threshold", {size}});
  if (of.skip) all.push_back({"W_skip", {out, in}});
  return all;
}

// What is wrong with one of them; empty: nothing.
std::string wrong_with(const Expected& expected, const TensorMap& given) {
  const auto found = given.find(expected.name);
  if (found == given.end()) return fmt::format("{} {} is missing", expected.name, expected.shape);
  const Tensor& x = found->second;
  if (x.shape() != expected.shape)
    return fmt::format("{} has shape {}, expected {}", expected.name, x.shape(), expected.shape);
  if (!is_floating(x.dtype())) return fmt::format("{} is {}, expected floating point", expected.name, x.dtype());
  return "";
}

// scaling_factor was written for a while, and was 1.
bool is_without_meaning(const std::string& name, const Tensor& x) {
  if (name != "scaling_factor" || !is_floating(x.dtype())) return false;
  const Tensor wide = x.view().to(DType::f32);
  return std::all_of(wide.data<float>(), wide.data<float>() + wide.count(), [](float each) { return each == 1; });
}

TensorMap read_weights(const Place& place, const std::vector<Expected>& expected, const TensorMap& given) {
  std::string wrong;
  const auto add = [&](const std::string& what) {
    if (!what.empty()) wrong += (wrong.empty() ? "" : "; ") + what;
  };
  for (const Expected& each : expected) add(wrong_with(each, given));
  for (const auto& [name, x] : given) {
    const bool known = std::ranges::find(expected, name, &Expected::name) != expected.end();
    if (!known && !is_without_meaning(name, x)) add(fmt::format("{} {} is not known here", quote(name), x.shape()));
  }
  if (!wrong.empty()) fail_at(place, "{}", wrong);
  TensorMap weights;
  for (const Expected& each : expected) {
    const Tensor& x =
        weights.emplace(std::string(each.name), given.find(each.name)->second.view().to(DType::f32)).first->second;
    if (const std::optional<float> bad = analysis::not_finite(x))
      fail_at(place, "{} has {}, expected finite numbers", each.name, *bad);
  }
  return weights;
}

// Of the decoder's rows.
Tensor norms_of(const Place& place, const Tensor& decoder) {
  Tensor norms({decoder.size(0)});
  for (std::int64_t f = 0; f < decoder.size(0); ++f) {
    double squares = 0;
    for (std::int64_t c = 0; c < decoder.size(1); ++c) {
      const auto each = static_cast<double>(decoder.data<float>()[f * decoder.size(1) + c]);
      squares += each * each;
    }
    norms.data<float>()[f] = static_cast<float>(std::sqrt(squares));
    if (norms.data<float>()[f] == 0)
      fail_at(place, "W_dec has zeros for feature {}, and rescale_acts_by_decoder_norm divides by its length", f);
  }
  return norms;
}

SparseAutoencoder read(std::string text, const Place& config_place, const TensorMap& tensors,
                       const Place& weights_place, const SparseAutoencoderOptions& options) {
  const JsonFile file{config_place, parse_json(config_place, text)};
  const Member config = file.object();
  const Architecture& architecture = read_architecture(config);
  auto made = std::make_shared<State>();
  made->config = std::move(text);
  made->architecture = architecture.name;
  made->kind = architecture.kind, made->transcoder = architecture.transcoder;
  made->normalised = read_normalised(config);
  const std::int64_t in = config["d_in"].whole(made->normalised == State::Normalised::layer_norm ? 2 : 1),
                     size = config["d_sae"].whole(1), out = architecture.transcoder ? config["d_out"].whole(1) : in;
  if (architecture.kind == StateKind::topk) made->k = read_k(config, size);
  const bool said = config.given("apply_b_dec_to_input");
  made->subtracts_bias = said ? config["apply_b_dec_to_input"].truth() : !architecture.transcoder;
  if (architecture.transcoder && made->subtracts_bias)
    fail_at(config["apply_b_dec_to_input"].place(), "true is for autoencoders only, and this is a {}",
            architecture.name);
  read_places(config, architecture, options, *made);

  made->weights = read_weights(weights_place, expected_weights(architecture, in, size, out), tensors);
  const TensorMap& weights = made->weights;
  const bool rescaled = config.given("rescale_acts_by_decoder_norm") && config["rescale_acts_by_decoder_norm"].truth();
  if (rescaled && architecture.kind == StateKind::topk)
    made->norms = norms_of(weights_place, weights.find("W_dec")->second);
  const auto bias = weights.find("b_enc");
  made->encoder = Linear::borrow(weights.find("W_enc")->second.view().transpose(0, 1),
                                 bias == weights.end() ? std::nullopt : std::optional(bias->second.view()));
  if (architecture.skip) made->skip = Linear::borrow(weights.find("W_skip")->second.view());
  return SparseAutoencoderAccess::make(std::move(made));
}

}  // namespace

SparseAutoencoder SparseAutoencoder::load(const std::filesystem::path& folder,
                                          const SparseAutoencoderOptions& options) {
  constexpr const char* function = "SparseAutoencoder.load";
  const InputFile config(function, folder / "cfg.json");
  const std::filesystem::path weights = folder / "sae_weights.safetensors";
  const Place place{function, quote(weights.string())};
  return read(config.read(0, config.size()), config.place(), read_safetensors(weights).tensors, place, options);
}

SparseAutoencoder SparseAutoencoder::of(std::string_view config, const TensorMap& weights,
                                        const SparseAutoencoderOptions& options) {
  const Place place{"SparseAutoencoder.of"};
  return read(std::string(config), place.in("config"), weights, place.in("weights"), options);
}

}  // namespace attend::inline v1
