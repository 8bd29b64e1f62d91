from collections import Counter


def main():
    n, size = map(int, input().split())
    counts = Counter(map(int, input().split()))
    values = sorted(counts)
    bits = min(8 * size // n, 20)
    keep = min(1 << bits, len(values))
    kept = best = sum(counts[v] for v in values[:keep])
    for i in range(keep, len(values)):
        kept += counts[values[i]] - counts[values[i - keep]]
        best = max(best, kept)
    print(n - best)


main()
