// What ablate() found, as a picture and as CSV.
#include <algorithm>

#include "core/message.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

// A tensor of an ablation, by its name; empty: the one that its kind of model is judged by. Throws bad_value.
struct AblationChange {
  std::string_view name;
  View values;  // [L,H]
};
// What its kind of model has.
std::vector<AblationChange> all_of(const Ablation& x) {
  if (x.cosine_distance.count() > 0) return {{"cosine_distance", x.cosine_distance}};
  if (x.log_probability.count() == 0) return {{"logit", x.logit}};  // of labels that don't exclude each other
  return {{"logit", x.logit}, {"log_probability", x.log_probability}, {"kl", x.kl}};
}

std::vector<AblationChange> changes_of(const char* function, const Ablation& x) {
  std::vector<AblationChange> changes = all_of(x);
  const View& first = changes.front().values;
  for (const AblationChange& change : changes) {
    const bool together = change.values.rank() == 1 && change.values.count() > 0;
    check_numbers(function, "change", change.values, together ? 1 : 2);
    if (change.values.shape() != first.shape())
      fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {}", change.name, change.values.shape(),
           first.shape());
  }
  return changes;
}

AblationChange change_of(const char* function, const Ablation& x, std::string_view name) {
  const std::vector<AblationChange> all = all_of(x);
  const bool encoder = all.front().name == "cosine_distance";
  if (name.empty()) name = all.size() == 1 ? all.front().name : "log_probability";
  const auto found = std::ranges::find(all, name, &AblationChange::name);
  constexpr std::string_view known[] = {"log_probability", "logit", "kl", "cosine_distance"};
  if (std::ranges::find(known, name) == std::end(known))
    fail(ErrorCode::bad_value, function,
         "change: expected 'log_probability', 'logit', 'kl' or 'cosine_distance', got '{}'", name);
  if (found == all.end())
    fail(ErrorCode::bad_value, function, "change is {}, which {} do not have", name,
         encoder           ? "encoders"
         : all.size() == 1 ? "labels that do not exclude each other"
                           : "decoders");
  if (found->values.count() == 1 && found->values.rank() == 1)
    fail(ErrorCode::bad_shape, function, "the heads were taken out together: there is one number, and no map");
  check_numbers(function, "change", found->values, 2);
  return *found;
}

}  // namespace

Picture ablation_picture(const Ablation& x, const AnalysisOf& of, std::string_view name) {
  const AblationChange change = change_of("ablation_picture", x, name);
  HeatMap map = head_map(change.values);
  map.reduction = "log-probability after less before, nats";
  std::string what;
  if (change.name == "cosine_distance") {
    what = "how far the mean state turns without each head";
    map.reduction = "1 - cosine of the state before and after";
  } else {
    const std::string tokens =
        x.token ? answer_of(of, *x.token, change.name == "logit" ? x.against : std::nullopt) : "the tokens that follow";
    if (change.name == "kl") what = "KL divergence of the answer without each head";
    if (change.name == "logit") what = fmt::format("logit of {} without each head", tokens);
    if (change.name == "log_probability") what = fmt::format("log-probability of {} without each head", tokens);
  }
  if (change.name == "kl") map.reduction = "KL(before, after), nats";
  if (change.name == "logit") map.reduction = "logit after less before";
  if (change.name == "kl" || change.name == "cosine_distance") map.scale = PictureScale::linear;
  map.caption = text_caption(of);
  return picture_of(change.values.clone(), std::move(map), titled(of, what));
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

}  // namespace attend::inline v1
