n, size = map(int, input().split())
a = sorted(map(int, input().split()))
bits = min(size // n * 8, 20)
values = sorted(set(a))
count = dict.fromkeys(values, 0)
for value in a:
    count[value] += 1
keep = min(2**bits, len(values))
window = sum(count[value] for value in values[:keep])
best = window
for left in range(len(values) - keep):
    window += count[values[left + keep]] - count[values[left]]
    best = max(best, window)
print(n - best)
