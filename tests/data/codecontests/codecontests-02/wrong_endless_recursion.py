# recursion without a mark for places under way goes round in circles until RecursionError
from functools import cache

s = input().strip()
n = len(s)


@cache
def jumps(i):
    if i == n - 1:
        return 0
    options = [jumps(j) for j in range(n) if j != i and (abs(i - j) == 1 or s[i] == s[j])]
    return 1 + min(options)


print(jumps(0))
