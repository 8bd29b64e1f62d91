# prints the number of ways itself, not the remainder
n = int(input())
a = list(map(int, input().split()))
rising = [0] + [int(a[0] in (-1, v)) for v in range(1, 201)]
settled = [0] * 201
for x in a[1:]:
    next_rising = [0] * 201
    next_settled = [0] * 201
    below = 0
    above = sum(settled)
    for v in range(1, 201):
        above -= settled[v]
        if x in (-1, v):
            next_rising[v] = below
            next_settled[v] = rising[v] + settled[v] + above
        below += rising[v] + settled[v]
    rising, settled = next_rising, next_settled
print(sum(settled))
