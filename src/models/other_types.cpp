#include "models/other_types.h"

#include <fmt/format.h>

namespace attend::inline v1::models {

namespace {

// tests/pytorch/test_transformers_registry.py holds this against what it runs. Other types have no attention, compute
// it in code of their own (bloom, deberta-v2, ...), or were not run.
constexpr std::string_view types =
    " afmoe apertus arcee aria_text audioflamingo3 axk1 bailing_hybrid bamba beam bert-generation biogpt bitnet "
    "blenderbot blenderbot-small cohere cohere2 cohere2_moe ctrl cwm data2vec-text deepseek_v2 deepseek_v3 "
    "deepseek_v4 diffllama doge dots1 encoder-decoder ernie ernie4_5 esm esmc eurobert exaone4 exaone_moe "
    "falcon falcon_h1 flex_olmo flint fuyu gemma gemma3 gemma3n_text gemma4_text gemma4_unified gemma4_unified_text "
    "glm glm4 glm4_moe glm4_moe_lite glmasr gpt-sw3 gpt_bigcode gpt_neo gpt_oss gptj granite granite_swa granitemoe "
    "granitemoe_swa granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 "
    "hyperclovax inkling_text internlm3 iquestcoder jais2 jamba jetmoe jina_embeddings_v3 kimi_linear kolibri1 "
    "laguna layoutlm lfm2 lfm2_moe lfm3 llama4 llama4_text longcat_flash m2m_100 markuplm mbart mellum "
    "mimo_v2_flash minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral4 mixtral mllama "
    "mobilebert modernbert-decoder modernvbert moshi moss_transcribe_diarize mt5 musicflamingo nanochat nemotron "
    "neomme nllb-moe olmo olmo3 olmo_hybrid olmoe pegasus persimmon phi phi4_multimodal phimoe plbart "
    "qwen2_audio qwen2_moe qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_asr qwen3_moe qwen3_next "
    "recurrent_gemma roberta-prelayernorm roc_bert seamless_m4t seamless_m4t_v2 seed_oss solar_open stablelm "
    "starcoder2 switch_transformers t5gemma t5gemma2 ultrabert ultravbert umt5 vaultgemma voxtral whisper "
    "xlm-roberta-xl xmod youtu zaya ";

}  // namespace

bool record_takes(std::string_view model_type) {
  if (model_type.find(' ') != std::string_view::npos) return false;
  return types.find(fmt::format(" {} ", model_type)) != std::string_view::npos;
}

}  // namespace attend::inline v1::models
