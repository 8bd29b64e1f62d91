from collections import Counter

n, size = map(int, input().split())
counts = Counter(map(int, input().split()))
values = sorted(counts)
prefix = [0]
for value in values:
    prefix.append(prefix[-1] + counts[value])
keep = 2 ** min(size * 8 // n, 20)
best = prefix[keep] - prefix[0]
for left in range(1, len(values) - keep + 1):
    best = max(best, prefix[left + keep] - prefix[left])
print(n - best)
