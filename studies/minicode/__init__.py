"""MiniCode, a small generated world of programming problems, and MiniCoder, the policy that is pre-trained on it.

``cobalt minicode generate`` writes problems in TACO's raw row format, ``cobalt minicode pretrain`` makes the checkpoint
of ``assets/minicoder``, and ``cobalt minicode probe`` measures a policy.
"""
