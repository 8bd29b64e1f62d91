import sys

MOD = 10**9 + 7


def main():
    data = list(map(int, sys.stdin.read().split()))
    n, k = data[0], data[1]
    parent = list(range(n + 1))
    size = [1] * (n + 1)

    def find(x):
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for i in range(2, 3 * n - 1, 3):
        u, v, black = data[i : i + 3]
        if black:
            continue
        u, v = find(u), find(v)
        if u == v:
            continue
        if size[u] < size[v]:
            u, v = v, u
        parent[v] = u
        size[u] += size[v]
    bad = sum(pow(size[v], k, MOD) for v in range(1, n + 1) if parent[v] == v)
    print((pow(n, k, MOD) - bad) % MOD)


main()
