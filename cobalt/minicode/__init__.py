"""MiniCode, a small generated world of programming problems, and MiniCoder, the policy that is pre-trained on it.

``python -m cobalt.minicode`` writes problems in TACO's raw row format; ``python -m cobalt.minicode.pretrain`` makes the
checkpoint of ``assets/minicoder``.
"""
