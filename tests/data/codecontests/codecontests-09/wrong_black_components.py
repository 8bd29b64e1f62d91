# joins vertices over black edges instead of red ones
MOD = 10**9 + 7

n, k = map(int, input().split())
parent = list(range(n + 1))


def find(x):
    while x != parent[x]:
        x = parent[x]
    return x


for _ in range(n - 1):
    u, v, colour = map(int, input().split())
    if colour == 1:
        parent[find(u)] = find(v)
sizes = [0] * (n + 1)
for v in range(1, n + 1):
    sizes[find(v)] += 1
print((n**k - sum(size**k for size in sizes)) % MOD)
