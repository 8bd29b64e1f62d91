from collections import Counter

for _ in range(int(input())):
    k = int(input())
    change = Counter({1: 0})
    always = 0
    for _ in range(k):
        sign, n, answer = input().split()
        n = int(n)
        yes = answer == "Yes"
        if sign == "=":
            if yes:
                change[n] += 1
                change[n + 1] -= 1
            else:
                always += 1
                change[n] -= 1
                change[n + 1] += 1
        elif (sign == "<") == yes:
            always += 1
            change[n] -= 1
        else:
            change[n + 1] += 1
    now, best = 0, -k
    for n in sorted(change):
        now += change[n]
        best = max(best, now)
    print(k - always - best)
