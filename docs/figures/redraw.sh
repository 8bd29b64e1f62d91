#!/usr/bin/env bash
# Draws the figures of README, docs and result pages again from their data. `git diff --stat` then shows what changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
place=research/results
drawn=$(mktemp -d)
trap 'rm -rf "$drawn"' EXIT

python docs/figures/idea.py
python research/real/study_tables.py >/dev/null
python -m research theory report -o "$drawn/bound-steps" \
  -i $place/bound-steps/policies/{base,cobalt-{0,1,2}-step-{1,2,5,10,20}}.jsonl.gz
for name in paper-in-miniature offline-h200 hacking-h200 bound-h200 verdicts; do
  mkdir "$drawn/$name"
  cp $place/$name/{report.json.gz,verdicts.json} "$drawn/$name" 2>/dev/null || true
  python -m research report figures "$drawn/$name"/*
done
for png in $place/*/*.png; do # those that pages show
  cp "$drawn/${png#"$place"/}" "$png"
done
