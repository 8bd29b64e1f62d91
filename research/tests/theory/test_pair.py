"""A policy beside its reference: against every response of two tokens, and against another implementation."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.sampler.network import ATTENTION, register
from research.theory.bound import total_variation
from research.theory.pair import PolicyPair, response_log_probs

MINICODER = Path(__file__).parents[3] / "assets" / "minicoder"
HOT = 2.5
"""A temperature at which MiniCoder's first token is not certain."""
MESSAGES = [{"role": "user", "content": "add"}]


def eager(path: Path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def write_scaled(path: Path, factor: float) -> Path:
    """MiniCoder with its logits times ``factor``."""
    model = eager(MINICODER)
    model.model.norm.weight.data *= factor
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(MINICODER).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def sharper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scaled(tmp_path_factory.mktemp("sharper"), 1.3)


def test_log_probabilities_are_those_of_transformers() -> None:
    register()
    ours = AutoModelForCausalLM.from_pretrained(MINICODER, dtype=torch.float32, attn_implementation=ATTENTION).eval()
    theirs = eager(MINICODER)
    generator = torch.Generator().manual_seed(0)
    rows = [
        tuple(torch.randint(3, 1000, (length,), generator=generator).tolist() for length in lengths)
        for lengths in ((5, 9), (31, 1), (12, 30))
    ]
    scored = response_log_probs(ours, rows, temperature=0.7)
    for row, (prompt, response) in enumerate(rows):
        with torch.inference_mode():
            logits = theirs(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        assert torch.allclose(scored[row, : len(response)], (logits / 0.7).log_softmax(-1), atol=1e-3)


def exact(policy: Path, reference: Path) -> tuple[float, float]:
    """KL and total variation of responses of at most two tokens to ``MESSAGES``, over all of them."""
    tokenizer = AutoTokenizer.from_pretrained(MINICODER)
    prompt = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)

    def log_probs(path: Path) -> tuple[torch.Tensor, ...]:
        model = eager(path)
        with torch.inference_mode():
            first = model(torch.tensor([prompt])).logits[0, -1]
            inputs = torch.tensor([[*prompt, token] for token in range(len(first))])
            second = model(inputs, logits_to_keep=1).logits[:, 0]
        return tuple((logits.double() / HOT).log_softmax(-1) for logits in (first, second))

    (p_first, p_second), (q_first, q_second) = log_probs(policy), log_probs(reference)
    joint_p, joint_q = p_first[:, None] + p_second, q_first[:, None] + q_second
    end = tokenizer.eos_token_id  # a response that ends at once has one token
    for joint, first in ((joint_p, p_first), (joint_q, q_first)):
        joint[end] = -math.inf
        joint[end, 0] = first[end]
    p = joint_p.exp()
    ratio = torch.where(p > 0, joint_p - joint_q, 0.0)
    return float((p * ratio).sum()), float((p - joint_q.exp()).abs().sum() / 2)


def test_estimates_are_those_of_all_responses(sharper: Path) -> None:
    pair = PolicyPair(str(sharper), str(MINICODER), temperature=HOT, max_tokens=2, batch_size=500)
    responses = pair.respond([MESSAGES] * 1000, list(range(1000)))
    kl, tv = exact(sharper, MINICODER)
    columns = {
        "kl": [response.kl for response in responses],
        "log-ratio": [response.log_ratio for response in responses],
        "tv": [total_variation(response.log_ratio) for response in responses],
    }
    spread = {}
    for name, value in (("kl", kl), ("log-ratio", kl), ("tv", tv)):
        found = torch.tensor(columns[name])
        spread[name] = float(found.std())
        assert abs(float(found.mean()) - value) <= 4 * spread[name] / math.sqrt(len(found)), name
    assert 0.005 < kl < 1 and spread["kl"] < spread["log-ratio"] / 2
    assert {response.tokens for response in responses} <= {1, 2}


def test_a_policy_is_at_no_distance_to_itself_and_its_responses_do_not_depend_on_the_batch() -> None:
    conversations = [[{"role": "user", "content": "x" * n}] for n in (1, 40, 9, 9, 3)]
    found = []
    for batch_size in (2, 5):
        pair = PolicyPair(str(MINICODER), str(MINICODER), 1.0, 8, batch_size)
        found.append(pair.respond(conversations, list(range(5))))
    assert found[0] == found[1]
    assert all(response.log_ratio == response.kl == 0 for response in found[0])
