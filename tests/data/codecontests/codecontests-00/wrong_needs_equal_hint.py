from collections import Counter


def lies(n, hints):
    wrong = 0
    for sign, other, answer in hints:
        truth = {"<": n < other, ">": n > other}.get(sign, n == other)
        wrong += truth != answer
    return wrong


for _ in range(int(input())):
    hints = []
    equal = Counter()
    for _ in range(int(input())):
        sign, other, answer = input().split()
        hints.append((sign, int(other), answer == "Yes"))
        if sign == "=" and answer == "Yes":
            equal[int(other)] += 1
    favourite = max(equal, key=equal.get)
    print(min(lies(n, hints) for n in range(max(1, favourite - 5), favourite + 6)))
