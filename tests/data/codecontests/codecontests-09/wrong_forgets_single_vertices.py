MOD = 10**9 + 7

n, k = map(int, input().split())
red = {}
for _ in range(n - 1):
    u, v, colour = map(int, input().split())
    if colour == 0:
        red.setdefault(u, []).append(v)
        red.setdefault(v, []).append(u)
seen = set()
bad = 0
for start in red:
    if start in seen:
        continue
    seen.add(start)
    stack = [start]
    size = 0
    while stack:
        u = stack.pop()
        size += 1
        for v in red[u]:
            if v not in seen:
                seen.add(v)
                stack.append(v)
    bad += pow(size, k, MOD)
print((pow(n, k, MOD) - bad) % MOD)
