# KeyError for a vertex without a red edge
MOD = 10**9 + 7

n, k = map(int, input().split())
red = {}
for _ in range(n - 1):
    u, v, colour = map(int, input().split())
    if colour == 0:
        red.setdefault(u, []).append(v)
        red.setdefault(v, []).append(u)
seen = set()


def size(u):
    seen.add(u)
    return 1 + sum(size(v) for v in red[u] if v not in seen)


bad = 0
for u in range(1, n + 1):
    if u not in seen:
        bad += pow(size(u), k, MOD)
print((pow(n, k, MOD) - bad) % MOD)
