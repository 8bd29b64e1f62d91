import sys
from collections import Counter

words = sys.stdin.read().split()
n = int(words[0])
missing = Counter(words[n + 1 : 2 * n + 1]) - Counter(words[1 : n + 1])
print(sum(missing.values()))
