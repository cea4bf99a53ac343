"""Models of torchvision, timm and transformers, with random weights, have the derivatives that PyTorch computes.

Each in a small configuration, in f64; two models fix some of their arithmetic to f32, and are compared with its rounding.
"""

import os

import pytest
import torch
from torch import nn
from torch_reference import Applied, Supervised, differences, perturbed

os.environ["HF_HUB_OFFLINE"] = "1"


def images(size, count=2):
    return torch.randn(count, 3, size, size, dtype=torch.float64)


labels = lambda n: torch.randint(0, 10, (n,))  # noqa: E731
tokens = lambda *shape: torch.randint(0, 32, shape)  # noqa: E731


def torchvision(name, size, count=2, **options):
    models = pytest.importorskip("torchvision").models
    return Supervised(getattr(models, name)(weights=None, num_classes=10, **options)), (images(size, count), labels(count))


def resnet50():
    """The blocks of ResNet-50 with fewer of them and fewer channels."""
    from torchvision.models.resnet import Bottleneck, ResNet

    return Supervised(ResNet(Bottleneck, [2, 1, 1, 1], num_classes=10, width_per_group=8)), (images(32), labels(2))


def vit_b_16():
    """The layers of ViT-B/16 in number and kind, with fewer heads and channels."""
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(image_size=32, patch_size=16, num_layers=12, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=10)
    return Supervised(model), (images(32), labels(2))


def swin_t():
    """Shifted windows, patch merging and relative positions as in swin_t, with fewer channels."""
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 12, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10)
    return Supervised(model), (images(32), labels(2))


def timm(name, size, **options):
    return Supervised(pytest.importorskip("timm").create_model(name, pretrained=False, num_classes=10, **options)), (images(size), labels(2))


def hugging_face(model, config, loss, inputs, **options):
    library = pytest.importorskip("transformers")
    return Applied(getattr(library, model)(getattr(library, config)(**options)), loss), inputs


def language_model(model, x):
    return nn.functional.cross_entropy(model(input_ids=x).logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())


def whisper():
    pytest.importorskip("transformers")
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=24, num_mel_bins=8, max_source_positions=10)
    return Applied(WhisperEncoder(config), lambda m, x: m(x).last_hidden_state.square().mean()), (torch.randn(2, 8, 20, dtype=torch.float64),)


TINY = dict(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24)

MODELS = {
    "resnet50": resnet50,
    "vit_b_16": vit_b_16,
    "swin_t": swin_t,
    "efficientnet_b0": lambda: torchvision("efficientnet_b0", 32),
    "timm ViT": lambda: timm("vit_tiny_patch16_224", 32, img_size=32, depth=2, embed_dim=12, num_heads=2),
    "timm ConvNeXt": lambda: timm("convnext_atto", 32, depths=(1, 1, 1, 1), dims=(4, 8, 12, 16)),
    "GPT-2": lambda: hugging_face(
        "GPT2LMHeadModel", "GPT2Config", language_model, (tokens(2, 6),), vocab_size=32, n_positions=8, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0),
    "Llama": lambda: hugging_face("LlamaForCausalLM", "LlamaConfig", language_model, (tokens(2, 6),), num_key_value_heads=2, **TINY),
    "BERT": lambda: hugging_face(
        "BertForSequenceClassification", "BertConfig",
        lambda m, x, mask, y: nn.functional.cross_entropy(m(input_ids=x, attention_mask=mask).logits, y),
        (tokens(2, 6), torch.tensor([[1] * 6, [1] * 4 + [0] * 2]), torch.tensor([0, 1])), max_position_embeddings=8, **TINY),
    "Hugging Face ViT": lambda: hugging_face(
        "ViTForImageClassification", "ViTConfig", lambda m, x: m(pixel_values=x).logits.square().mean(), (images(16),), image_size=16,
        patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24),
    "Whisper encoder": whisper,
    "T5": lambda: hugging_face(
        "T5ForConditionalGeneration", "T5Config",
        lambda m, x, y: nn.functional.cross_entropy(m(input_ids=x, decoder_input_ids=y).logits.flatten(0, 1), y.roll(-1, 1).flatten()),
        (tokens(2, 6), tokens(2, 5)), vocab_size=32, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0),
}
#: As the libraries have them; by `pytest -m slow`.
WHOLE = {
    "resnet50": lambda: torchvision("resnet50", 64),
    "swin_t": lambda: torchvision("swin_t", 64, stochastic_depth_prob=0.0),
    "vit_b_16": lambda: torchvision("vit_b_16", 32, image_size=32),
}
#: The root mean squares of these are taken in f32 whatever the model's type is.
SINGLE = {"Llama": 3e-6, "T5": 3e-6}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WHOLE))
def test_a_whole_model_has_the_derivatives_of_pytorch(name):
    torch.manual_seed(0)
    module, inputs = WHOLE[name]()
    assert max(found := differences(perturbed(module.double().eval()), inputs)) <= 1e-10, found


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_of_a_library_has_the_derivatives_of_pytorch(name):
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    module = perturbed(module.double().eval())
    found = differences(module, inputs)
    assert max(found) <= SINGLE.get(name, 1e-10), found
