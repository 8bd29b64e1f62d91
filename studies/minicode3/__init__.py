"""MiniCode 3: problems of three to six steps, and a pre-training corpus whose thinking is computed by executing."""
