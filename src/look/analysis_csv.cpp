// What analyses found as CSV: the tables that Python's to_pandas() gives, with tokens.
#include "core/message.h"
#include "look/analysis_tokens.h"
#include "look/csv.h"

namespace attend {

std::string attribution_csv(const Attribution& x, const AnalysisOf& of) {
  check_attribution("attribution_csv", x);
  std::string text = "kind,layer,head,key,token,value\n";
  const auto add = [&](std::string_view kind, const Tensor& parts, std::span<const std::int64_t> ids) {  // [L,H,T]
    if (parts.count() == 0) return;
    const std::int64_t H = parts.size(1), T = parts.size(2);
    const std::vector<std::string> tokens = token_texts("attribution_csv", of, ids, T);
    for (std::int64_t n = 0; n < parts.count(); ++n)
      text += fmt::format("{},{},{},{},{},{}\n", kind, n / (H * T), n / T % H, n % T,
                          csv_cell(tokens[static_cast<std::size_t>(n % T)]), parts.data<float>()[n]);
  };
  add("head", x.heads, of.ids);
  add("cross", x.cross, of.encoder_ids);
  for (std::int64_t l = 0; l < x.mlps.count(); ++l) text += fmt::format("mlp,{},,,,{}\n", l, x.mlps.data<float>()[l]);
  return text + fmt::format("embedding,,,,,{}\nbias,,,,,{}\nrounding,,,,,{}\n", x.embedding, x.bias, x.rounding);
}

std::string lens_csv(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of) {
  check_lens("lens_csv", lens, positions);
  const std::int64_t P = lens.ids.size(1), top = lens.ids.size(2);
  std::string text = "layer,position,place,id,token,log_probability\n";
  for (std::int64_t n = 0; n < lens.ids.count(); ++n) {
    const std::int64_t p = n / top % P, id = lens.ids.data<std::int64_t>()[n];
    text +=
        fmt::format("{},{},{},{},{},{}\n", n / top / P, positions.empty() ? p : positions[static_cast<std::size_t>(p)],
                    n % top, id, csv_cell(token_text(of, id)), lens.log_probabilities.data<float>()[n]);
  }
  return text;
}

std::string ablation_csv(const Ablation& x) {
  const AblationChange first = change_of("ablation_csv", x, "");
  std::vector<AblationChange> changes;
  for (const char* name : {"logit", "log_probability", "kl"})
    if (first.name != "cosine_distance") changes.push_back(change_of("ablation_csv", x, name));
  if (changes.empty()) changes.push_back(first);
  for (const AblationChange& change : changes)
    if (change.values.shape() != first.values.shape())
      fail(ErrorCode::bad_shape, "ablation_csv", "{} has shape {}, expected {}", change.name, change.values.shape(),
           first.values.shape());
  std::string text = "layer,head";
  for (const AblationChange& change : changes) text += fmt::format(",{}", change.name);
  text += "\n";
  const std::int64_t H = first.values.size(1);
  for (std::int64_t n = 0; n < first.values.count(); ++n) {
    text += fmt::format("{},{}", n / H, n % H);
    for (const AblationChange& change : changes) text += fmt::format(",{}", change.values.data<float>()[n]);
    text += "\n";
  }
  return text;
}

std::string patching_csv(const Patching& x, const AnalysisOf& of) {
  check_numbers("patching_csv", "recovered", x.recovered, 2);
  const bool heads = x.what == PatchOptions::What::heads;
  const std::int64_t columns = x.recovered.size(1);
  const auto tokens = heads ? std::vector<std::string>() : token_texts("patching_csv", of, of.ids, columns);
  std::string text = heads ? "layer,head,recovered\n" : "layer,position,token,recovered\n";
  for (std::int64_t n = 0; n < x.recovered.count(); ++n) {
    text += fmt::format("{},{},", n / columns, n % columns);
    if (!heads) text += csv_cell(tokens[static_cast<std::size_t>(n % columns)]) + ",";
    text += fmt::format("{}\n", x.recovered.data<float>()[n]);
  }
  return text;
}

}  // namespace attend
