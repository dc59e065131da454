"""Every model type in the registry of transformers runs on attend, with eager's numbers, or is refused by name.

A dozen of them each time; all with --every-model, as .ci/long has it. A type that is in no table here must run: what a
newer transformers brings fails until someone has looked at it.
"""

import collections
import copy
import os
import pathlib
import re
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import registry
import transformers
from transformers.models.auto import modeling_auto

import attend.transformers
from attend import _transformers_attention, _transformers_models

attend.transformers.register()
transformers.logging.set_verbosity_error()

A_DOZEN = ["bert", "clap", "falcon", "git", "gpt2", "llama", "mamba", "qwen2_vl", "qwen3_moe", "siglip", "t5", "whisper"]

# Attention in their own code, or keys chosen for each query (`indices`).
REFUSED = set("""
    EvollaModel autoformer axk2 bark big_bird bigbird_pegasus blip blip_vision_model bloom bros canine clap
    clap_audio_model clvp clvp_decoder clvp_encoder codegen convbert cpmant cvt dab-detr data2vec-vision deberta
    deberta-v2 deepseek_ocr2_encoder deepseek_ocr2_sam_vision_model deepseek_ocr2_vision deepseek_v32
    deepseek_vl_hybrid donut-swin dots3_note_text embedding_gemma2 evolla fastspeech2_conformer
    fastspeech2_conformer_hifigan fastspeech2_conformer_with_hifigan flaubert flava flava_image_codebook
    flava_image_model flava_multimodal_model flava_text_model fsmt funnel gemma3n_audio gemma4 gemma4_audio git
    git_vision_model glm_moe_dsa glpn got_ocr2 got_ocr2_vision gpt_neox_japanese granite_speech
    granite_speech_encoder granite_speech_plus granite_speech_plus_encoder grounding-dino groupvit groupvit_text_model
    groupvit_vision_model hiera hy_v4 ibert imagegpt informer inkling2 inkling2_text kosmos-2.5
    kosmos_2_5_vision_model layoutlmv3 led levit lilt longformer longt5 luke lxmert mask2former maskformer
    maskformer-swin megatron-bert mgp-str mistral_large4 mistral_large4_text mm-grounding-dino mobilevit mobilevitv2
    mpnet mpt mra mvp nystromformer omdet-turbo oneformer openai-gpt pegasus_x prophetnet pvt pvt_v2 reformer rembert
    roformer rwkv sam sam_hq sam_hq_vision_model sam_vision_model seggpt sew-d slanet slanext slanext_vision speecht5
    speecht5_hifigan squeezebert superglue swiftformer swin2sr swinv2 table-transformer tapas timesformer trocr tvp
    unlimited_ocr unlimited_ocr_sam_vision_model unlimited_ocr_text unlimited_ocr_vision unlimited_ocr_vision_encoder
    vilt visual_bert vitdet vits wavlm xglm xlm xlnet yoso zoedepth
""".split())
# Convolutions, state spaces, Fourier transforms; pp_formulanet_vision has attention of its own, of which a warning tells.
NO_ATTENTION = set("""
    align_vision_model bit convnext convnextv2 dac dinov3_convnext encodec falcon_mamba fnet focalnet hgnet_v2 mamba
    mamba2 mobilenet_v1 mobilenet_v2 patchtsmixer poolformer pp_formulanet_vision pp_lcnet pp_lcnet_v3 pp_lcnet_v4
    pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec regnet resnet rt_detr_resnet
    sam3_lite_text_text_model superpoint textnet univnet uvdoc_backbone
""".split())
NOT_MADE = {name: reason for reason, names in {
    "a part of a model, and no model by itself": """
        blip_text_model edgetam_mask_decoder edgetam_prompt_encoder edgetam_video_mask_decoder
        edgetam_video_prompt_encoder gemma4_unified_audio gemma4_unified_vision idefics_perciever idefics_vision
        layoutxlm pp_chart2table pp_chart2table_vision sam2_mask_decoder sam2_prompt_encoder sam2_video_mask_decoder
        sam2_video_prompt_encoder sam3_geometry_encoder sam3_lite_text_geometry_encoder sam3_tracker_mask_decoder
        sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder sam3_tracker_video_prompt_encoder
        sam_hq_mask_decoder sam_hq_prompt_encoder sam_mask_decoder sam_prompt_encoder sapiens2_head t5_gemma_module
        vibevoice_diffusion voxtral_realtime_text
    """, "needs packages that the tests do without (Pillow, timm, SciPy, natten, detectron2, torchaudio)": """
        dinat edgetam edgetam_vision_model eomt eomt_dinov3 fast_vlm gemma3n gemma3n_vision higgs_audio_v2_tokenizer
        inkling_mm_model inkling_vision layoutlmv2 pe_audio_video pe_audio_video_encoder pe_video pe_video_encoder
        perception_lm timm_backbone timm_wrapper videomt
    """, "its sizes depend on one another in a way of their own": """
        chameleon cohere_compass cohere_compass_text csm d_fine dbrx deepseek_ocr2 deepseek_ocr2_text depth_pro
        diffusion_gemma dots3_note dots3_note_audio_encoder dots3_note_vision_encoder efficientloftr emu3
        ernie4_5_vl_moe ernie4_5_vl_moe_text esmfold2 fun_asr_nano gemma4_assistant gemma4_unified_assistant glm5_next
        glm5_next_text gradium_phonon_tts granite4_vision lw_detr lw_detr_vit mimi mimi_decoder molmo2
        moonshine_streaming muse_spark muse_spark_audio musicgen musicgen_melody nemotron_h_omni nougat
        pix2struct_text_model pocket_tts pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder
        pp_ocrv5_server_det pp_ocrv6_medium_det qwen3_omni_moe_talker_text qwen4_exp qwen4_exp_text rf_detr
        t5gemma2_decoder t5gemma2_encoder t5gemma2_text upernet vitmatte zamba zamba2
    """, "large, whatever its configuration says": """
        blt emu3_vqgan florence2 florence_vision perceiver qwen2_5_omni_bigvgan qwen2_5_omni_token2wav rag vibevoice
        vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder
        vibevoice_asr
    """,
}.items() for name in names.split()}
NOT_RUN = {name: reason for reason, names in {
    "needs inputs, or sizes that fit them, of its own": """
        align blip-2 blt_global_transformer blt_local_decoder blt_local_encoder bridgetower_vision_model
        chameleon_vqgan chmv2 decision_transformer deimv2 depth_anything dia dia_decoder edgetam_video efficientnet
        ernie4_5_moe fun_asr_nano_encoder gemma4_vision glm_image_vqmodel hunyuan_vl hunyuan_vl_text idefics
        idefics2_perceiver inkling2_vision inkling_audio instructblip instructblipvideo janus_vqgan jev kosmos-2
        kyutai_speech_to_text lightglue llama4_vision_model minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision
        mllama_vision_model molmo2_adapter molmo2_vision moshi_depth muse_glimmer_assistant musicgen_decoder
        musicgen_melody_decoder nemo_speechlm nemotron_h neucodec paddleocr_vl_vision phi4_multimodal_audio pi0
        pix2struct pix2struct_vision_model pop2piano pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4
        pp_ocrv5_mobile_det pp_ocrv6_small_det prompt_depth_anything qwen2_5_omni qwen2_5_omni_audio_encoder
        qwen2_5_omni_dit qwen2_5_omni_thinker qwen3_asr_encoder qwen3_omni_moe qwen3_omni_moe_audio_encoder
        qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_thinker rt_detr rt_detr_v2 sam2 sam2_hiera_det_model
        sam2_video sam2_vision_model sam3_detr_decoder sam3_detr_encoder sam3_lite_text_detr_decoder
        sam3_lite_text_detr_encoder sam3_lite_text_mask_decoder sam3_mask_decoder sam3_tracker sam3_tracker_video
        sam3_video shieldgemma2 siglip2 siglip2_vision_model step3p7 time_series_transformer timesfm timesfm2_5
        tipsv2_dpt udop uvdoc video_llama_3_vision videoprism videoprism_vision_model vitpose voxtral_realtime xclip
        xcodec xcodec2 xlstm
    """, "gives NaN with weights that are not trained": """
        nemotron3_5_asr nemotron_asr_streaming nemotron_asr_streaming_encoder
    """,
}.items() for name in names.split()}


