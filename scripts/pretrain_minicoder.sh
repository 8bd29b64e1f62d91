#!/usr/bin/env bash
# Makes the checkpoint of assets/minicoder: corpus, tokenizer, two training phases, and its scores on MiniCode dev.
# Under 10 minutes on one H200-class GPU with 16 cores. SIZE=small is a smaller network on the same corpus: with SEED=1
# that of assets/minicoder-small, another reference model. SIZE=cpu has a smaller corpus too, for a machine without a GPU;
# it shows that the chain works, its skill is far below that of the shipped ones.
#
# Knobs (environment):
#   OUT=runs/minicoder   where the checkpoint, pretraining.json and scores.json are written
#   SEED=0               seed of the corpus and of training
#   SIZE=full            full, small or cpu
#   SLIP=0.33            share of look-alikes in the noisy phase: it sets Pass@1 at turn 0
#   DOSE_SCALE=1         multiplies the doses of the habits by which tests are gamed (cobalt/minicode/habits.py)
#   CONTRADICTED=0.4     share of the noisy dialogues whose feedback comes from wrong tests
#   START=               a checkpoint to begin the noisy phase with, such as OUT/clean of another run
#   PYTHON=python        interpreter with the train extra
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
if asks_for_help "$@"; then
  show_help
  exit 0
fi
(($# == 0)) || refuse "no argument '$1'; see --help"

: "${OUT:=runs/minicoder}"
: "${SEED:=0}"
: "${SIZE:=full}"
: "${SLIP:=0.33}"
: "${DOSE_SCALE:=1}"
: "${CONTRADICTED:=0.4}"
: "${START:=}"
: "${PYTHON:=python}"

case $SIZE in
  full | small)
    sizes=()
    [[ $SIZE == full ]] || sizes=(--hidden_size 144 --feed_forward_size 384 --num_layers 5)
    problems=200
    decisions=60
    perturbed=140
    turns=8
    ;;
  cpu)
    sizes=(--clean_problems 4000 --noisy_problems 500 --tokens_per_batch 8192 --hidden_size 128 --num_layers 4
      --feed_forward_size 384 --vocab_size 768)
    problems=24
    decisions=2
    perturbed=12
    turns=3
    ;;
  *)
    refuse "SIZE is full, small or cpu, not '$SIZE'"
    ;;
esac

"$PYTHON" -m cobalt minicode pretrain --output_dir "$OUT" --seed "$SEED" --slip "$SLIP" \
  --dose_scale "$DOSE_SCALE" --contradicted "$CONTRADICTED" ${START:+--start "$START"} ${sizes[@]+"${sizes[@]}"}
"$PYTHON" -m cobalt minicode probe --model "$OUT" --output_file "$OUT/scores.json" --num_problems "$problems" \
  --num_turns "$turns" --look_alike_decisions "$decisions" --perturbed_problems "$perturbed"
