"""Ray Serve app that serves a model with vLLM.

serve run vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor model=Qwen/Qwen3-8B [num_replicas=2 ...]
"""

from cobalt.serving.app_settings import show_help
from cobalt.serving.vllm_app import VllmConfig
from cobalt.serving.vllm_app import build_app as app

__all__ = ["app"]

if __name__ == "__main__":
    show_help(__doc__, VllmConfig)