def pytest_generate_tests(metafunc):
    if "model_type" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-model")
        metafunc.parametrize("model_type", registry.TYPES if every else A_DOZEN)


class OwnAttention(TorchDispatchMode):
    """Which modules that are called attention had PyTorch compute weights meanwhile."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if "softmax" in str(function) or "scaled_dot_product" in str(function):
            frame = sys._getframe(1)
            while frame and not (isinstance(frame.f_locals.get("self"), torch.nn.Module) and
                                 type(frame.f_locals["self"]).__module__.startswith("transformers.")):
                frame = frame.f_back
            name = type(frame.f_locals["self"]).__name__ if frame else "no module"
            if re.search("(?<!Deformable)(?<!MixerGated)Attention", name) or "scaled_dot_product" in str(function):
                self.names.add(name)
        return function(*arguments, **keywords or {})


@pytest.fixture
def callers(monkeypatch):
    """The modules that called attend's function."""
    modules, ours = collections.Counter(), _transformers_attention.attention_forward

    def counting(module, *arguments, **keywords):
        modules[module] += 1
        return ours(module, *arguments, **keywords)
    monkeypatch.setattr(_transformers_models, "attention_forward", counting)
    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "attend", counting)
    return modules


def made(model_type, implementation):
    config = registry.tiny(model_type)
    config._attn_implementation = implementation
    torch.manual_seed(3)
    model = registry.model_class(model_type)(config).eval()
    for module in model.modules():  # scores far from 0, where masks and scales matter
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, 0.0, 0.1)
    return model


