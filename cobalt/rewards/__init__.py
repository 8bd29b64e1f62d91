"""The training reward: pure functions of a response, its pass rate and the context's best pass rate so far."""

from cobalt.rewards.lengths import CountTokens, o200k_counter, tokenizer_counter
from cobalt.rewards.parts import (
    PAPER,
    RewardConstants,
    RewardParts,
    Thinking,
    penalised,
    thinking_of,
    training_reward,
    validation_reward,
)

__all__ = ["PAPER", "CountTokens", "RewardConstants", "RewardParts", "o200k_counter", "penalised", "tokenizer_counter"]
__all__ += ["Thinking", "thinking_of", "training_reward", "validation_reward"]
