# shellcheck shell=bash disable=SC2034
# Sourced in each shell that runs commands of the tutorial: MiniCoder on this machine's CPU.
source .venv/bin/activate
export MODEL=assets/minicoder PRESET=cpu
DATA=data/minicode N=4 EXECUTION="--executor local" ENGINE="--engine hf --model $MODEL --max_tokens 256"
