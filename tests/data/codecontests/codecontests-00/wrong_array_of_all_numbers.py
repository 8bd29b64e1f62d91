LIMIT = 10**9

for _ in range(int(input())):
    k = int(input())
    change = [0] * (LIMIT + 2)
    for _ in range(k):
        sign, number, answer = input().split()
        n = int(number)
        yes = answer == "Yes"
        if sign == "=":
            change[n] += 1 if yes else -1
            change[n + 1] -= 1 if yes else -1
            if not yes:
                change[1] += 1
        elif sign == "<":
            if yes:
                change[1] += 1
                change[n] -= 1
            else:
                change[n] += 1
        elif yes:
            change[n + 1] += 1
        else:
            change[1] += 1
            change[n + 1] -= 1
    now, best = 0, 0
    for n in range(1, LIMIT + 1):
        now += change[n]
        best = max(best, now)
    print(k - best)
