# counts each change twice, once in either list
from collections import Counter

n = int(input())
change = Counter(input() for _ in range(n))
change.subtract(input() for _ in range(n))
print(sum(abs(count) for count in change.values()))
