# tries only the numbers of the hints, although the best n may lie beside or between them
def holds(n, sign, other):
    if sign == "<":
        return n < other
    if sign == ">":
        return n > other
    return n == other


for _ in range(int(input())):
    hints = []
    for _ in range(int(input())):
        sign, other, answer = input().split()
        hints.append((sign, int(other), answer == "Yes"))
    lies = []
    for _, n, _ in hints:
        lies.append(sum(holds(n, sign, other) != answer for sign, other, answer in hints))
    print(min(lies))