def first_that_fits(model):
    """(arguments, outputs) of the first candidates that the model takes."""
    refusals = []
    for arguments in registry.candidates(model):
        try:
            return arguments, run(model, arguments)
        except Exception as error:
            refusals.append(f"{({name: list(x.shape) for name, x in arguments.items()})}: {error}")
    raise AssertionError("no inputs fit:\n" + "\n".join(refusals))


@torch.no_grad()
def run(model, arguments):
    torch.manual_seed(1)  # some draw noise
    outputs = model(**copy.deepcopy(arguments))
    if isinstance(outputs, dict):  # with the weights that eager gives some unasked
        outputs = {name: each for name, each in outputs.items() if "attentions" not in name}
    return [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor) and x.is_floating_point()]


def close(got, expected):
    """As test_transformers.py has it, for each output."""
    assert len(got) == len(expected) > 0
    for a, b in zip(got, expected):
        assert b.isfinite().any()
        largest = b[b.isfinite()].abs().max().item()
        torch.testing.assert_close(a, b, rtol=0, atol=128 * torch.finfo(torch.float32).eps * largest, equal_nan=True)


def outcome(model_type, callers):
    """What attn_implementation="attend" does with a model of the type."""
    eager = made(model_type, "eager")
    try:
        model = made(model_type, "attend")
        model.load_state_dict(eager.state_dict())
        arguments, expected = first_that_fits(eager)
        ran = []
        for module in model.modules():
            if _transformers_models.kind(type(module)) == "interface":
                module.register_forward_hook(lambda module, *_: ran.append(module))
        with OwnAttention() as own:
            got = run(model, arguments)
    except ValueError as error:
        assert str(error).startswith("attend.transformers: "), error
        return "refused"
    close(got, expected)
    assert set(ran) <= set(callers), f"not on attend: {({type(each).__name__ for each in set(ran) - set(callers)})}"
    silent = {name for name in own.names if not any(name in message for message in _transformers_attention._warned)}
    assert not silent, f"computed in silence by {silent}"
    return "ran" if callers else "no attention"


@pytest.mark.filterwarnings("ignore:attend.transformers")
def test_a_type_of_model_runs_on_attend_or_is_refused(model_type, callers, monkeypatch):
    monkeypatch.setattr(_transformers_attention, "_warned", set())
    if model_type in NOT_MADE:
        pytest.skip(NOT_MADE[model_type])
    if model_type in NOT_RUN:
        made(model_type, "attend")  # and not refused
        pytest.skip(f"made, and not run: {NOT_RUN[model_type]}")
    expected = "refused" if model_type in REFUSED else "no attention" if model_type in NO_ATTENTION else "ran"
    assert outcome(model_type, callers) == expected


def opened_types():
    """The rows of src/models/model_types.cpp: of each type the class that attend.Model computes."""
    table = pathlib.Path("src/models/model_types.cpp").read_text()
    return dict(re.findall(r'^    {"([\w-]+)", ModelFamily::\w+, "(\w+)"', table, re.M))


def test_the_classes_of_the_types_that_attend_opens():
    types = opened_types()
    assert types.pop("jina_bert") == "JinaBertModel"  # which is not there
    assert {"bert", "t5"} <= types.keys()
    assert {type: getattr(transformers, name).config_class.model_type for type, name in types.items()} == {type: type for type in types}


def test_the_types_of_text_that_the_command_sends_here():
    """src/models/other_types.cpp: those that run, but for what attend.Model opens itself."""
    table = pathlib.Path("src/models/other_types.cpp").read_text()
    listed = set("".join(re.findall(r'^    "(.*)"', table, re.M)).split())
    opened = opened_types().keys()
    of_text = {name for task in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SEQUENCE_CLASSIFICATION")
               for name in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")}
    runs = set(registry.TYPES) - REFUSED - NO_ATTENTION - NOT_MADE.keys() - NOT_RUN.keys()
    assert listed == (of_text & runs) - opened


def test_no_type_is_in_two_tables():
    tables = [*REFUSED, *NO_ATTENTION, *NOT_MADE, *NOT_RUN]
    assert len(tables) == len(set(tables)) and set(tables) <= set(registry.TYPES)
