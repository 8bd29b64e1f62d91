"""The table of all changes made to veRL 0.5.0. Nothing of veRL is edited, and nothing is changed that is not listed.

| backend | for |
|---|---|
| ``verl`` | vLLM rollouts on GPUs |
| ``hf`` | Hugging Face rollouts on GPUs |
| ``cpu`` | Hugging Face rollouts on a CPU |
"""

from dataclasses import dataclass

from cobalt.errors import SetupError

CPU_BACKEND = "cpu"
BACKENDS = ("verl", "hf", CPU_BACKEND)
BACKEND_VARIABLE = "COBALT_BACKEND"
SEED_VARIABLE = "COBALT_ROLLOUT_SEED"
SHARE_VARIABLE = "COBALT_SHARE_PROMPTS"
"""``1``: each prompt is computed once."""
RELEASE, TOKENS = "release", "tokens"
"""What a token may count for in the loss (``cobalt.training.patches.loss_weights``)."""
WEIGHTS_VARIABLE = "COBALT_LOSS_WEIGHTS"
"""One of these; unset: ``release``."""
VERL_VERSION = "0.5.0"
"""The one that all patches were written and tested for."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One change: to which module of veRL, by what, why, and for how long.

    ``apply`` and ``during`` are dotted names, ``package.module:function``: what they name is imported when veRL's
    module is. A process that never imports veRL pays nothing, and the patches' modules may import torch and veRL.
    """

    module: str
    what: str
    """The change, as it is said on stdout when it becomes active."""
    fault: str
    """What veRL does wrong or lacks."""
    until: str
    """What makes the patch needless."""
    apply: str | None = None
    """Is called with the module after it has been executed."""
    during: str | None = None
    """A context manager that is held while the module is executed."""
    backends: tuple[str, ...] = BACKENDS
    sharing: bool = False
    """Only with ``cobalt.share_prompts``."""
    online: bool = False
    """Only with ``cobalt.online``."""
    versions: tuple[str, ...] = (VERL_VERSION,)


