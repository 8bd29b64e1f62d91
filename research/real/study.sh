#!/usr/bin/env bash
# The study with one model, on the GPUs of one host: conversations, contexts, and all arms, some at a time on each GPU.
#
#   bash research/real/study.sh --gpu_seconds 350
#
# Arguments are study.py's, for every arm. A second run goes on where the first was stopped. Knobs (environment):
#   MODEL=models/qwen2.5-coder-0.5b   a folder
#   DATA=data/study        has useful.jsonl and test.jsonl (problems.py); gets conversations, contexts, answers
#   OUT=runs/study         an arm's folder each; then: python research/real/study_tables.py --collect $OUT
#   GPUS="0 1"             of this host
#   SIDE_BY_SIDE=3         arms on a GPU at a time
#   KV_GIB=8               of vLLM's cache, of each arm and of each of two servers a GPU that collect
#   ARMS="--arm cobalt --seed 0, --arm base"   study.py's flags for each; default: one or two seeds of every arm. With
#                          "--ask dev --name rft_3e-6 --arm rft -- optim.lr=3e-6" of one, settings are compared
#   PYTHON=python          interpreter with the extras gpu and dpo
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
HELP_OF=../research/real/study.sh
source scripts/lib/arguments.sh
: "${MODEL:=models/qwen2.5-coder-0.5b}" "${DATA:=data/study}" "${OUT:=runs/study}" "${GPUS:=0 1}" "${SIDE_BY_SIDE:=3}"
: "${KV_GIB:=8}" "${PYTHON:=python}"
: "${ARMS:=--arm cobalt --seed 0, --arm cobalt --seed 1, --arm single_turn, --arm grpo_online,\
 --arm rft --seed 0 -- optim.lr=1e-5, --arm rft --seed 1 -- optim.lr=1e-5, --arm dpo, --arm base}"
SAMPLING="--temperature 0.6 --top_p 0.95 --max_tokens 768"
[[ -d $MODEL ]] || refuse "MODEL=$MODEL: no such folder"
for name in useful test; do
  [[ -f $DATA/$name.jsonl ]] || refuse "DATA=$DATA has no $name.jsonl; problems.py writes it"
done
gpus=($GPUS) parts=$((2 * $(wc -w <<< "$GPUS")))
workers=$(($(env -u OMP_NUM_THREADS nproc) / parts)) # of a part's sandboxes: with one for each core, parts hold each other up
executor_args=(--executor_args "workers=$((workers > 0 ? workers : 1))")
executor=(--executor local "${executor_args[@]}")
mkdir -p "$OUT"

# Conversations: 8 for each problem, three programs each. Two servers a GPU, each with a part of the problems.
collect() { # NUMBER
  local part=$DATA/part-$1-of-$parts port server
  [[ ! -f $part.done ]] || return 0
  port=$("$PYTHON" -c "from cobalt.serving.ports import free_port; print(free_port())")
  awk -v part="$1" -v parts="$parts" 'NR % parts == part' "$DATA/useful.jsonl" > "$part.problems.jsonl"
  CUDA_VISIBLE_DEVICES=${gpus[$1 / 2]} setsid "$PYTHON" -m vllm.entrypoints.openai.api_server --model "$MODEL" \
    --served-model-name "$identity" --host 127.0.0.1 --port "$port" --generation-config vllm --uvicorn-log-level warning \
    --max-model-len 8192 --max-num-seqs 512 --kv-cache-memory-bytes $((KV_GIB << 30)) --gpu-memory-utilization 0.1 \
    > "$part.vllm.log" 2>&1 &
  server=$!
  trap 'kill -- -'$server EXIT
  until curl -sf --noproxy '*' "http://127.0.0.1:$port/health" > /dev/null; do
    kill -0 $server || return 1
    sleep 1
  done
  "$PYTHON" run_multi_turn_vllm.py --from_scratch --num_turns 2 -n 8 --seed 0 $SAMPLING "${executor[@]}" --max_in_flight 640 \
    --api_base "http://127.0.0.1:$port/v1" -i "$part.problems.jsonl" -o "$part.turns.jsonl"
  "$PYTHON" eval_multi_turn.py "${executor[@]}" -i "$part.turns.jsonl" -o "$part.jsonl"
  touch "$part.done" # outputs grow line by line
}

if [[ ! -f $DATA/collected ]]; then
  identity=$("$PYTHON" -c "import sys; from cobalt.records.identity import model_identity as of; print(of(sys.argv[1]))" "$MODEL")
  for ((number = 0; number < parts; number++)); do
    (collect $number) & collecting+=($!)
    collected+=("$DATA/part-$number-of-$parts.jsonl")
  done
  for one in "${collecting[@]}"; do wait "$one" || failed=1; done
  [[ -z ${failed:-} ]] || exit 1

  # What the arms learn from.
  cat "${collected[@]}" > "$DATA/collect.jsonl"
  contexts="$PYTHON preproc/process_multi_turn_taco.py --model_name $MODEL -i $DATA/collect.jsonl"
  $contexts -o "$DATA/contexts.jsonl"
  $contexts -o "$DATA/rft.jsonl" --for rft
  $contexts -o "$DATA/dpo.jsonl" --for dpo
  "$PYTHON" preproc/verl_preproc_single_turn.py --local_dir "$DATA/problems" --train_data_file "$DATA/useful.jsonl" \
    --val_data_file "$DATA/useful.jsonl"
  "$PYTHON" preproc/verl_preproc_multi_turn.py --local_dir "$DATA/contexts" --train_data_file "$DATA/contexts.jsonl" \
    --val_data_file "$DATA/contexts.jsonl"
  touch "$DATA/collected"
fi

# The arms: every place takes the next one. A failed arm stops no other, and the study ends with 1.
next() { # takes the first line of the queue
  flock "$OUT/queue.lock" sh -c "head -n 1 '$OUT/queue'; sed -i 1d '$OUT/queue'"
}
place() { # GPU
  local arm code=0
  while arm=$(next) && [[ -n $arm ]]; do
    echo "GPU $1: $arm"
    CUDA_VISIBLE_DEVICES=$1 "$PYTHON" research/real/study.py --model "$MODEL" --data "$DATA" --out "$OUT" --ask test \
      --kv_gib "$KV_GIB" "${executor_args[@]}" "${arguments[@]}" $arm >> "$OUT/$(tr -s ' -' _ <<< "$arm").log" 2>&1 || { echo "failed: $arm" >&2; code=1; }
  done
  return $code
}
arguments=("$@")
sed 's/, */\n/g' <<< "$ARMS" > "$OUT/queue"
for ((side = 0; side < SIDE_BY_SIDE; side++)); do
  for gpu in "${gpus[@]}"; do place "$gpu" & places+=($!); done
done
for one in "${places[@]}"; do wait "$one" || failed=1; done
exit ${failed:-0}
