"""The buckets of distances, by Transformers: relative_positions.safetensors.

    pip install torch==2.13.0 transformers==5.23.0 safetensors
    python tests/golden/make_relative_positions_golden.py

mpnet, and t5.BUCKETS.MAX_DISTANCE both ways and t5.one.BUCKETS.MAX_DISTANCE [601]: the bucket of a key's position less a
query's, -300 to 300, in f32.
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.t5.modeling_t5 import T5Attention

distances, bucket = torch.arange(-300, 301), T5Attention._relative_position_bucket
out = {"mpnet": MPNetEncoder.relative_position_bucket(distances).float()}
for buckets, most in [(32, 128), (64, 256), (33, 100), (12, 27), (20, 243), (4, 2), (10, 2000), (18, 128)]:
    out[f"t5.{buckets}.{most}"] = bucket(distances, True, buckets, most).float()
    out[f"t5.one.{buckets}.{most}"] = bucket(distances, False, buckets, max(most, buckets)).float()
save_file(out, pathlib.Path(__file__).parent / "relative_positions.safetensors")
