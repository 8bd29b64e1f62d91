"""Ray Serve app that runs programs on tests.

serve run remote_reward_server:app --name evaluator --route-prefix /evaluator [replicas=1 workers=16 checker=exact ...]
"""

from cobalt.serving.evaluator import build_app as app

__all__ = ["app"]
