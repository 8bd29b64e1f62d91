"""Sampling from Hugging Face models by hand, in three parts that are read in this order.

``network``: the attention, the prompts and the cache that a step runs on. ``prompts``: from token ids to keys and
values, reading nothing twice. ``sampling``: the loop that draws tokens until each response has ended.
"""
