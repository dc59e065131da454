// What analyses found as CSV: the tables that Python's to_pandas() gives, with tokens.
#include "core/message.h"
#include "look/analysis_tokens.h"
#include "look/csv.h"

namespace attend::inline v0 {

namespace {

// As a recording has it.
std::string name_of(const AnalysisOf& of, std::int64_t layer, std::int64_t head, AttentionKind attention) {
  if (of.encoder_ids.empty()) return head_name(fmt::format("{}.self", layer), head);
  const char* stack = attention == AttentionKind::encoder ? "encoder" : "decoder";
  return head_name(fmt::format("{}.{}.{}", stack, layer, attention == AttentionKind::cross ? "cross" : "self"), head);
}

}  // namespace

std::string name_of(const AttributionPart& part, const AnalysisOf& of) {
  using Kind = AttributionPart::Kind;
  switch (part.kind) {
    case Kind::head:
      return name_of(of, part.layer, part.head, AttentionKind::self);
    case Kind::cross:
      return name_of(of, part.layer, part.head, AttentionKind::cross);
    case Kind::mlp:
      return fmt::format("mlp {}", part.layer);
    case Kind::embedding:
      return "embedding";
    case Kind::bias:
      return "bias";
    case Kind::rounding:
      return "rounding";
  }
  return "";
}

std::string attribution_csv(const Attribution& x, const AnalysisOf& of) {
  check_attribution("attribution_csv", x);
  std::string text = "kind,layer,head,name,key,token,value\n";
  const auto add = [&](std::string_view kind, AttentionKind attention, const Tensor& parts,
                       std::span<const std::int64_t> ids) {  // [L,H,T]
    if (parts.count() == 0) return;
    const std::int64_t H = parts.size(1), T = parts.size(2);
    const std::vector<std::string> tokens = token_texts("attribution_csv", of, ids, T);
    for (std::int64_t n = 0; n < parts.count(); ++n)
      text += fmt::format("{},{},{},{},{},{},{}\n", kind, n / (H * T), n / T % H,
                          name_of(of, n / (H * T), n / T % H, attention), n % T,
                          csv_cell(tokens[static_cast<std::size_t>(n % T)]), parts.data<float>()[n]);
  };
  add("head", AttentionKind::self, x.heads, of.ids);
  add("cross", AttentionKind::cross, x.cross, of.encoder_ids);
  for (std::int64_t l = 0; l < x.mlps.count(); ++l)
    text += fmt::format("mlp,{},,mlp {},,,{}\n", l, l, x.mlps.data<float>()[l]);
  return text + fmt::format("embedding,,,embedding,,,{}\nbias,,,bias,,,{}\nrounding,,,rounding,,,{}\n", x.embedding,
                            x.bias, x.rounding);
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

std::string ablation_csv(const Ablation& x, const AnalysisOf& of) {
  const std::vector<AblationChange> changes = changes_of("ablation_csv", x);
  std::string text = "layer,head,name";
  for (const AblationChange& change : changes) text += fmt::format(",{}", change.name);
  text += "\n";
  const auto add = [&](const std::string& head, std::int64_t n) {
    text += head;
    for (const AblationChange& change : changes) text += fmt::format(",{}", change.values.data<float>()[n]);
    text += "\n";
  };
  const View& first = changes.front().values;
  if (first.rank() == 1) {  // heads that were taken out together
    std::vector<std::string> names;
    names.reserve(x.heads.size());
    for (const auto& [layer, head] : x.heads) names.push_back(name_of(of, layer, head, x.attention));
    add(fmt::format(",,{}", fmt::join(names, " ")), 0);
    return text;
  }
  const std::int64_t H = first.size(1);
  for (std::int64_t n = 0; n < first.count(); ++n)
    add(fmt::format("{},{},{}", n / H, n % H, name_of(of, n / H, n % H, x.attention)), n);
  return text;
}

std::string patching_csv(const Patching& x, const AnalysisOf& of) {
  check_numbers("patching_csv", "recovered", x.recovered, 2);
  const bool heads = x.what == PatchOptions::What::heads;
  const std::int64_t columns = x.recovered.size(1);
  const auto tokens = heads ? std::vector<std::string>() : token_texts("patching_csv", of, of.ids, columns);
  std::string text = heads ? "layer,head,name,recovered\n" : "layer,position,token,recovered\n";
  for (std::int64_t n = 0; n < x.recovered.count(); ++n) {
    text += fmt::format("{},{},", n / columns, n % columns);
    text += heads ? name_of(of, n / columns, n % columns, x.attention)
                  : csv_cell(tokens[static_cast<std::size_t>(n % columns)]);
    text += fmt::format(",{}\n", x.recovered.data<float>()[n]);
  }
  return text;
}

}  // namespace attend::inline v0
