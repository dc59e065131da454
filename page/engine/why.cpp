// Why a model answers so: what attend/analysis.h finds of the text that was run or grows.
#include "io/file_in_memory.h"
#include "page/engine/models.h"

namespace attend::page {

namespace {

// By the Jacobian lens, where it is asked for.
const JacobianLens* take_jacobian(Request& request) {
  bool by = false;
  if (!request.take("jacobian", by) || !by) return nullptr;
  if (!state.jacobian) fail(ErrorCode::bad_value, function, "no Jacobian lens is open");
  return &*state.jacobian;
}

void add_lens(const Ids& positions, std::int64_t top, const JacobianLens* jacobian) {
  const Lens x = attend::lens(model(), state.text.ids, positions, top, state.text.decoder_ids, jacobian);
  add_json(x, positions);
  add_tokens("", {x.ids.data<std::int64_t>(), x.ids.data<std::int64_t>() + x.ids.count()});
}

void lens(Request& request) {
  Ids positions;
  std::int64_t top = 5;
  request.take("positions", positions), request.take("top", top);
  const JacobianLens* jacobian = take_jacobian(request);
  request.end();
  add_lens(positions, top, jacobian);
}

// A Jacobian lens of the model, whose file the page has put beside it.
void jacobian(Request& request) {
  const auto path = request.need<std::string>("path");
  request.end();
  const std::int64_t ids[] = {0};
  std::optional<JacobianLens> found;
  try {
    found = JacobianLens::load(path);
    (void)attend::lens(model(), ids, {}, 1, first_decoder_ids(model().info()), &*found);  // it fits
  } catch (...) {
    drop_file_in_memory(path);
    throw;
  }
  drop_file_in_memory(path);
  answer.json["prompts"] = found->prompts;
  state.jacobian = std::move(found);
}

void why(Request& request) {
  AttributeOptions options{.token = take_token(request, "token"), .against = take_token(request, "against")};
  std::int64_t top = 0;
  request.take("position", options.position), request.take("lens", top);
  const JacobianLens* jacobian = take_jacobian(request);
  request.end();
  options.decoder_ids = state.text.decoder_ids;
  // What it has computed is not computed again; where heads are out, it is another model's.
  if (state.growth && state.edits.empty()) options.cache = &state.growth->cache();
  const Attribution x = attribute(model(), state.text.ids, options);
  add_json(x);
  answer.json["position"] = x.position;
  answer.add("by_token", sums_by_token(x));
  if (top > 0) add_lens({x.position}, top, jacobian);
}

AttentionKind take_attention(Request& request) {
  std::string name = "self";
  if (!request.take("attention", name) || name == "self") return AttentionKind::self;
  if (name == "cross") return AttentionKind::cross;
  if (name == "encoder") return AttentionKind::encoder;
  request.refuse("attention", "\"self\", \"cross\" or \"encoder\"", name);
}

// Model.ablate(): each head by itself, or those of `heads` together.
void ablate(Request& request) {
  AblateOptions options{.token = take_token(request, "token"), .against = take_token(request, "against")};
  bool mean = false;
  request.take("heads", options.heads), request.take("rows", options.rows), request.take("mean", mean);
  options.attention = take_attention(request);
  request.end();
  if (mean) options.set = Edit::Set::mean;
  options.decoder_ids = state.text.decoder_ids;
  add_json(attend::ablate(model(), state.text.ids, options));
}

constexpr Asked all_asked[] = {{"why", why}, {"lens", lens}, {"jacobian", jacobian}, {"ablate", ablate}};

}  // namespace

std::span<const Asked> asked_of_analyses() {
  return all_asked;
}

}  // namespace attend::page
