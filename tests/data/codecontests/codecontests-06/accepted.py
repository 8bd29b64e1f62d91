from itertools import accumulate

MOD = 998244353
TOP = 200


def main():
    n = int(input())
    a = list(map(int, input().split()))[:n]
    # needs[v]: ways where the last element is v and its right neighbour must be at least v
    # free[v]: ways where the left neighbour already covers the last element v
    free = [0] * (TOP + 1)
    needs = [0] + [1 if a[0] in (-1, v) else 0 for v in range(1, TOP + 1)]
    for x in a[1:]:
        total = [free[v] + needs[v] for v in range(TOP + 1)]
        upto = list(accumulate(total))
        new_free = [0] * (TOP + 1)
        new_needs = [0] * (TOP + 1)
        free_above = [0] * (TOP + 2)
        for v in range(TOP, 0, -1):
            free_above[v] = free_above[v + 1] + free[v]
        for v in range(1, TOP + 1) if x == -1 else (x,):
            new_needs[v] = upto[v - 1] % MOD
            new_free[v] = (total[v] + free_above[v + 1]) % MOD
        free, needs = new_free, new_needs
    print(sum(free) % MOD)


main()
