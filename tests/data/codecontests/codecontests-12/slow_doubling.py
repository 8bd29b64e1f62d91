# doubles an unbounded integer once per bit, up to 8 * 10^8 times
from collections import Counter

n, size = map(int, input().split())
counts = Counter(map(int, input().split()))
values = sorted(counts)
keep = 1
for _ in range(size * 8 // n):
    keep *= 2
keep = min(keep, len(values))
window = sum(counts[value] for value in values[:keep])
best = window
for left in range(len(values) - keep):
    window += counts[values[left + keep]] - counts[values[left]]
    best = max(best, window)
print(n - best)