PATCHES = (
    Patch(
        module="verl.trainer.ppo.reward",
        what="registers the reward managers 'cobalt' and 'cobalt_online'",
        fault="looks the manager's name up before it loads any file of the user's",
        until="managers, too, are loaded by path",
        apply="cobalt.training.patches.reward_manager:register_manager",
    ),
    Patch(
        module="verl.trainer.ppo.ray_trainer",
        what="the reward's parts are metrics of a step",
        fault="`reward_extra_info` reaches dumps and validation only",
        until="training metrics hold it",
        apply="cobalt.training.patches.trainer:log_reward_parts",
    ),
    Patch(
        module="verl.trainer.ppo.ray_trainer",
        what="training ends where its budget is spent",
        fault="counts steps, which cost more with one method than with another",
        until="training can be ended by its data set",
        apply="cobalt.training.patches.trainer:end_at_budget",
    ),
    Patch(
        module="verl.trainer.ppo.ray_trainer",
        what="scoring is checked before training and watched during it",
        fault="starts without asking whether samples can be scored, and trains on however many cannot",
        until="managers can refuse to start, and can end training",
        apply="cobalt.training.patches.trainer:watch_scoring",
    ),
    Patch(
        module="verl.trainer.ppo.ray_trainer",
        what="a finished run is left alone",
        fault="resumes behind the last checkpoint, takes a step, and only then asks whether training is over",
        until="it asks before",
        apply="cobalt.training.patches.trainer:leave_finished_runs",
    ),
    Patch(
        module="verl.utils.tracking",
        what="metrics are also written to metrics.jsonl",
        fault="none of its loggers leaves a plain file of all metrics",
        until="one does",
        apply="cobalt.training.patches.tracking:write_metrics",
    ),
    Patch(
        module="verl.workers.rollout",
        what="HFRollout is the sampler of cobalt.sampler",
        fault="samples n times prompts that the trainer has repeated n times, each new token at one and the same "
        "position (transformers 4.57 never advances `position_ids`), and no row ends before the last",
        until="it samples each prompt once, at the right positions, without waiting for the longest row",
        apply="cobalt.training.patches.hf_rollout:replace_rollout",
        backends=("hf", "cpu"),
    ),
    Patch(
        module="verl.workers.actor.dp_actor",
        what="responses to one prompt are packed behind it",
        fault="without flash-attn computes prompt and response of each sample at full padded width",
        until="it skips padding without flash-attn, too",
        apply="cobalt.training.patches.packing:pack_groups",
        backends=("hf", "cpu"),
    ),
    Patch(
        module="verl.workers.actor.dp_actor",
        what="flash_attn.bert_padding has a stand-in where it is not installed",
        fault="imports it on every GPU, even where it is never called",
        until="it is imported where it is called",
        during="cobalt.training.patches.flash_attn:stand_in",
        backends=("hf", "cpu"),
    ),
    Patch(
        module="verl.workers.actor.dp_actor",
        what="each prompt is computed once for all of its responses",
        fault="computes a prompt again with each of its responses: old log-probabilities, reference and update",
        until="it shares the prompts of a group",
        apply="cobalt.training.patches.shared_prompts:patch_actor",
        sharing=True,
    ),
    Patch(
        module="verl.trainer.ppo.ray_trainer",
        what="ranks get whole groups of responses",
        fault="balances ranks by rows, which parts the responses to one prompt",
        until="it balances by groups",
        apply="cobalt.training.patches.shared_prompts:patch_trainer",
        sharing=True,
    ),
    Patch(  # before that of online training, which sets the rows of a mini-batch around it
        module="verl.workers.actor.dp_actor",
        what="a token counts in the loss for what its mini-batch makes it, in any micro-batch",
        fault="takes the mean over the tokens of a micro-batch, so that weights depend on the rows that meet in one",
        until="it takes the mean over those of the mini-batch, or of any other given rows",
        apply="cobalt.training.patches.loss_weights:patch_actor",
    ),
    Patch(
        module="verl.workers.fsdp_workers",
        what="rotary frequencies stay in fp32",
        fault="casts the reference to bf16 with the frequencies of its rotary embedding: at thousands of tokens it is "
        "another model, and the KL term measures that",
        until="it casts parameters only",
        apply="cobalt.training.patches.rotary:keep_frequencies",
    ),
    Patch(
        module="verl.trainer.ppo.ray_trainer",
        what="rows after a trajectory's end are dropped, advantages are the manager's",
        fault="knows one response to each prompt, and advantages from rewards of single rows",
        until="rollouts may return any number of rows, and advantages may be given",
        apply="cobalt.training.patches.online:patch_trainer",
        online=True,
    ),
    Patch(
        module="verl.workers.actor.dp_actor",
        what="mini-batches are equal shares of the rows that are left",
        fault="takes a fixed number of rows for an optimizer step",
        until="it takes a number of steps",
        apply="cobalt.training.patches.online:patch_actor",
        online=True,
    ),
    Patch(
        module="verl.workers.rollout",
        what="training rollouts are trajectories",
        fault="its multi-turn rollouts keep all turns in one row, earlier thinking included",
        until="a rollout may return a row for each turn",
        apply="cobalt.training.patches.online_hf:play_with_hugging_face",
        backends=("hf", "cpu"),
        online=True,
    ),
    Patch(
        module="verl.workers.rollout.vllm_rollout",
        what="training rollouts are trajectories",
        fault="its multi-turn rollouts keep all turns in one row, earlier thinking included",
        until="a rollout may return a row for each turn",
        apply="cobalt.training.patches.online_vllm:play_with_vllm",
        backends=("verl",),
        online=True,
    ),
    Patch(
        module="verl.utils.device",
        what="a CPU answers what is asked of GPUs, in fp32",
        fault="no collective backend without an accelerator; queries that torch.cpu lacks; autocast to bfloat16, which "
        "most CPUs compute slowly",
        until="it supports CPUs",
        apply="cobalt.training.patches.cpu:answer_for_a_gpu",
        backends=("cpu",),
    ),
    Patch(
        module="verl.workers.fsdp_workers",
        what="a CPU's process group, memory that is not pinned",
        fault="names the CPU twice in the process group's backend; pins memory, which needs an accelerator",
        until="it supports CPUs",
        apply="cobalt.training.patches.cpu:work_without_a_gpu",
        backends=("cpu",),
    ),
)


def patches_of(backend: str, share_prompts: bool, online: bool = False) -> tuple[Patch, ...]:
    """The patches of a backend, in the order in which they are applied. Raises ``SetupError`` for an unknown one."""
    if backend not in BACKENDS:
        raise SetupError(f"cobalt.backend={backend}: choose one of {', '.join(BACKENDS)}")
    return tuple(
        patch
        for patch in PATCHES
        if backend in patch.backends and (share_prompts or not patch.sharing) and (online or not patch.online)
    )
