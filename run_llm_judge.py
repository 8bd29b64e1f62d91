"""Sort hacking cases into categories with a model. See docs/hacking.md."""

from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.hacking.judging import JudgeConfig, judge

if __name__ == "__main__":
    run(JudgeConfig, judge)
