# always keeps the smallest values
from collections import Counter

n, size = map(int, input().split())
counts = Counter(map(int, input().split()))
bits = min(size * 8 // n, 20)
kept = sorted(counts)[: 2**bits]
print(n - sum(counts[value] for value in kept))
