# an array over all of 1..10^9 needs 8 GB
LIMIT = 10**9

for _ in range(int(input())):
    k = int(input())
    holding = [0] * (LIMIT + 2)
    for _ in range(k):
        sign, number, answer = input().split()
        n = int(number)
        true = {"<": range(1, n), "=": range(n, n + 1)}.get(sign, range(n + 1, LIMIT + 1))
        for m in range(1, LIMIT + 1):
            holding[m] += (m in true) == (answer == "Yes")
    print(k - max(holding))
