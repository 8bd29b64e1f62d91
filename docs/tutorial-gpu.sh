# shellcheck shell=bash disable=SC2034
# Sourced in each shell that runs commands of the tutorial: Qwen3-8B on GPUs, in the environment that is active.
# All shells share one token: nobody else may use this Ray.
[[ -s runs/ray-token ]] || (umask 077 && mkdir -p runs && head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1 >runs/ray-token)
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(<runs/ray-token)
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 # Ray's ports listen on this machine alone
export MODEL=Qwen/Qwen3-8B PRESET=paper-qwen3
DATA=data/taco_verified_filtered N=16 EXECUTION="--executor serve" ENGINE="--engine vllm --max_tokens 6144"
