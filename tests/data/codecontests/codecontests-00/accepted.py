import sys
from collections import defaultdict


def fewest_lies(hints):
    always = 0
    change = defaultdict(int)  # change[n]: how many more hints hold at n than at n - 1
    change[1] = 0
    for relation, number, answer in hints:
        yes = answer == "Yes"
        n = int(number)
        if relation == "<":
            always += yes
            change[n] += -1 if yes else 1
        elif relation == ">":
            always += not yes
            change[n + 1] += 1 if yes else -1
        else:
            always += not yes
            change[n] += 1 if yes else -1
            change[n + 1] -= 1 if yes else -1
    holding = best = 0
    for position, n in enumerate(sorted(change)):
        holding += change[n]
        best = holding if position == 0 else max(best, holding)
    return len(hints) - always - best


def main():
    lines = iter(sys.stdin.read().splitlines())
    for _ in range(int(next(lines))):
        k = int(next(lines))
        print(fewest_lies([next(lines).split() for _ in range(k)]))


main()
