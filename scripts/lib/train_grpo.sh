# Sourced by the training recipes, which set RECIPE: starts what is missing, trains, stops what it started.
# Their headers list the knobs.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-python}
PRESET=${PRESET:-paper-qwen3}
OUTPUT_DIR=${OUTPUT_DIR:-runs/$RECIPE-$PRESET}
TRAIN_FILE=${TRAIN_FILE:-data/verl_$RECIPE/train.parquet}
VAL_FILE=${VAL_FILE:-data/verl_$RECIPE/test.parquet}
EXECUTOR=${EXECUTOR:-serve}
LOGGER=${LOGGER:-console}
LOG_FILE=${LOG_FILE:-$OUTPUT_DIR/train.log}
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"

overrides=(
  --config-dir "$ROOT/verl/config" "+recipe=$RECIPE" "+preset=$PRESET"
  "hydra.run.dir=$OUTPUT_DIR/hydra"
  "custom_reward_function.path=$ROOT/verl/code_reward_func_think.py"
  "data.train_files=$(realpath -m "$TRAIN_FILE")" "data.val_files=$(realpath -m "$VAL_FILE")"
  "reward_model.reward_kwargs.executor=$EXECUTOR"
  "trainer.logger=[$LOGGER]" "trainer.experiment_name=$(basename "$OUTPUT_DIR")"
  "trainer.default_local_dir=$(realpath -m "$OUTPUT_DIR")"
)
[[ $PRESET != cpu && $PRESET != one-gpu ]] || MODEL=${MODEL:-$ROOT/assets/minicoder}
[[ ! -d ${MODEL:-} ]] || MODEL=$(realpath "$MODEL")
[[ -z ${MODEL:-} ]] || overrides+=("actor_rollout_ref.model.path=$MODEL")
[[ -z ${ROLLOUT:-} ]] || overrides+=("actor_rollout_ref.rollout.name=$ROLLOUT")
[[ -z ${N_GPUS:-} ]] || overrides+=("trainer.n_gpus_per_node=$N_GPUS")
[[ -z ${N_NODES:-} ]] || overrides+=("trainer.nnodes=$N_NODES")

arguments=() dry_run=""
for argument in "$@"; do
  if [[ $argument == --dry-run ]]; then dry_run=1; else arguments+=("$argument"); fi
done
if [[ -n $dry_run ]]; then
  exec "$PYTHON" -m cobalt.train "${overrides[@]}" "${arguments[@]}" --cfg job --resolve
fi

source "$ROOT/scripts/lib/services.sh"
ray_arguments=()
# On a CPU, GPUs are logical: veRL asks Ray for one per worker.
[[ $PRESET != cpu ]] || ray_arguments=(--num-gpus "${N_GPUS:-1}" --num-cpus 8)

mkdir -p "$OUTPUT_DIR"
trap stop_services EXIT
if [[ $EXECUTOR == serve ]]; then
  start_services "$OUTPUT_DIR" "${ray_arguments[@]}"
elif [[ -z ${RAY_ADDRESS:-} ]]; then
  start_ray "$OUTPUT_DIR" "${ray_arguments[@]}"
fi
echo "training: recipe $RECIPE, preset $PRESET; log: $LOG_FILE"
"$PYTHON" -m cobalt.train "${overrides[@]}" "${arguments[@]}" 2>&1 | tee -a "$LOG_FILE"
