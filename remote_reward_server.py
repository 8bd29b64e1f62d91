"""Ray Serve app that runs programs on tests.

serve run remote_reward_server:app --name evaluator --route-prefix /evaluator [replicas=1 workers=16 checker=exact ...]
"""

from cobalt.serving.app_settings import EvaluatorConfig, show_help
from cobalt.serving.evaluator import build_app as app

__all__ = ["app"]

if __name__ == "__main__":
    show_help(__doc__, EvaluatorConfig)
